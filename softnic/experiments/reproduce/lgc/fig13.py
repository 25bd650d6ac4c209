"""LGC's Fig. 13: the loss when sparsification begins at once, grows exponentially as in DGC, or begins after a warm-up.

All without the autoencoder: the first is LGC's second phase from the first step on, the last its first two phases.
"""

from __future__ import annotations

from softnic.experiments.plot import Lines
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.lgc.training import TITLES, differs, plan, smoothed, trained
from softnic.experiments.reproduce.report import Item

FIXED, EXPONENTIAL, WARM_UP = "fixed", "exponential", "warm-up"
_POINTS = 20


def make(context: Context) -> Item:
    given = plan(context)
    methods = {
        FIXED: f"lgc-ring:0.001,momentum=0.9,full=0,learn={given.steps}+m",
        EXPONENTIAL: f"dgc:0.001,warmup={given.full}+m",
        WARM_UP: f"lgc-ring:0.001,momentum=0.9,full={given.full},learn={given.steps}+m",
    }
    rows: list[list[Value]] = []
    charts = []
    for model in given.models:
        found = trained(context, model, methods, "lgc fig13")
        curves = {name: smoothed(each.losses, _POINTS) for name, each in found.items()}
        at = curves[FIXED][0]
        charts.append(Lines(f"{TITLES[model]}: training loss", "steps", "", at, {n: c[1] for n, c in curves.items()}))
        rows += [
            [TITLES[model], int(step), *(curves[name][1][index] for name in methods)] for index, step in enumerate(at)
        ]
    last = {row[0]: row for row in rows}
    findings = [
        f"{model}: loss at the end {row[2]:.4f} with sparsification from the first step, {row[3]:.4f} with exponential "
        f"growth, {row[4]:.4f} after a warm-up of {given.full} full steps. The paper has the last one fall fastest."
        for model, row in last.items()
    ]
    columns = [ValueColumn("network"), ValueColumn("step"), *(ValueColumn(name, ".4f") for name in methods)]
    return Item(
        "lgc",
        "fig13",
        "strategies of sparsification",
        [ValueTable("Training loss, mean of the steps before", columns, rows)],
        charts,
        differs(context),
        findings,
        {"steps": given.steps, "full": given.full, "workers": given.workers, "quick": context.quick},
    )
