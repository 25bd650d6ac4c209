"""Charts of an item as one PNG, by matplotlib, which is imported here only when it is to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH_IN, HEIGHT_IN = 6.4, 4.2
"""Of one chart."""
DOTS_AN_INCH = 120
_MARKERS = "osD^v*Px"


@dataclass(frozen=True)
class Bars:
    """Groups of bars, one of each series beside the others or, stacked, on top of them."""

    title: str
    unit: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    stacked: bool = False


@dataclass(frozen=True)
class Lines:
    title: str
    across: str
    unit: str
    at: Sequence[float]
    series: Mapping[str, Sequence[float | None]]
    dashed: frozenset[str] = frozenset()


def draw(title: str, charts: Sequence[Bars | Lines], path: Path) -> None:
    """Draws the charts side by side into a PNG. Raises ImportError, OSError."""
    from matplotlib.figure import Figure

    columns = min(len(charts), 3)
    rows = math.ceil(len(charts) / columns)
    figure = Figure(figsize=(WIDTH_IN * columns, HEIGHT_IN * rows + 0.3), dpi=DOTS_AN_INCH, layout="constrained")
    figure.suptitle(title)
    for index, chart in enumerate(charts):
        axes = figure.add_subplot(rows, columns, index + 1)
        axes.set_title(chart.title, fontsize="medium")
        axes.set_ylabel(chart.unit)
        if isinstance(chart, Bars):
            _bars(axes, chart)
        else:
            _lines(axes, chart)
        axes.legend(fontsize="x-small")
        axes.grid(visible=True, axis="y", alpha=0.3)
    figure.savefig(path, format="png")


def _bars(axes: Any, chart: Bars) -> None:
    places = range(len(chart.groups))
    if chart.stacked:
        floor = [0.0] * len(chart.groups)
        for name, values in chart.series.items():
            heights = [value or 0.0 for value in values]
            axes.bar(places, heights, 0.6, bottom=floor, label=name)
            floor = [below + height for below, height in zip(floor, heights, strict=True)]
    else:
        width = 0.8 / len(chart.series)
        for index, (name, values) in enumerate(chart.series.items()):
            shift = (index - (len(chart.series) - 1) / 2) * width
            axes.bar([place + shift for place in places], [value or 0.0 for value in values], width, label=name)
    turned = any(len(group) > 8 for group in chart.groups) and len(chart.groups) > 3
    axes.set_xticks(places, chart.groups, rotation=30 if turned else 0, ha="right" if turned else "center")


def _lines(axes: Any, chart: Lines) -> None:
    axes.set_xlabel(chart.across)
    for index, (name, values) in enumerate(chart.series.items()):
        known = [(at, value) for at, value in zip(chart.at, values, strict=True) if value is not None]
        style = "--" if name in chart.dashed else "-"
        marker = _MARKERS[index % len(_MARKERS)]
        axes.plot(
            [at for at, _ in known], [value for _, value in known], style, marker=marker, markersize=4, label=name
        )
    axes.set_ylim(bottom=0)
