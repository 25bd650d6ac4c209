"""All-reduce and training between sites, softnic beside Gloo over the kernel's TCP: `python -m benchmarks.wan`.

Three sites of 2, 3 and 3 ranks: links of 1 Gbit/s and 1 ms within a site; 100 Mbit/s, 20 to 80 ms and 0.1 to 1 % loss
between sites, each way; with and without a last rank whose link has 20 Mbit/s. All hosts are network namespaces around
a program that emulates the paths, the same one for both, and softnic has no setting for them. Gloo runs over the
kernel's CUBIC and, where the kernel has it, BBR. `--what path` is one simpler path instead: 4 ranks, 100 Mbit/s, 25 ms,
without loss and with 0.5 %. Needs root, `ip` and, for Gloo and trainings, torch.

  python -m benchmarks.wan --what sums --keep wan.json                    # continues where it was interrupted
  python -m benchmarks.wan --what sums --only softnic --megabytes 10      # some minutes
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.wan import path, sums, training
from benchmarks.wan.lab import DEVICE, SitePlan
from benchmarks.wan.sums import GLOO, SOFTNIC, SumCase, SumRow
from benchmarks.wan.training import StepCase, StepRow
from softnic.bench.rank import EXACT
from softnic.cluster.netns_lab.host import missing
from softnic.measure import kept
from softnic.measure.kept import ResultFile
from softnic.measure.progress import Measured, as_measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, columns
from softnic.units import medians_of

CODECS = ("rht:4", "bounded:10")
SUMS, STEPS, PATH = "sums", "training", "path"
PLANS = (SitePlan(), SitePlan(slow_rank=True))


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--what", nargs="+", choices=[SUMS, STEPS, PATH], default=[SUMS, STEPS, PATH])
    add("--megabytes", nargs="+", type=float, default=[10.0, 100.0], help="of float32 a rank (10 100)")
    add("--only", choices=["softnic", "gloo"], help="measure one of the two")
    add("--limit", type=float, default=300.0, metavar="SECONDS", help="of one call, and of a training (300)")
    add("--model", default="convnet", help="of the training, one of softnic.experiments.compare (convnet)")
    add("--steps", type=int, default=10, help="of the training (10)")
    add("--keep", type=Path, metavar="FILE", help="keep each row in FILE at once, and continue with those it has")
    add(
        "--quick",
        action="store_true",
        help="smallest sizes, one call each, with the slow rank: to see that everything runs",
    )
    harness.add_rounds(parser, 3)


class Rows:
    """Rows that are kept as they come, for this commit only."""

    def __init__(self, given: argparse.Namespace, progress: Progress) -> None:
        self._file = ResultFile(given.keep)
        self._settings = {
            "softnic": kept.version(),
            **{name: getattr(given, name) for name in ("rounds", "limit", "steps", "quick")},
        }
        self._progress = progress

    def find(self, name: str, kind: type[Any]) -> Any:
        """Return a row that is kept, else None."""
        return self._file.find(name, self._settings, kind)

    def add(self, name: str, row: Any, began: float) -> Any:
        """Show and keep a row."""
        as_measured([row], columns(type(row)), self._progress)
        return self._file.keep(name, self._settings, row, type(row), time.monotonic() - began)


def _peers(given: argparse.Namespace) -> list[str]:
    """Return who is measured, Gloo first."""
    gloo = [] if given.only == SOFTNIC else [GLOO + name for name in sums.congestion_controls()]
    return gloo if given.only == "gloo" else [*gloo, SOFTNIC]


def _sums(given: argparse.Namespace, rows: Rows, progress: Progress) -> MeasurementReport[SumRow]:
    found: list[SumRow] = []
    for plan in PLANS[-1:] if given.quick else PLANS:
        for megabytes in given.megabytes:
            for who in _peers(given):
                case = SumCase(plan, who, megabytes, given.rounds, given.limit)
                found += _case(case, (EXACT, *CODECS) if who == SOFTNIC else (EXACT,), rows, progress)
    title = f"All-reduce over three sites; {medians_of(given.rounds, 'call')}, after one to warm up"
    notes = [
        "bytes / rate: two thirds of the bytes of a rank, as encoded, over each path between sites, or all of them "
        "over the slow rank's link; it has no delay in it. Where a call of Gloo's took longer than "
        f"{given.limit:g} s, others are faster by the ratio to that at least. Floats: {sums.DATA}."
    ]
    return MeasurementReport("wan: sums", title, columns(SumRow), sums.compared(found), _settings(given), notes)


def _case(case: SumCase, orders: Sequence[str], rows: Rows, progress: Progress) -> list[SumRow]:
    names = {what: f"{case.who} {what}, {case.megabytes:g} MB, {case.plan.name}" for what in orders}
    known = {what: row for what, name in names.items() if (row := rows.find(name, SumRow))}
    began = time.monotonic()
    left = [what for what in orders if what not in known]
    for row in sums.measure(case, left, progress) if left else ():
        known[row.what] = rows.add(names[row.what], row, began)
        began = time.monotonic()
    return [known[what] for what in orders]


def _training(given: argparse.Namespace, rows: Rows, progress: Progress) -> MeasurementReport[StepRow]:
    found: list[StepRow] = []
    case = StepCase(PLANS[0], given.model, given.steps, given.limit)
    for who in _peers(given):
        for what in (EXACT, CODECS[0]) if who == SOFTNIC else (EXACT,):
            name = f"training {given.model}, {who} {what}"
            row = rows.find(name, StepRow)
            began = time.monotonic()
            found.append(row or rows.add(name, training.measure(case, who, what, progress), began))
    title = f"DistributedDataParallel over three sites, {training.BATCH} samples a rank, {given.steps} steps"
    report = training.compared(found)
    return MeasurementReport("wan: training", title, columns(StepRow), report, _settings(given), ())


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(given).items() if name not in ("json", "markdown", "keep")}


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Any]]:
    if given.quick:
        given.megabytes, given.rounds, given.steps = [0.1], 1, 1
    if absent := missing():
        raise MeasurementError(absent)
    harness.set_rank_environment()
    os.environ["GLOO_SOCKET_IFNAME"] = DEVICE
    rows = Rows(given, progress)
    parts: dict[str, Callable[[], MeasurementReport[Any]]] = {
        SUMS: lambda: _sums(given, rows, progress),
        STEPS: lambda: _training(given, rows, progress),
        PATH: lambda: path.measure(min(given.megabytes), given.rounds, progress),
    }
    made = []
    for what in given.what:
        progress(Measured(f"--- {what}"))
        made.append(parts[what]())
    return made


if __name__ == "__main__":
    sys.exit(harness.main("wan", __doc__, measured, add_options))
