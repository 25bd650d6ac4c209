"""Where an iteration's time went, drawn: bars of characters for a terminal, and a picture for matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from softnic.experiments.timeline import WHOLE, Iteration, Phase
from softnic.experiments.train.strategies_compared import StrategyComparison, StrategyRow

_WIDTH = 60
"""Characters of the longest bar."""


class Part(NamedTuple):
    name: str
    seconds: Callable[[StrategyRow], float]
    letter: str
    """In a terminal, so that a bar says what it is without colours."""
    color: str
    """As matplotlib and rich know it."""


PARTS = (
    Part("forward", lambda row: row.forward_s, "f", "#4477aa"),
    Part("backward", lambda row: row.backward_s, "b", "#66ccee"),
    Part("exposed exchange", lambda row: row.exchange_s, "x", "#ee6677"),
    Part("sum", lambda row: row.sum_s, "s", "#aa3377"),
    Part("update", lambda row: row.update_s, "u", "#228833"),
    Part("skew", lambda row: row.skew_s, ".", "#bbbbbb"),
)
_COLORS = {
    Phase.FORWARD: PARTS[0].color,
    Phase.BACKWARD: PARTS[1].color,
    Phase.EXCHANGE: PARTS[2].color,
    Phase.POST: "black",
    Phase.SUM: PARTS[3].color,
    Phase.UPDATE: PARTS[4].color,
}
_IN_FLIGHT = "#ccbb44"
_LEGEND = {part.name: part.color for part in PARTS} | {"post": _COLORS[Phase.POST], "in flight": _IN_FLIGHT}


def show(rows: Sequence[StrategyRow], console: Console | None = None) -> None:
    """One bar a strategy, all on one scale."""
    console = console or Console(markup=False)
    longest = max(sum(part.seconds(row) for part in PARTS) for row in rows)
    names = max(len(row.name) for row in rows)
    for row in rows:
        line = Text(f" {row.name:<{names}}  ")
        for part, length in zip(PARTS, lengths(row, longest), strict=True):
            line.append(part.letter * length, style=part.color)
        console.print(line, soft_wrap=True)
    legend = Text(f" {'':<{names}}  ")
    for part in PARTS:
        legend.append(f"{part.letter} {part.name}  ", style=part.color)
    console.print(legend, soft_wrap=True)


def lengths(row: StrategyRow, longest: float) -> list[int]:
    """Characters of each part of a bar, of whose ends none is off by more than half a character."""
    ends, at = [0], 0.0
    for part in PARTS:
        at += part.seconds(row)
        ends.append(round(_WIDTH * at / longest))
    return [end - begin for begin, end in pairwise(ends)]


def draw(comparison: StrategyComparison, file: Path) -> None:
    """Writes a picture: stacked bars, and below them the usual iteration of each strategy as its first rank spent it,
    and its aggregator, with the exchanges that were in flight. Raises ImportError without matplotlib, OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows, traces = comparison.report.rows, comparison.traces
    lanes = _lanes(traces)
    bars, trace_lanes = 0.35 * len(rows) + 1.2, 0.3 * len(lanes) + 1.2
    figure = Figure(figsize=(10, bars + trace_lanes), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=(bars, trace_lanes))
    figure.suptitle(comparison.report.title, fontsize=9)
    _draw_bars(above, rows)
    _draw_lanes(below, lanes)
    patches = [Patch(color=part.color, label=part.name) for part in PARTS] + [
        Patch(color=_IN_FLIGHT, label="in flight")
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8)
    figure.savefig(file, dpi=150)


def _draw_bars(axes: Any, rows: Sequence[StrategyRow]) -> None:
    names = [row.name for row in rows]
    left = [0.0] * len(rows)
    for part in PARTS:
        widths = [1000 * part.seconds(row) for row in rows]
        axes.barh(names, widths, left=left, color=part.color, height=0.7)
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms an iteration (medians)")


class _Bar(NamedTuple):
    begin: float
    seconds: float
    color: str


def _lanes(traces: Mapping[str, list[Iteration]]) -> list[tuple[str, list[_Bar]]]:
    """What is drawn in each row, from the moment on when the rank's iteration began."""
    lanes = []
    for name, ranks in traces.items():
        origin = ranks[0].begin
        lanes.append((name, _spans(ranks[0], origin)))
        if any(layer != WHOLE for layer in ranks[0].ready):
            lanes.append(("exchanges in flight", _in_flight(ranks[0], origin)))
        lanes += [("aggregator", _spans(rank, origin)) for rank in ranks if not rank.ready]
    return lanes


def _spans(iteration: Iteration, origin: float) -> list[_Bar]:
    return [_Bar(span.begin - origin, span.seconds, _COLORS[span.phase]) for span in iteration.spans]


def _in_flight(iteration: Iteration, origin: float) -> list[_Bar]:
    """From when a layer was ready to when the rank had waited for it."""
    ends = {span.layer: span.end for span in iteration.spans if span.phase is Phase.EXCHANGE}
    return [_Bar(at - origin, ends[layer] - at, _IN_FLIGHT) for layer, at in iteration.ready.items()]


def _draw_lanes(axes: Any, lanes: Sequence[tuple[str, list[_Bar]]]) -> None:
    for row, (_, bars) in enumerate(lanes):
        layers = len(bars) if all(bar.color == _IN_FLIGHT for bar in bars) else 1
        for index, bar in enumerate(bars):
            # Exchanges overlap, so each has a strip of its own.
            top = row - 0.4 + (0.8 * index / layers if layers > 1 else 0)
            axes.broken_barh([(1000 * bar.begin, 1000 * bar.seconds)], (top, 0.8 / layers), facecolors=bar.color)
    axes.set_yticks(range(len(lanes)), [name for name, _ in lanes])
    axes.invert_yaxis()
    axes.set_xlabel("ms of the usual iteration, rank 0")
