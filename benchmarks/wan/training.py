"""Steps of a training between sites: DistributedDataParallel over softnic, beside Gloo over the kernel's TCP."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.wan.lab import SiteHosts, SiteNics, SitePlan
from benchmarks.wan.sums import GLOO, SOFTNIC, START_S
from softnic.bench.rank import EXACT
from softnic.measure.child_process import SilenceError, Start, rank_processes
from softnic.measure.report import MeasurementError, Progress, column

BATCH = 25
LEARNING_RATE = 0.05


@dataclass(frozen=True)
class StepRow:
    paths: str = column("paths")
    model: str = column("model")
    who: str = column("backend")
    what: str = column("gradients")
    step_s: float | None = column("s a step", ".3g", default=None)
    """None: `why` tells why not."""
    over_s: float | None = column("steps longer than, s", ".0f", default=None)
    """The steps did not end within this time."""
    than_cubic: float | None = column("faster than Gloo, cubic", ".3g", default=None)
    """Times as fast as over Gloo; None where its steps took longer than the limit."""
    than_bbr: float | None = column("bbr", ".3g", default=None)
    loss: float | None = column("last loss", ".4f", default=None)
    """Of the last step, mean over ranks."""
    why: str = column("", default="")


@dataclass(frozen=True)
class StepCase:
    plan: SitePlan
    model: str
    steps: int
    """That are measured, after those to warm up (benchmarks.ddp.rank)."""
    limit_s: float
    """Of all steps of a row."""


def measure(case: StepCase, who: str, what: str, progress: Progress) -> StepRow:
    """Return the row of one backend."""
    row = StepRow(case.plan.name, case.model, who, what)
    progress(f"training {case.model}, {who} {what}, {case.plan.name}")
    try:
        reported = _steps(case, who, what)
    except SilenceError:
        return replace(row, over_s=case.limit_s)
    except MeasurementError as error:
        return replace(row, why=f"failed: {error}")
    seconds = max(float(each["seconds"]) for each in reported)
    loss = sum(float(each["losses"][-1]) for each in reported) / len(reported)
    return replace(row, step_s=seconds / case.steps, loss=loss)


def _steps(case: StepCase, who: str, what: str) -> list[dict[str, Any]]:
    """Return what each rank reports of the steps. Raises MeasurementError."""
    with SiteHosts(case.plan) as sites, ExitStack() as stack:
        backend = "softnic" if who == SOFTNIC else "gloo"
        spawn: Start
        if who == SOFTNIC:
            spawn = stack.enter_context(SiteNics(sites)).spawn
        else:
            sites.use_kernel(who.removeprefix(GLOO))
            spawn = sites.spawn
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        options = ["--backend", backend, "--master", f"file://{directory}/store", "--model", case.model]
        options += ["--batch", str(BATCH), "--rate", str(LEARNING_RATE)]
        started = rank_processes(spawn, case.plan.size, "benchmarks.ddp.rank", *options, numbered=True, limit_s=START_S)
        ranks = replace(stack.enter_context(started), limit_s=case.limit_s)
        return ranks.order("steps", what, str(case.steps))


def compared(rows: Sequence[StepRow]) -> list[StepRow]:
    """Return the same rows with how many times as fast as over Gloo each is."""

    def beside(row: StepRow, congestion: str) -> float | None:
        for each in rows:
            same = (each.paths, each.who, each.what) == (row.paths, GLOO + congestion, EXACT)
            if same and each.step_s and row.step_s:
                return each.step_s / row.step_s
        return None

    return [replace(row, than_cubic=beside(row, "cubic"), than_bbr=beside(row, "bbr")) for row in rows]
