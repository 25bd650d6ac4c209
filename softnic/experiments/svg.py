"""Charts as small SVG files, drawn without matplotlib: the same chart always gives the same bytes.

Text and lines have the colour of a medium grey, which is legible on light and dark pages. The legend is below the
chart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from softnic.experiments.plot import Bars, Chart, Lines

WIDTH, HEIGHT = 640, 300
"""Of the plotted area with its labels, without the legend."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 28, 48
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#9d755d")
_GREY = "#888"
_LETTER = 6.2
"""Mean width of a character of 11 pixels."""

Point = tuple[float, float]


def drawn(chart: Chart) -> str:
    """Return a chart as SVG.

    Bars are grouped or stacked; a bar or point without a value is left out. Lines start at zero, and Curves may have a
    logarithmic abscissa.
    """
    body, series = _bars(chart) if isinstance(chart, Bars) else _curves(chart)
    legend, rows = _legend(list(series))
    height = HEIGHT + 4 + 18 * rows
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="sans-serif" font-size="11" fill="{_GREY}">',
            _text(WIDTH / 2, 16, chart.title, "middle", "font-size='13'"),
            _text(12, (HEIGHT - _BOTTOM + _TOP) / 2, chart.unit, "middle", _turned(12, (HEIGHT - _BOTTOM + _TOP) / 2)),
            *body,
            *legend,
            "</svg>\n",
        ]
    )


def _bars(chart: Bars) -> tuple[list[str], Sequence[str]]:
    count = len(chart.groups)
    values = {name: [value or 0.0 for value in of] for name, of in chart.series.items()}
    sums = [sum(of[index] for of in values.values()) for index in range(count)]
    largest = max(sums if chart.stacked else [value for of in values.values() for value in of], default=0.0)
    smallest = min((value for of in values.values() for value in of), default=0.0)
    body, scale = _ordinate(min(0.0, smallest), largest)
    group = (WIDTH - _LEFT - _RIGHT) / max(1, count)
    width = 0.7 * group / (1 if chart.stacked else max(1, len(values)))
    floor = [0.0] * count
    for place, (name, of) in enumerate(values.items()):
        for index, value in enumerate(of):
            x = _LEFT + index * group + 0.15 * group + (0 if chart.stacked else place * width)
            top, low = scale(floor[index] + value), scale(floor[index])
            if value and chart.series[name][index] is not None:
                body.append(_box(x, min(top, low), width, abs(low - top), _COLOURS[place % len(_COLOURS)]))
            floor[index] += value if chart.stacked else 0
    fits = max((len(line) for name in chart.groups for line in name.split("\n")), default=0) * _LETTER < group
    for index, name in enumerate(chart.groups):
        x = _LEFT + (index + 0.5) * group
        if fits:
            body += [_text(x, HEIGHT - _BOTTOM + 14 + 13 * row, line) for row, line in enumerate(name.split("\n"))]
        else:
            y = HEIGHT - _BOTTOM + 12
            body.append(_text(x, y, name.replace("\n", " "), "end", f"font-size='9' {_turned(x, y, -30)}"))
    return body, list(values)


def _curves(chart: Chart) -> tuple[list[str], Sequence[str]]:
    assert not isinstance(chart, Bars)
    points, dashed, log = _points(chart), frozenset[str](), False
    if isinstance(chart, Lines):
        dashed = chart.dashed
    else:
        log = chart.log
    heights = [y for of in points.values() for _, y in of]
    smallest = min(heights, default=0.0)
    # Accuracies lie close together: curves start near their smallest value, Lines at zero.
    low = min(0.0, smallest) if isinstance(chart, Lines) or smallest < 0.4 * max(heights, default=1.0) else smallest
    body, y_of = _ordinate(low, max(heights, default=1.0))
    across, x_of = _abscissa([x for of in points.values() for x, _ in of], log=log)
    body += [*across, _text(WIDTH / 2, HEIGHT - 10, chart.across)]
    for place, (name, of) in enumerate(points.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        places = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in of)
        dash = ' stroke-dasharray="5 4"' if name in dashed or place >= len(_COLOURS) else ""
        body.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
        if len(of) <= 20:
            body += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="2.5" fill="{colour}"/>' for x, y in of]
    return body, list(points)


def _points(chart: Chart) -> Mapping[str, Sequence[Point]]:
    assert not isinstance(chart, Bars)
    if not isinstance(chart, Lines):
        return chart.curves
    return {
        name: [(x, y) for x, y in zip(chart.at, of, strict=True) if y is not None] for name, of in chart.series.items()
    }


class _Scale:
    """Pixels of the values of an axis."""

    def __init__(self, low: float, high: float, begin: float, end: float, *, log: bool = False) -> None:
        self._log = log
        self._low, self._high = self._of(low), self._of(high)
        self._begin, self._end = begin, end

    def _of(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def __call__(self, value: float) -> float:
        return self._begin + (self._of(value) - self._low) / (self._high - self._low or 1) * (self._end - self._begin)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round values from at most `low` to at least `high`, about `most` of them."""
    step = 10 ** math.floor(math.log10((high - low) / most or 1)) if high > low else 1.0
    step *= next(factor for factor in (1, 2, 2.5, 5, 10, 20) if (high - low) / (factor * step) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, max(last, first + 1) + 1)]


def _ordinate(low: float, high: float) -> tuple[list[str], _Scale]:
    marks = ticks(low, max(high, low))
    scale = _Scale(marks[0], marks[-1], HEIGHT - _BOTTOM, _TOP)
    body = []
    for mark in marks:
        y = scale(mark)
        body.append(f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" stroke="{_GREY}" stroke-opacity="0.3"/>')
        body.append(_text(_LEFT - 5, y + 4, f"{mark:.6g}", "end"))
    return body, scale


def _abscissa(values: Sequence[float], *, log: bool) -> tuple[list[str], _Scale]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    log = log and low > 0
    if log:
        marks = [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    else:
        low = 0.0 if 0 < low < 0.5 * high else low
        marks = [mark for mark in ticks(low, high, 8) if low <= mark <= high]
    scale = _Scale(low, high, _LEFT + 8, WIDTH - _RIGHT - 8, log=log)
    return [_text(scale(mark), HEIGHT - _BOTTOM + 15, f"{mark:.6g}") for mark in marks], scale


def _legend(names: Sequence[str]) -> tuple[list[str], int]:
    """Return the legend below the chart, and its number of rows."""
    body, x, row = [], float(_LEFT), 0
    for place, name in enumerate(names):
        width = 22 + len(name) * _LETTER
        if x + width > WIDTH and x > _LEFT:
            x, row = float(_LEFT), row + 1
        y = HEIGHT + 6 + 18 * row
        body += [_box(x, y, 10, 10, _COLOURS[place % len(_COLOURS)]), _text(x + 14, y + 9, name, "start")]
        x += width + 8
    return body, row + 1


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'.replace(" >", ">")


def _turned(x: float, y: float, degrees: int = -90) -> str:
    return f"transform='rotate({degrees} {x:.1f} {y:.1f})'"
