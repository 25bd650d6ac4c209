"""Charts as SVG: well-formed, complete, the same each time, and within their frame."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from tests.facades.kept import Chart, Curves, drawn, ticks
from tests.facades.reproduce import Bars, Lines

BARS = Bars("bars & <more>", "s", ["AlexNet\npaper", "HDC"], {"here": [1.0, None], "paper": [2.0, 3.0]})
STACKED = Bars("stacked", "s", ["a long name of a group"] * 9, {"one": [1.0] * 9, "two": [2.0] * 9}, stacked=True)
LINES = Lines("lines", "nodes", "times", [1, 2, 32], {"here": [1, None, 20], "ideal": [1, 2, 32]}, frozenset({"ideal"}))
CURVES = Curves(
    "curves", "s", "accuracy", {f"m{n}": [(0.1, 0.9), (100.0, 0.95 + n / 1000)] for n in range(10)}, log=True
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("chart", [BARS, STACKED, LINES, CURVES], ids=lambda chart: chart.title)
def test_charts_are_well_formed_and_name_everything(chart: Chart) -> None:
    text = drawn(chart)
    assert drawn(chart) == text
    root = ElementTree.fromstring(text)
    words = [each.text for each in root.iter(f"{SVG}text")]
    names = list(chart.curves if isinstance(chart, Curves) else chart.series)
    for name in (chart.title, chart.unit, *names):
        assert name in words
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for box in root.iter(f"{SVG}rect"):
        x, y, wide, high = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + wide <= width
        assert y + high <= height


def test_values_that_are_missing_have_no_bar_and_no_point() -> None:
    legend = 2
    assert drawn(BARS).count("<rect") == legend + 3
    assert len(re.findall("<circle", drawn(LINES))) == 2 + 3


def test_stacked_bars_stand_on_each_other() -> None:
    boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', drawn(STACKED))
    columns: dict[str, list[tuple[float, float]]] = {}
    for x, y, height in boxes[:18]:
        columns.setdefault(x, []).append((float(y), float(height)))
    assert len(columns) == 9
    for [(low, _), (high, height)] in columns.values():
        assert high + height == pytest.approx(low, abs=0.2)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0), (0.9, 0.98), (-3, 17), (0, 8.1), (0, 1e-5), (5, 5)])
def test_ticks_are_round_and_enclose_the_values(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert marks[0] <= low + 1e-12
    assert marks[-1] >= high - 1e-12
    assert 2 <= len(marks) <= 9
    steps = [after - before for before, after in pairwise(marks)]
    assert steps == pytest.approx([steps[0]] * len(steps))
