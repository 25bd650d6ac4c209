"""LGC's Fig. 13: the loss when sparsification begins at once, grows exponentially as in DGC, or begins after a warm-up.

All without the autoencoder: the first is LGC's second phase from the first step on, the last its first two phases.
"""

from __future__ import annotations

from softnic.experiments.plot import Lines
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.item import Item, Row, ValueTable
from softnic.experiments.reproduce.lgc.training import TITLES, differs, plan, smoothed, trained

FIXED, EXPONENTIAL, WARM_UP = "fixed", "exponential", "warm-up"
_POINTS = 20


def make(context: Context) -> Item:
    own = plan(context)
    methods = {
        FIXED: f"lgc-ring:0.001,momentum=0.9,full=0,learn={own.steps}",
        EXPONENTIAL: f"dgc:0.001,warmup={own.full}",
        WARM_UP: f"lgc-ring:0.001,momentum=0.9,full={own.full},learn={own.steps}",
    }
    rows: list[Row] = []
    charts, findings = [], []
    for model in own.models:
        results = trained(context, model, methods, "lgc fig13")
        at, _ = smoothed(results[FIXED].losses, _POINTS)
        curves = {name: smoothed(each.losses, _POINTS)[1] for name, each in results.items()}
        charts.append(Lines(f"{TITLES[model]}: training loss", "steps", "", at, curves))
        rows += [[TITLES[model], int(step), *losses] for step, *losses in zip(at, *curves.values(), strict=True)]
        fixed, exponential, warm_up = (curve[-1] for curve in curves.values())
        findings.append(
            f"{TITLES[model]}: loss at the end {fixed:.4f} with sparsification from the first step, {exponential:.4f} "
            f"with exponential growth, {warm_up:.4f} after a warm-up of {own.full} full steps. In the paper the last "
            "one falls fastest."
        )
    columns = " | ".join(("network", "step", *(f"{name} [.4f]" for name in methods)))
    return Item(
        "strategies of sparsification",
        [ValueTable("Training loss, mean of the steps before", columns, rows)],
        charts,
        differs(context),
        findings,
        own.settings,
    )
