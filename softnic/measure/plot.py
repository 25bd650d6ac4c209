"""Charts drawn side by side into one PNG or SVG by matplotlib, which is imported only to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH_IN, HEIGHT_IN = 6.4, 4.2
"""Size of one chart."""
DPI = 120
_MARKERS = "osD^v*Px"
_STYLES = ("-", "--", "-.", ":")
_ALIKE = 0.8
"""Bars of which the least has this part of the greatest, or more, are drawn from just below the least."""
_MANY, _LONG = 5, 14
"""Bars of more groups than this, with names longer than this, lie."""
_COLOURS = 10
"""Number of matplotlib's default colours; further curves get the next style."""


@dataclass(frozen=True)
class Bars:
    """Groups of bars with one bar for each series, side by side or stacked."""

    title: str
    unit: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    stacked: bool = False


@dataclass(frozen=True)
class Lines:
    """Lines over common abscissae, from zero."""

    title: str
    across: str
    unit: str
    at: Sequence[float]
    series: Mapping[str, Sequence[float | None]]
    dashed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Curves:
    """Curves with abscissae of their own: by name, x and y of each point."""

    title: str
    across: str
    unit: str
    curves: Mapping[str, Sequence[tuple[float, float]]]
    log: bool = False
    """Whether the abscissae are on a logarithmic scale."""
    limits: tuple[float | None, float | None] = (None, None)
    """The least and the greatest ordinate that are drawn; the axis says so. None: all."""


Chart = Bars | Lines | Curves


def draw(title: str, charts: Sequence[Chart], path: Path, *, common_legend: bool = False) -> None:
    """Draw charts into a PNG, or an SVG if the path ends in .svg, at most three per row.

    An SVG has text as text and no date: the same charts give the same file with the same version of matplotlib.
    `common_legend` draws one legend beside charts of the same series instead of one in each. Raises ImportError without
    matplotlib, OSError.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(len(charts), 3)
    rows = math.ceil(len(charts) / columns)
    figure = Figure(figsize=(WIDTH_IN * columns, HEIGHT_IN * rows + 0.3), dpi=DPI, layout="constrained")
    figure.suptitle(title)
    for index, chart in enumerate(charts):
        axes = figure.add_subplot(rows, columns, index + 1)
        axes.set_title(chart.title, fontsize="medium")
        axes.set_ylabel(_unit(chart))
        if isinstance(chart, Bars):
            _bars(axes, chart)
        elif isinstance(chart, Lines):
            _lines(axes, chart)
        else:
            _curves(axes, chart)
        if not common_legend:
            axes.legend(fontsize="x-small")
        axes.grid(visible=True, axis="y", alpha=0.3)
    if common_legend:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    if path.suffix == ".svg":
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "softnic"}):
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    else:
        figure.savefig(path, format="png")


def _unit(chart: Chart) -> str:
    """Return the label of the ordinates, with what is not drawn."""
    if isinstance(chart, Bars):
        first = _first(chart)
        return chart.unit if first == 0 else f"{chart.unit} (axis from {first:g})".strip()
    if isinstance(chart, Curves):
        low, high = chart.limits
        beyond = [f"{side} {limit:.3g}" for side, limit in (("below", low), ("above", high)) if limit is not None]
        return f"{chart.unit} ({' and '.join(beyond)}: not drawn)" if beyond else chart.unit
    return chart.unit


def _first(chart: Bars) -> float:
    """Return where the axis of bars begins: at 0, or just below bars that would otherwise look all alike."""
    values = [value for values in chart.series.values() for value in values if value is not None]
    low, high = min(values, default=0.0), max(values, default=0.0)
    if chart.stacked or low < _ALIKE * high or low == high:
        return 0.0
    step = 10.0 ** math.floor(math.log10(high - low))
    return round(math.floor(low / step - 1) * step, 12)


def _bars(axes: Any, chart: Bars) -> None:
    if len(chart.groups) > _MANY and max(map(len, chart.groups)) > _LONG and not chart.stacked:
        _lying_bars(axes, chart)
        return
    positions = range(len(chart.groups))
    if chart.stacked:
        floor = [0.0] * len(chart.groups)
        for name, values in chart.series.items():
            heights = [value or 0.0 for value in values]
            axes.bar(positions, heights, 0.6, bottom=floor, label=name)
            floor = [below + height for below, height in zip(floor, heights, strict=True)]
    else:
        width = 0.8 / len(chart.series)
        for index, (name, values) in enumerate(chart.series.items()):
            shift = (index - (len(chart.series) - 1) / 2) * width
            heights = [value or 0.0 for value in values]
            axes.bar([position + shift for position in positions], heights, width, label=name)
    if low := _first(chart):
        axes.set_ylim(
            low, low + 1.2 * (max(value or 0.0 for values in chart.series.values() for value in values) - low)
        )
    rotated = any(len(group) > 8 for group in chart.groups) and len(chart.groups) > 3
    axes.set_xticks(positions, chart.groups, rotation=30 if rotated else 0, ha="right" if rotated else "center")


def _lying_bars(axes: Any, chart: Bars) -> None:
    """Draw bars from left to right, the first group on top, for many groups with long names."""
    height = 0.8 / len(chart.series)
    for index, (name, values) in enumerate(chart.series.items()):
        shift = (index - (len(chart.series) - 1) / 2) * height
        widths = [value or 0.0 for value in values]
        axes.barh([position + shift for position in range(len(widths))], widths, height, label=name)
    axes.set_yticks(range(len(chart.groups)), chart.groups, fontsize="small")
    axes.invert_yaxis()
    axes.set_xlabel(chart.unit)
    axes.set_ylabel("")
    axes.set_xlim(left=_first(chart))
    axes.grid(visible=True, axis="x", alpha=0.3)


def _lines(axes: Any, chart: Lines) -> None:
    axes.set_xlabel(chart.across)
    for index, (name, values) in enumerate(chart.series.items()):
        points = [(at, value) for at, value in zip(chart.at, values, strict=True) if value is not None]
        _draw_points(axes, name, points, "--" if name in chart.dashed else "-", index)
    axes.set_ylim(bottom=0)


def _curves(axes: Any, chart: Curves) -> None:
    axes.set_xlabel(chart.across)
    for index, (name, points) in enumerate(chart.curves.items()):
        _draw_points(axes, name, points, _STYLES[index // _COLOURS % len(_STYLES)], index // _COLOURS)
    if chart.log:
        axes.set_xscale("log")
    low, high = chart.limits
    axes.set_ylim(bottom=low, top=high)


def _draw_points(axes: Any, name: str, points: Sequence[tuple[float, float]], style: str, marker: int) -> None:
    x, y = [x for x, _ in points], [y for _, y in points]
    axes.plot(x, y, style, marker=_MARKERS[marker % len(_MARKERS)], markersize=4, label=name)
