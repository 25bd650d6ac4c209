"""Link rate against gain, and what `auto` makes of it.

python -m benchmarks.breakeven [--rate 1gbit ...] [--codec bounded:10] [--simd scalar] [--markdown] [--json FILE]

Two daemons, one stream, emulated links from 10 Mbit/s to none at all; exact, compressed and auto by turns, quotients of
the same round. About three minutes. `--simd scalar` makes the codec slow, and so the break-even come early.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass

from benchmarks import harness
from softnic.bench.stream import TOS, Run, StreamRoute, one_stream
from softnic.cluster.cluster import Cluster
from softnic.cluster.nic_process import node_ip
from softnic.measure import timing
from softnic.measure.progress import Measured, as_measured
from softnic.measure.report import Column, MeasurementReport, Progress, figure, share
from softnic.units import medians_of, rate_bps

UNLIMITED = "unlimited"
RATES = ("10mbit", "100mbit", "300mbit", "1gbit", "3gbit", "10gbit", "25gbit", UNLIMITED)
FASTEST_BYTES_PER_S = 800e6
"""What a stream is taken to reach at most, for the choice of its length."""
EXACT = "exact"


@dataclass(frozen=True)
class BreakevenSettings:
    codec: str = "bounded:10"
    rates: tuple[str, ...] = RATES
    seconds: float = 3.0
    """Of the exact stream, about."""
    rounds: int = 3
    data: str = "gaussian:0.01"
    delay: str = "50us"

    @property
    def auto(self) -> str:
        return f"auto:{self.codec}"

    def size(self, rate: str) -> int:
        """Bytes of each stream."""
        bytes_per_s = FASTEST_BYTES_PER_S if rate == UNLIMITED else min(rate_bps(rate) / 8, FASTEST_BYTES_PER_S)
        return max(1 << 20, int(self.seconds * bytes_per_s) // 4 * 4)


@dataclass(frozen=True)
class RateRow:
    rate: str
    megabytes: float
    exact_mb_per_s: float
    exact_of_link: float | None
    """Frames' bytes, as part of what the link lets through."""
    compressed_mb_per_s: float
    compressed_of_link: float | None
    gain: float
    """Of compression over exact."""
    auto_mb_per_s: float
    auto_gain: float
    auto_of_better: float
    """`auto` to the better of the other two, of the same round."""
    auto_compressed_share: float
    """Of the bytes that `auto` sent."""
    why: str
    """What `auto` said at the end of the last round."""


def run(settings: BreakevenSettings, progress: Progress) -> MeasurementReport[RateRow]:
    """Raises MeasurementError, ClusterError."""
    rows = as_measured((_row(rate, settings, progress) for rate in settings.rates), _columns(settings), progress)
    title = f"Link rate against gain: one stream, two NICs, MTU 1500, {settings.delay}"
    title += f"; {medians_of(settings.rounds, 'round')}"
    notes = [
        f"Floats: {settings.data}. MB/s are the program's bytes; gain is over exact in the same round. A link that is "
        "faster than two daemons on this machine is as fast as they are.",
        *(f"{row.rate}: {row.why}" for row in rows),
    ]
    return MeasurementReport("breakeven", title, _columns(settings), rows, asdict(settings), notes)


def _row(rate: str, settings: BreakevenSettings, progress: Progress) -> RateRow:
    runs: dict[str, list[Run]] = {EXACT: [], settings.codec: [], settings.auto: []}
    shares: list[float] = []
    why = ""
    link = {} if rate == UNLIMITED else {"rate": rate, "delay": settings.delay}
    with Cluster(nodes=2, **link) as cluster:  # type: ignore[arg-type]
        for number in range(settings.rounds):
            for case, found in runs.items():
                what = f"{case} at {rate}, round {number + 1} of {settings.rounds}"
                progress(what)
                before = cluster.stats(0).counters
                found.append(_one(cluster, settings, rate, case))
                progress(Measured(f"{what}: {found[-1].mb_per_s:.0f} MB/s"))
                if case == settings.auto:
                    after = cluster.stats(0).counters
                    sent = [after[name] - before[name] for name in ("tx_auto_compressed_bytes", "tx_auto_raw_bytes")]
                    shares.append(sent[0] / max(1, sum(sent)))
                    why = found[-1].auto
    exact, compressed, auto = ([each.mb_per_s for each in found] for found in runs.values())
    better = [max(pair) for pair in zip(exact, compressed, strict=True)]
    return RateRow(
        rate,
        settings.size(rate) / 1e6,
        timing.median(exact),
        _of_link(runs[EXACT], rate),
        timing.median(compressed),
        _of_link(runs[settings.codec], rate),
        timing.ratio(compressed, exact),
        timing.median(auto),
        timing.ratio(auto, exact),
        timing.ratio(auto, better),
        timing.median(shares),
        why,
    )


def _one(cluster: Cluster, settings: BreakevenSettings, rate: str, case: str) -> Run:
    size, way = settings.size(rate), StreamRoute(node_ip(1), limit_s=60 + 20 * settings.seconds)
    if case == EXACT:
        return one_stream(cluster.spawn, size, settings.data, way)
    return one_stream(cluster.spawn, size, settings.data, way, tos=TOS, codec=case)


def _of_link(runs: list[Run], rate: str) -> float | None:
    if rate == UNLIMITED:
        return None
    return timing.median((each.wire_bytes or 0) * 8 / each.seconds / rate_bps(rate) for each in runs)


def _columns(settings: BreakevenSettings) -> list[Column[RateRow]]:
    return [
        Column("link", lambda row: row.rate, left=True),
        Column("exact, MB/s", lambda row: figure(row.exact_mb_per_s, ".3g")),
        Column("link busy", lambda row: share(row.exact_of_link)),
        Column(f"{settings.codec}, MB/s", lambda row: figure(row.compressed_mb_per_s, ".3g")),
        Column("link busy", lambda row: share(row.compressed_of_link)),
        Column("gain", lambda row: figure(row.gain)),
        Column("auto, MB/s", lambda row: figure(row.auto_mb_per_s, ".3g")),
        Column("gain", lambda row: figure(row.auto_gain)),
        Column("of the better", lambda row: share(row.auto_of_better)),
        Column("compressed by auto", lambda row: share(row.auto_compressed_share)),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    default = BreakevenSettings()
    parser.add_argument("--codec", default=default.codec, help=f"({default.codec})")
    parser.add_argument("--rate", action="append", help=f"of a link; may be repeated ({', '.join(default.rates)})")
    parser.add_argument(
        "--seconds", type=float, default=default.seconds, help=f"of an exact stream ({default.seconds:g})"
    )
    harness.add_rounds(parser, default.rounds)
    parser.add_argument("--simd", help="implementation of the codecs in the daemons: scalar, avx2, ...")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[RateRow]]:
    if given.simd:
        os.environ["SOFTNIC_KERNELS"] = given.simd
    return [run(BreakevenSettings(given.codec, tuple(given.rate or RATES), given.seconds, given.rounds), progress)]


if __name__ == "__main__":
    sys.exit(harness.main("breakeven", __doc__, measured, add_options))
