"""The figures of the pages of docs/ in `PUBLISHED`: what measures each, and the rows of the pages' tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import scale
from benchmarks.figures.kept import ROOT, Cells, Figure, FigureError, Rows, row
from softnic.experiments.compare import page
from softnic.measure.pages import rebuilt, table
from softnic.measure.report import share

HEADINGS = ["what", "figure", "limit or peer in the same run", "command", "commit"]
STREAM = ("native/nic", "native/tcp", "softnic/nic", "softnic/tcp", "softnic/link", "daemons")
CODECS = ("native/codecs", "softnic/codecs")
OUTER_ROOMS = ("softnic/gradients", "benchmarks/outer.py", "benchmarks/outer_rank.py")
COLLECTIVE = (*STREAM, "native/collectives", "softnic/collectives", "softnic/comm", "softnic/mpi")
GLOO, SOFTNIC, POSTED, KERNEL = "Gloo", "softnic", "softnic, nonblocking", "kernel TCP"
CODEC, SMALLEST = "bounded:10", "rht:4"


def _peers(*more: str) -> str:
    return " ".join(["python -m benchmarks.peers", *more])


def _allreduce(results: Rows) -> list[Cells]:
    """10 MB on one rate."""
    ours, exact = (row(results, who=SOFTNIC, what=what) for what in (SMALLEST, "exact"))
    gloo, half = (row(results, who=GLOO, what=what) for what in ("exact", "fp16"))
    rate = _in_words(str(exact["rate"]))
    return [
        Cells(
            f"all-reduce of 10 MB, 4 hosts, links of {rate}",
            f"`{SMALLEST}` {ours['seconds']:.3g} s, exact {exact['seconds']:.3g} s",
            f"Gloo {gloo['seconds']:.3g} s, in fp16 {half['seconds']:.3g} s",
        )
    ]


def _large(results: Rows) -> list[Cells]:
    """100 MB on links that are faster."""
    made = []
    for rate, words in (("1gbit", "1 Gbit/s"), ("10gbit", "10 Gbit/s")):
        gloo, half = (row(results, rate=rate, who=GLOO, what=what) for what in ("exact", "fp16"))
        exact, ours = (row(results, rate=rate, who=POSTED, what=what) for what in ("exact", "bounded:8"))
        figures = [f"{gloo['seconds'] / each['seconds']:.2f}" for each in (exact, ours)]
        beside = f"Gloo, {gloo['seconds']:.3g} s; in fp16 {half['seconds']:.3g} s"
        figure = f"exact {figures[0]} times as fast as Gloo, `bounded:8` {figures[1]} times"
        made.append(Cells(f"all-reduce of 100 MB, 4 hosts, links of {words}", figure, beside))
    return made


def _full_link(results: Rows) -> list[Cells]:
    ours, bounded = (row(results, case=case) for case in (SMALLEST, CODEC))
    figure = f"`{SMALLEST}` {ours['speed_up']:.1f} times as fast as exact, `{CODEC}` {bounded['speed_up']:.1f} times"
    beside = f"their ratios: {ours['ratio']:.1f} and {bounded['ratio']:.1f}"
    return [Cells("all-reduce of 100 MB of Gaussian floats, 4 hosts, 1 Gbit/s, registered", figure, beside)]


def _streams(results: Rows) -> list[Cells]:
    of_kernel = [row(results, who=f"softnic, {how}")["of_kernel"] for how in ("untagged", f"tagged {CODEC}")]
    figure = "; ".join(f"{each:.2f}" for each in of_kernel)
    return [Cells(f"one stream without a link, untagged; tagged {CODEC}", f"{figure} of the kernel's TCP", KERNEL)]


def _stream(results: Rows) -> list[Cells]:
    used = share(row(results, case="untagged")["of_link_rate"])
    return [Cells("one stream on a link of 10 Gbit/s, untagged", f"{used} of the link", "the link")]


def _latency(results: Rows) -> list[Cells]:
    of_floor = [row(results, case=case)["of_floor"] for case in ("untagged", f"tagged {CODEC}")]
    figure = "; ".join(f"{each:.2f}" for each in of_floor)
    what = f"round trip of 64 bytes, untagged; tagged {CODEC}"
    return [Cells(what, f"{figure} times two trivial relays (p50)", "the relays")]


def _small(results: Rows) -> list[Cells]:
    of_gloo = row(results, backend="softnic")["of_gloo"]
    return [Cells("all-reduce of 1 KiB under torchrun", f"{of_gloo:.2f} of Gloo's time (p50)", GLOO)]


def _codec(results: Rows) -> list[Cells]:
    of_ours = [each for each in results if ":" in each["codec"] and each["data"] == "hdc"]
    speeds = "; ".join(_span([each[f"{way}_gb_per_s"] for each in of_ours]) for way in ("encode", "decode"))
    shares = "; ".join(_span([each[f"{way}_of_memcpy"] for each in of_ours]) for way in ("encode", "decode"))
    packed = [each["removed_gb_per_s"] for each in of_ours if each["max_error"]]
    peers = [each for each in results if each["data"] == "hdc" and ":" not in each["codec"] and each["installed"]]
    removed = ", ".join(f"{each['codec']} {each['removed_gb_per_s']:.2f}" for each in peers)
    return [
        Cells("codecs, encoding; decoding", f"{speeds} GB/s of floats per core", f"{shares} times memcpy"),
        Cells("bytes removed per second by lossy ones, gradients of a classifier", f"{_span(packed)} GB/s", removed),
    ]


def _span(values: list[float]) -> str:
    return f"{min(values):.2g} to {max(values):.2g}"


def _path(results: Rows) -> list[Cells]:
    ours, kernel = (row(results, who=who)["of_link"] for who in ("softnic", "kernel"))
    what = "one untagged stream, 1 Gbit/s, 20 ms round-trip time, 0.1 % loss, BBR"
    return [Cells(what, f"{share(ours)} of the link", f"the kernel's TCP: {share(kernel)}")]


def _lossy(results: Rows) -> list[Cells]:
    used = [share(row(results, case=case)["of_link_rate"]) for case in ("untagged", f"tagged {CODEC}")]
    what = f"the same emulated on the NICs' own links, defaults; untagged, tagged {CODEC}"
    return [Cells(what, f"{used[0]}; {used[1]} of the link", "the link")]


def _connections(results: Rows) -> list[Cells]:
    kib = [row(results, moment=moment)["bytes_a_connection"] / 1024 for moment in ("opened", "idle for 12 s")]
    return [Cells("memory of a connection", f"{kib[0]:.0f} KiB established, {kib[1]:.0f} KiB idle after use", "")]


def _queues(results: Rows) -> list[Cells]:
    beside = {each["what"]: each["beside_one"] for each in results if each["queues"] > 1 and each["beside_one"]}
    calls = [value for what, value in beside.items() if "stream" not in what]
    one, many = (value for what, value in beside.items() if "stream" in what)
    figure = f"all-reduces {_span(calls)} times as fast, one stream {one:.2f}, eight streams {many:.2f}"
    return [Cells("NICs with two queues, 2 cores, 10 and 25 Gbit/s, 100 MB", figure, "NICs with one queue")]


def _sites(results: Rows) -> list[Cells]:
    """All-reduces between sites, a row for what softnic sends."""
    made = []
    for each in results:
        if each["who"] != SOFTNIC:
            continue
        same = {name: each[name] for name in ("paths", "megabytes")}
        peers = [other for other in results if other["who"] != SOFTNIC and other.items() >= same.items()]
        beside = ", ".join(f"{_peer(other)} {_seconds(other)}" for other in peers)
        what = f"{_in_words(each['paths'])}, {each['megabytes']:g} MB, {_floats(each['what'])}"
        figure = f"{_seconds(each)}, {each['of_limit']:.3g} times bytes / rate" if each["seconds"] else _seconds(each)
        made.append(Cells(what, figure, beside))
    return made


def _site_training(results: Rows) -> list[Cells]:
    peers = [each for each in results if each["who"] != SOFTNIC]
    beside = ", ".join(f"{_peer(each)} {_step(each)}" for each in peers)
    return [
        Cells(f"{each['paths']}, a step of training `{each['model']}`, {_floats(each['what'])}", _step(each), beside)
        for each in results
        if each["who"] == SOFTNIC
    ]


def _step(each: Mapping[str, Any]) -> str:
    taken = _seconds(each, "step_s")
    return taken if each["loss"] is None else f"{taken} (last loss {each['loss']:.4f})"


def _one_path(results: Rows) -> list[Cells]:
    return [
        Cells(
            f"one path, 4 ranks, 100 Mbit/s, 25 ms, {_in_words(each['loss'])} loss, 10 MB, {_floats(each['what'])}",
            f"{each['seconds']:.3g} s, {each['of_limit']:.2f} times bytes / rate",
            f"bytes / rate: {each['limit_s']:.3g} s",
        )
        for each in results
    ]


def _share_of_link(results: Rows) -> list[Cells]:
    """A stream beside one of the kernel's."""
    made = []
    for each in results:
        path = f"{_in_words(each['rate'])}, {each['round_trip_ms']:.0f} ms there and back"
        what = f"two streams on one link, {path}, {each['first']} first"
        of_link = [share(each[who]) for who in ("softnic", "kernel")]
        made.append(Cells(what, f"{of_link[0]} of the link", f"the kernel's CUBIC: {of_link[1]}"))
    return made


def _joins(results: Rows) -> list[Cells]:
    ours, *others = results
    figure = f"{ours['counted_s']:.2f} s, of which {ours['beyond_s']:.2f} s after imports and the model"
    by_http = ", ".join(f"{each['who']} {each['counted_s']:.2f} s" for each in others)
    beside = f"with torchft's HTTP over loopback, which has no rate: {by_http}"
    return [Cells("a new process, 100 MB, 1 Gbit/s: start to first counted step", figure, beside)]


def _elastic(results: Rows) -> list[Cells]:
    """Replicas that are killed, beside those over Gloo."""
    ours, gloo = (row(results, who=who) for who in ("softnic", "gloo"))
    stuck = f"over Gloo {gloo['stuck']} of {gloo['faults']} kills were followed by none within 30 s"
    return [
        Cells(
            "8 replicas, a kill every 30 s, a new process after it: samples/s, of what as many idle starts leave",
            f"{share(ours['of_started'])}",
            f"torchft on Gloo: {share(gloo['of_started'])}",
        ),
        Cells(
            "from a kill to the survivors' next step: median; longest",
            f"{ours['next_step_s']:.2f} s; {ours['next_step_worst_s']:.2f} s",
            f"the lighthouse waits 0.5 s for the dead one; {stuck}",
        ),
        Cells(
            "samples/s without faults, of those of DDP without torchft",
            f"{share(ours['machinery'])} of {ours['plain']:.0f}",
            f"torchft on Gloo: {share(gloo['machinery'])} of {gloo['plain']:.0f}",
        ),
    ]


def _outer(every: int, results: Rows) -> list[Cells]:
    """Outer steps, a row for each way."""
    return [
        Cells(
            f"`{each['way']}`, an outer step every {every} of 2,000",
            f"{each['fewer']:,.0f} times fewer bytes, test loss {each['beside']:+.1%}",
            "DDP with a sum in bf16 in each step",
        )
        for each in results[1:]
    ]


def _peer(each: Mapping[str, Any]) -> str:
    """Return Gloo with the congestion control below it."""
    who, _, congestion = each["who"].partition(", ")
    return f"{who} over {congestion.upper()}"


def _in_words(quantity: str) -> str:
    return quantity.replace("mbit", " Mbit/s").replace("gbit", " Gbit/s").replace("%", " %")


def _floats(what: str) -> str:
    return what if what == "exact" else f"`{what}`"


def _seconds(each: Mapping[str, Any], name: str = "seconds") -> str:
    """Return how long a row took: longer than its limit, where that ended it. Raises FigureError if it failed."""
    if each["why"]:
        raise FigureError(f"{each['who']} {each['what']}: {each['why']}")
    return f"{each[name]:.3g} s" if each["over_s"] is None else f"over {each['over_s']:.0f} s"


FIGURES = (
    *(
        Figure(
            f"allreduce-{rate}",
            _peers(
                f"--what allreduce --mb 10 --rounds 3 --rates {rate} --codecs {SMALLEST} --nic-codecs {SMALLEST}",
            ),
            (*COLLECTIVE, *CODECS),
            _allreduce,
        )
        for rate in ("10mbit", "100mbit", "1gbit", "10gbit")
    ),
    Figure(
        "performance-allreduce",
        _peers("--what allreduce --rates 1gbit 10gbit --codecs bounded:8"),
        (*COLLECTIVE, *CODECS),
        _large,
    ),
    Figure(
        "performance-full-link",
        f"softnic bench allreduce --memory registered --codec {SMALLEST} --codec {CODEC}",
        (*COLLECTIVE, *CODECS),
        _full_link,
    ),
    Figure("performance-streams", _peers("--what streams"), (*STREAM, *CODECS), _streams),
    Figure("performance-stream", "softnic bench stream --rate 10gbit", STREAM, _stream),
    Figure("performance-latency", f"softnic bench latency --codec {CODEC}", STREAM, _latency),
    Figure("performance-small", "python -m benchmarks.small", (*COLLECTIVE, "softnic/torch"), _small),
    Figure("performance-codec", "softnic bench codec --compare", CODECS, _codec),
    Figure("performance-path", "python -m benchmarks.path --loss 0.1% --congestion bbr", STREAM, _path),
    Figure(
        "performance-lossy",
        f"softnic bench stream --rate 1gbit --delay 10ms --loss 0.1% --codec {CODEC}",
        STREAM,
        _lossy,
    ),
    Figure("performance-connections", "softnic bench connections", STREAM, _connections),
    Figure("performance-queues", "python -m benchmarks.queues", COLLECTIVE, _queues),
)
WAN_FIGURES = (
    Figure(
        "performance-wan",
        "python -m benchmarks.wan --what sums --megabytes 10",
        (*COLLECTIVE, *CODECS, "benchmarks/wan"),
        _sites,
    ),
    Figure(
        "performance-wan-large",
        "python -m benchmarks.wan --what sums --megabytes 100 --rounds 1",
        (*COLLECTIVE, *CODECS, "benchmarks/wan"),
        _sites,
    ),
    Figure(
        "performance-wan-training",
        "python -m benchmarks.wan --what training",
        (*COLLECTIVE, *CODECS, "softnic/torch", "benchmarks/wan"),
        _site_training,
    ),
    Figure(
        "performance-wan-path",
        "python -m benchmarks.wan --what path --megabytes 10",
        (*COLLECTIVE, *CODECS),
        _one_path,
    ),
    Figure("performance-share", "python -m benchmarks.share --rounds 1", STREAM, _share_of_link),
)
JOINS = Figure(
    "performance-joins",
    "python -m benchmarks.elastic --what joins --replicas 3 --rate 1gbit",
    ("softnic/torchft", "softnic/checkpoint", "softnic/torch", "softnic/comm", "benchmarks/elastic"),
    _joins,
)
ELASTIC = Figure(
    "performance-elastic",
    "python -m benchmarks.elastic --seconds 90",
    ("softnic/torchft", "softnic/torch", "softnic/comm", "benchmarks/elastic"),
    _elastic,
)
OUTER = Figure(
    "performance-outer",
    "python -m benchmarks.outer --ways diloco:feedback:rht:4 diloco:sparseloco:0.1,2 own:sparseloco:0.1,2,beta=1",
    OUTER_ROOMS,
    partial(_outer, 100),
)
OFTEN = Figure(
    "performance-outer-often",
    "python -m benchmarks.outer --every 20 --ways own:sparseloco:0.0125,2,beta=1",
    OUTER_ROOMS,
    partial(_outer, 20),
)
SCALE = Figure(
    "performance-scale",
    "python -m benchmarks.scale",
    ("softnic/sim", "softnic/model", "softnic/collectives", "native/collectives", "softnic/tcp", "native/tcp"),
    scale.cells,
)
SCALE_PAGE = "performance-scale.md"
PUBLISHED = {
    "performance.md": FIGURES,
    "wan.md": WAN_FIGURES,
    "elastic.md": (ELASTIC, JOINS),
    "gradients.md": (OUTER, OFTEN),
    SCALE_PAGE: (SCALE,),
}
"""The figures of each page of docs/."""
REGION = "figures"


def rebuilt_page(name: str) -> str:
    """Return a page with the tables of what is kept. Raises FigureError."""
    made = {REGION: table(HEADINGS, [cells for figure in PUBLISHED[name] for cells in figure.rows()])}
    if name == SCALE_PAGE:
        made |= scale.regions(SCALE.document()["results"])
    return rebuilt(page_path(name).read_text(encoding="utf-8"), made)


def page_path(name: str) -> Path:
    return ROOT / "docs" / name


def rebuild() -> None:
    """Rebuild the pages from what is kept, and the picture of the README, which has allreduce-RATE.json in it.

    Raises FigureError, OSError.
    """
    page.rebuild(ROOT)
    for name in PUBLISHED:
        page_path(name).write_text(rebuilt_page(name), encoding="utf-8")
