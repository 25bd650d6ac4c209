"""Charts of where an iteration's time went: bars of characters for a terminal, and a picture by matplotlib."""

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


class TimelinePart(NamedTuple):
    """TimelinePart of a bar."""

    name: str
    seconds: Callable[[StrategyRow], float]
    letter: str
    """Character in a terminal, which identifies the part without colours."""
    color: str
    """Name for matplotlib and rich."""


PARTS = (
    TimelinePart("forward", lambda row: row.forward_s, "f", "#4477aa"),
    TimelinePart("backward", lambda row: row.backward_s, "b", "#66ccee"),
    TimelinePart("exposed exchange", lambda row: row.exchange_s, "x", "#ee6677"),
    TimelinePart("sum", lambda row: row.sum_s, "s", "#aa3377"),
    TimelinePart("update", lambda row: row.update_s, "u", "#228833"),
    TimelinePart("skew", lambda row: row.skew_s, ".", "#bbbbbb"),
)
_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.EXCHANGE, Phase.SUM, Phase.UPDATE)
_COLORS = {Phase.POST: "black", **{phase: part.color for phase, part in zip(_PHASES, PARTS, strict=False)}}
_IN_FLIGHT = "#ccbb44"


def show(rows: Sequence[StrategyRow], console: Console | None = None) -> None:
    """Print one bar per strategy, all on one scale."""
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
    """Return the characters of each part of a bar. The end of each part is exact to half a character."""
    ends, at = [0], 0.0
    for part in PARTS:
        at += part.seconds(row)
        ends.append(round(_WIDTH * at / longest))
    return [end - begin for begin, end in pairwise(ends)]


def draw(comparison: StrategyComparison, file: Path) -> None:
    """Write a picture of stacked bars and of each strategy's median iteration.

    The iteration is drawn as its first rank and its aggregator spent it, with the exchanges in flight. Raises
    ImportError without matplotlib, OSError.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = comparison.report.rows
    lanes = _lanes(comparison.traces)
    bars_in, lanes_in = 0.35 * len(rows) + 1.2, 0.3 * len(lanes) + 1.2
    figure = Figure(figsize=(10, bars_in + lanes_in), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=(bars_in, lanes_in))
    figure.suptitle(comparison.report.title, fontsize=9)
    _draw_bars(above, rows)
    _draw_lanes(below, lanes)
    patches = [Patch(color=color, label=name) for name, color in legend().items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8)
    figure.savefig(file, dpi=150)


def legend() -> dict[str, str]:
    """Return the names of the picture's colours."""
    return {**{part.name: part.color for part in PARTS}, "posting": _COLORS[Phase.POST], "in flight": _IN_FLIGHT}


def _draw_bars(axes: Any, rows: Sequence[StrategyRow]) -> None:
    names = [row.name for row in rows]
    left = [0.0] * len(rows)
    for part in PARTS:
        widths = [1000 * part.seconds(row) for row in rows]
        axes.barh(names, widths, left=left, color=part.color, height=0.7)
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms per iteration (medians)")


class _Bar(NamedTuple):
    begin: float
    seconds: float
    color: str


def _lanes(traces: Mapping[str, list[Iteration]]) -> list[tuple[str, list[_Bar]]]:
    """Return the bars of each row, relative to the beginning of the rank's iteration."""
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
    """Return each layer's time from its being ready to the end of the rank's wait."""
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
    axes.set_xlabel("ms of the median iteration, rank 0")
