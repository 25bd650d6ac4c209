"""All-reduces over one long path, without loss and with it: softnic's defaults on its own emulated links.

The figure is a multiple of what the bytes that the busiest NIC sent take at the rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from softnic.bench import allreduce
from softnic.bench.allreduce import AllreduceSettings
from softnic.bench.rank import REGISTERED
from softnic.measure.progress import as_measured, inside
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.units import medians_of

RANKS = 4
RATE, DELAY = "100mbit", "25ms"
LOSSES = ("0%", "0.5%")
CODECS = ("rht:4",)


@dataclass(frozen=True)
class PathRow:
    loss: str = column("loss")
    what: str = column("floats")
    seconds: float = column("seconds", ".3g")
    limit_s: float = column("bytes / rate", ".3g")
    of_limit: float = column("times that")
    daemons_cpu_s: float = column("CPU s, daemons")


def measure(megabytes: float, rounds: int, progress: Progress) -> MeasurementReport[PathRow]:
    """Raises MeasurementError, ClusterError."""
    rows: list[PathRow] = []
    for loss in LOSSES:
        link = {"rate": RATE, "delay": DELAY, **({} if loss == LOSSES[0] else {"loss": loss})}
        settings = AllreduceSettings(
            codecs=CODECS, nodes=RANKS, megabytes=megabytes, rounds=rounds, memory=(REGISTERED,), link=link
        )
        for row in allreduce.run(settings, inside(progress, f"loss {loss}")).rows:
            assert row.limit_s is not None
            assert row.of_limit is not None
            figures = row.seconds, row.limit_s, row.of_limit, row.daemons_cpu_s
            rows += as_measured([PathRow(loss, row.case, *figures)], columns(PathRow), progress)
    title = f"All-reduce of {megabytes:g} MB, {RANKS} ranks, {RATE}, {DELAY} each way; {medians_of(rounds, 'call')}"
    settings_of = {"megabytes": megabytes, "rounds": rounds, "ranks": RANKS, "rate": RATE, "delay": DELAY}
    return MeasurementReport("wan: one path", title, columns(PathRow), rows, settings_of, ())
