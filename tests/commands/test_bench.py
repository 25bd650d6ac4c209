"""`softnic bench`: every benchmark at its smallest, what its JSON holds, and how it fails. No figure is judged."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softnic import Cluster
from softnic.bench import allreduce, codec, inputs
from softnic.bench.compressors import COMPRESSORS, Compressor
from softnic.measure import timing
from softnic.measure.child_process import ChildProcess
from softnic.measure.report import MeasurementError
from tests import needs

Softnic = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(softnic: Softnic, tmp_path: Path) -> Callable[..., tuple[dict[str, Any], str]]:
    """Runs `softnic bench ARGUMENTS`: what its JSON file holds, and the table."""

    def call(*arguments: str) -> tuple[dict[str, Any], str]:
        file = tmp_path / "figures.json"
        code, out, err = softnic("bench", *arguments, "--json", str(file))
        assert code == 0, err
        assert "Traceback" not in err
        figures = json.loads(file.read_text())
        assert figures["benchmark"] == arguments[0]
        assert set(figures) == {"benchmark", "machine", "settings", "results", "notes"}
        assert figures["machine"]["cores"] >= 1
        return figures, out

    return call


Bench = Callable[..., tuple[dict[str, Any], str]]


@pytest.mark.slow
def test_codec_tells_rates_ratios_and_errors(bench: Bench) -> None:
    figures, out = bench("codec", "--codec", "bounded:10", "--codec", "raw", "--megabytes", "1", "--rounds", "1")
    rows = {(row["codec"], row["data"]): row for row in figures["results"]}
    bounded, raw = rows["bounded:10", "zeros"], rows["raw", "zeros"]
    assert bounded["ratio"] > 200
    assert 0 < bounded["max_error"] <= 2**-10
    assert 0 < bounded["rms_error"] <= bounded["max_error"]
    assert (raw["ratio"], raw["max_error"]) == (1, 0)
    for row in rows.values():
        for kind in ("encode", "decode"):
            assert row[f"{kind}_gb_per_s"] > 0
            assert row[f"{kind}_of_memcpy"] > 0
        assert str(round(row["ratio"], 2)) in out
    assert "memcpy: " in out


def test_comparison_names_what_is_not_installed(bench: Bench) -> None:
    figures, out = bench(
        "codec", "--compare", "--codec", "bounded:12", "--data", "zeros", "--megabytes", "1", "--rounds", "1"
    )
    rows = {row["codec"]: row for row in figures["results"]}
    assert list(rows) == ["bounded:12", "LZ4", "Snappy", "zstd -1", "Blosc2", "SZ3", "zfp"]
    assert figures["settings"]["error_bound"] == 2**-12
    installed = {name for name, row in rows.items() if row["installed"]}
    for name in rows.keys() - installed:
        assert rows[name]["ratio"] is None
        assert rows[name]["package"] in out
        assert "not installed" in out
    assert set(rows["bounded:12"]["both_times"]) == installed & {"LZ4", "Snappy", "zstd -1", "Blosc2"}


def test_a_compressor_that_is_not_installed_has_a_row_without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cramjam", "zstandard", "blosc2", "pysz", "zfpy"):
        monkeypatch.setitem(sys.modules, module, None)
    settings = codec.CodecSettings(("raw",), ("zeros",), compare=True, megabytes=0.1, rounds=1, slice_s=0)
    report = codec.run(settings)
    assert [row.installed for row in report.rows] == [True] + 6 * [False]
    assert all(row.ratio is None and row.encode_gb_per_s is None for row in report.rows[1:])
    assert "Left out: the modules blosc2, cramjam, pysz, zfpy, zstandard are not installed: " in report.notes[-1]


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=lambda compressor: compressor.name)
@pytest.mark.slow
def test_compressors_keep_what_they_promise(compressor: Compressor) -> None:
    needs.module(compressor.package)
    words = inputs.floats("sparse:0.02", 100_000)
    prepared = compressor.prepare(words, 2**-10)
    assert 0 < prepared.encode() < words.nbytes
    error = abs(prepared.decode() - words).max()
    assert error == 0 if compressor.exact else error <= 2**-10


@pytest.mark.parametrize("name", ["gaussian:0.01", "zeros", "sparse:0.5", "sparse:0"])
def test_data_is_the_same_every_time(name: str) -> None:
    first = inputs.floats(name, 1000)
    assert (first.dtype.name, first.size) == ("float32", 1000)
    assert (first == inputs.floats(name, 1000)).all()


def test_gradients_are_as_many_as_asked_for() -> None:
    needs.module("sklearn")
    words = inputs.floats("hdc", 1_000_000)  # of more than one step
    assert (words.dtype.name, words.size) == ("float32", 1_000_000)
    assert 0 < abs(words).max() < 10
    assert abs(words[900_000:]).max() > 0


@pytest.mark.parametrize("name", ["", "gaussian", "gaussian:0", "gaussian:x", "zeros:1", "sparse:2", "hdc:1", "noise"])
def test_other_names_are_no_data(name: str) -> None:
    with pytest.raises(ValueError, match="unknown data"):
        inputs.floats(name, 1)


@pytest.mark.slow
def test_stream_tells_rates_cpu_and_memory(bench: Bench) -> None:
    figures, out = bench("stream", "--megabytes", "8", "--rounds", "1", "--codec", "bounded:10", "--rate", "1gbit")
    rows = {row["case"]: row for row in figures["results"]}
    assert list(rows) == ["Unix socket", "UDP flood", "untagged", "tagged bounded:10"]
    for row in rows.values():
        assert row["mb_per_s"] > 0
        assert row["of_unix_socket"] > 0
        assert row["of_udp_flood"] > 0
        assert row["case"] in out
    for name in ("untagged", "tagged bounded:10"):
        assert rows[name]["of_link_rate"] > 0
        assert rows[name]["idle_bytes"] >= 0
        assert rows[name]["busy_bytes"] > 0
        assert rows[name]["daemons_cpu_s_per_gb"] >= 0
    assert rows["untagged"]["wire_ratio"] < 1 < rows["tagged bounded:10"]["wire_ratio"]
    assert rows["Unix socket"]["daemons_cpu_s_per_gb"] is None


@pytest.mark.slow
def test_stream_beside_a_capture(bench: Bench) -> None:
    figures, _ = bench("stream", "--megabytes", "8", "--rounds", "1", "--codec", "bounded:10", "--capture")
    rows = {row["case"]: row for row in figures["results"]}
    assert list(rows)[-2:] == ["untagged, captured", "tagged bounded:10, captured"]
    for name in list(rows)[-4:]:
        assert rows[name]["daemons_cpu_s_per_gb"] >= 0
        assert rows[name]["wire_ratio"]
    for name, note in zip(list(rows)[-2:], figures["notes"][1:], strict=True):
        assert note.startswith(f"{name}: ")
        assert note.endswith(" of the packets were recorded.")


def test_allreduce_tells_times_and_what_the_link_allows(bench: Bench) -> None:
    figures, out = bench(
        "allreduce", "-n", "3", "--megabytes", "1", "--rounds", "2", "--codec", "bounded:10", "--rate", "10gbit"
    )
    cases = [(row["case"], row["memory"]) for row in figures["results"]]
    assert cases == [(case, memory) for memory in ("ordinary", "registered") for case in ("exact", "bounded:10")]
    exact, bounded, registered, _ = figures["results"]
    # A ring of 3 sends 4/3 of the floats, and little else.
    assert exact["limit_s"] == pytest.approx(4 / 3 * 1e6 * 8 / 10e9, rel=0.1)
    assert (exact["ratio"], exact["speed_up"]) == (1, 1)
    assert bounded["ratio"] > 2
    assert registered["limit_s"] == pytest.approx(exact["limit_s"], rel=0.1)
    assert exact["max_error"] < 1e-7
    assert 2**-10 / 4 < bounded["max_error"] < 3 * 2**-10
    for row in figures["results"]:
        assert row["of_limit"] == pytest.approx(row["seconds"] / row["limit_s"], rel=0.5)
        assert row["link_busy"] > 0
        assert row["ranks_cpu_s"] >= 0  # a tick may be longer than all of it
        assert row["case"] in out


@pytest.mark.slow
def test_allreduce_by_the_algorithms_that_are_named(bench: Bench) -> None:
    figures, out = bench(
        *(
            "allreduce",
            "-n",
            "3",
            "--megabytes",
            "0.3",
            "--rounds",
            "1",
            "--memory",
            "ordinary",
            "--codec",
            "bounded:10",
        ),
        *("--algorithm", "direct", "--algorithm", "tree", "--algorithm", "wa"),
    )
    assert [(row["case"], row["algorithm"]) for row in figures["results"]] == [
        (case, name) for name in ("direct", "tree", "wa") for case in ("exact", "bounded:10")
    ]
    assert all(row["algorithm"] in out for row in figures["results"])
    sent = {row["algorithm"]: row["limit_s"] for row in figures["results"] if row["case"] == "exact"}
    # Of the rank that sends most: two blocks and then two copies of a third; the whole twice.
    assert sent["direct"] == pytest.approx(4 / 3 * 0.3e6 * 8 / 1e9, rel=0.1)
    assert sent["tree"] == pytest.approx(2 * 0.3e6 * 8 / 1e9, rel=0.1)
    assert sent["wa"] == pytest.approx(2 * 0.3e6 * 8 / 1e9, rel=0.1)


@pytest.mark.slow
def test_blocking_and_nonblocking_allreduce(bench: Bench) -> None:
    options = ("-n", "2", "--megabytes", "0.3", "--rounds", "1", "--memory", "registered", "--codec", "bounded:10")
    figures, out = bench("allreduce", "--nonblocking", *options)
    assert [(row["case"], row["call"]) for row in figures["results"]] == [
        (case, call) for call in ("blocking", "nonblocking") for case in ("exact", "bounded:10")
    ]
    assert figures["settings"]["calls"] == ["blocking", "nonblocking"]
    blocking, posted = figures["results"][1], figures["results"][3]
    assert posted["max_error"] == blocking["max_error"]  # the same bits
    assert posted["limit_s"] == pytest.approx(blocking["limit_s"], rel=0.2)
    assert posted["ratio"] > 2
    assert "nonblocking" in out


@pytest.mark.slow
def test_overlap_tells_what_computing_loses(bench: Bench) -> None:
    figures, out = bench("overlap", "--megabytes", "2", "--rounds", "1", "--codec", "bounded:10")
    assert [(row["call"], row["case"]) for row in figures["results"]] == [
        (call, case) for call in ("blocking", "nonblocking") for case in ("exact", "bounded:10")
    ]
    for row in figures["results"]:
        assert row["seconds"] > 0
        assert row["slow_down"] <= 1  # 1: a rank that got no core before the exchange was over
        assert row["daemons_cpu_s"] >= 0
    assert "lost / daemons" in out


def test_allreduce_of_unlimited_links_has_no_limit() -> None:
    settings = allreduce.AllreduceSettings(("raw",), nodes=2, megabytes=0.1, rounds=1, memory=("ordinary",), link={})
    report = allreduce.run(settings)
    assert [row.case for row in report.rows] == ["exact", "raw"]
    assert all(row.limit_s is None and row.of_limit is None and row.link_busy is None for row in report.rows)


@pytest.mark.slow
def test_latency_tells_percentiles_beside_those_of_relays(bench: Bench) -> None:
    figures, out = bench(
        "latency", "--count", "20", "--rounds", "2", "--size", "128", "--codec", "bounded:10", "--poll", "20us"
    )
    rows = {row["case"]: row for row in figures["results"]}
    assert list(rows) == ["two trivial relays", "kernel TCP, nothing between", "untagged", "tagged bounded:10"]
    for name, row in rows.items():
        assert 0 < row["p50_us"] <= row["p90_us"] <= row["p99_us"] <= row["worst_us"]
        assert row["of_floor"] > 0
        assert (row["middle_cpu_us"] is None) == name.startswith("kernel")
        assert name in out
    assert rows["two trivial relays"]["of_floor"] == 1
    assert [figures["settings"][name] for name in ("size", "count", "poll")] == [128, 20, "20us"]
    assert "NICs poll for 20us" in " ".join(out.split())  # lines are as long as the table is wide


def test_json_to_standard_output_is_json_alone(softnic: Softnic) -> None:
    code, out, _ = softnic(
        "bench", "codec", "--codec", "raw", "--data", "zeros", "--megabytes", "1", "--rounds", "1", "--json", "-"
    )
    assert (code, json.loads(out)["benchmark"]) == (0, "codec")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((), "the following arguments are required: codec|"),
        (("codec", "--codec", "bounded"), "expected for example bounded:23"),
        (("codec", "--data", "gaussian"), "unknown data 'gaussian': expected gaussian:SIGMA, zeros"),
        (("stream", "--rate", "fast"), "'fast' is not a rate"),
        (("allreduce", "--nodes", "1"), "'1' is not a whole number from 2 to 64"),
        (("allreduce", "--algorithm", "star"), "algorithm is 'star': there are ring, direct, tree"),
        (("allreduce", "--megabytes", "0"), "'0' is not a number of megabytes"),
        (("latency", "--size", "63"), "'63' bytes are not whole floats"),
        (("latency", "--poll", "often"), "'often' is not a time"),
    ],
)
def test_wrong_usage_says_what_was_expected(softnic: Softnic, arguments: tuple[str, ...], hint: str) -> None:
    code, out, err = softnic("bench", *arguments)
    assert (code, out) == (2, "")
    assert hint in err.splitlines()[-1]


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(softnic: Softnic, tmp_path: Path) -> None:
    code, out, err = softnic("bench", "codec", "--json", str(tmp_path / "none" / "figures.json"))
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "No such file or directory" in err


@pytest.mark.parametrize("name", ["codec", "stream", "allreduce", "latency"])
def test_help_has_an_example(softnic: Softnic, name: str) -> None:
    code, out, _ = softnic("bench", name, "--help")
    assert code == 0
    assert f"  softnic bench {name}" in out.partition("examples:")[2]


def test_a_program_that_ends_early_is_told_with_its_last_words() -> None:
    said = r"ended early: .*argument role: invalid choice"
    with (
        Cluster(nodes=1) as cluster,
        ChildProcess(cluster.spawn, 0, "softnic.bench.stream_endpoints", "fly") as program,
        pytest.raises(MeasurementError, match=said),
    ):
        program.receive()


def test_a_codec_that_a_nic_does_not_have_ends_the_benchmark(softnic: Softnic) -> None:
    code, _, err = softnic("bench", "stream", "--codec", "bounded:99")
    assert code == 2
    assert "bounded" in err


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2), (0.51, 3), (0.99, 4), (1.0, 4), (0.0, 1)])
def test_percentiles_are_values_that_were_there(share: float, expected: float) -> None:
    assert timing.percentile([4, 2, 1, 3], share) == expected


@pytest.mark.slow
def test_connections_tells_what_nics_hold_for_them(bench: Bench) -> None:
    figures, out = bench("connections", "-n", "20", "--large-count", "2", "--rest", "0")
    rows = figures["results"]
    assert [row["connections"] for row in rows] == [0, 20, 20, 20, 0, 0, 2, 2, 2, 0]
    assert all(row["nic_bytes"] > 10**6 for row in rows)
    assert [row["bytes_a_connection"] is None for row in rows] == [not row["connections"] for row in rows]
    large = next(row for row in rows if row["moment"] == "4096 KiB each way")
    assert large["bytes_a_connection"] > 4 << 20, "the message was in one buffer at least"
    assert "KiB a connection" in out
