"""What was learned against bytes on the wire and against time, as PNG, by matplotlib, which is
imported only when it is to draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from softnic.experiments import torch_models
from softnic.experiments.compare.results import Result

_STYLES = ("-o", "--s", "-.D", ":^")
"""One after the other, when colours start again."""
_COLOURS = 10


def draw(model: str, results: Sequence[Result], path: Path) -> None:
    """Two charts of one model's trainings, a line a method. Raises ImportError, OSError."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5.5), dpi=120, layout="constrained")
    figure.suptitle(model)
    for index, across in enumerate(("bytes on the wire, all NICs", "training time, s")):
        axes = figure.add_subplot(1, 2, index + 1)
        axes.set_xlabel(across)
        axes.set_ylabel("bits per character" if torch_models.reads_text(model) else "accuracy on the test set")
        axes.grid(visible=True, alpha=0.3)
        for number, result in enumerate(results):
            at = [look.train_s if index else look.wire_bytes for look in result.looks]
            style = _STYLES[number // _COLOURS % len(_STYLES)]
            axes.plot(at, [look.score for look in result.looks], style, markersize=4, label=result.method)
        if not index:
            axes.set_xscale("log")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small")
    figure.savefig(path, format="png")
