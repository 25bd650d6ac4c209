"""Elements of an HTML page, and charts made of them, escaped by xml.etree.

Charts are SVG without text, stretched to the width of the page; their labels are HTML beside them, so that these keep
their size on a phone. Colors are classes of page.css, which has those of light and dark mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from softnic.capture.capture_file import Column

Child = Element | str | None


def el(name: str, /, *children: Child, **attributes: object) -> Element:
    """Return an element. `class_` is the attribute class, `aria_label` aria-label; None leaves an attribute out."""
    given = {key.rstrip("_").replace("_", "-"): str(value) for key, value in attributes.items() if value is not None}
    element = Element(name, given)
    for child in children:
        if isinstance(child, str):
            if len(element):
                element[-1].tail = (element[-1].tail or "") + child
            else:
                element.text = (element.text or "") + child
        elif child is not None:
            element.append(child)
    return element


def to_html(element: Element) -> str:
    text: str = ElementTree.tostring(element, encoding="unicode", method="html")
    return text


def table(label: str, columns: Sequence[str], rows: Iterable[Element], left: Iterable[str] = ()) -> Element:
    """Return a table that scrolls by itself, also by keyboard. Columns named in `left` have text, others numbers."""
    left = set(left)
    kinds = ["text" if column in left else None for column in columns]
    head = [el("th", column, scope="col", class_=kind) for column, kind in zip(columns, kinds, strict=True)]
    body = list(rows)
    for row in body:
        for cell, kind in zip(row, kinds, strict=True):
            if kind and "class" not in cell.attrib:
                cell.set("class", kind)
    inner = el("table", el("thead", el("tr", *head)), el("tbody", *body))
    return el("div", inner, class_="scroll", role="region", aria_label=label, tabindex=0)


def table_row(*cells: Child, **attributes: object) -> Element:
    return el("tr", *(el("td", cell) for cell in cells), **attributes)


def chart(label: str, drawing: Iterable[Element], width: float, top: str, ends: tuple[str, str]) -> Element:
    """Return a chart with its axes' labels; `drawing` is within `width` times 100 units, 0 at the top."""
    svg = el("svg", *drawing, viewBox=f"0 0 {width} 100", preserveAspectRatio="none", role="img", aria_label=label)
    axis = el("div", el("span", top), el("span", "0"), class_="axis")
    return el("div", axis, svg, el("div", el("span", ends[0]), el("span", ends[1]), class_="ends"), class_="chart")


def steps(values: Column, top: float, kind: str, *, filled: bool = False) -> Element:
    """Return a line of steps, one for each value; NaN leaves a gap."""
    parts: list[str] = []
    before = False
    for at, value in enumerate((100 - 100 * np.minimum(values / (top or 1), 1)).tolist()):
        if np.isnan(value):
            before = False
            continue
        parts.append(f"{'V' if before else f'M{at} '}{value:.2f}H{at + 1}")
        before = True
    path = "".join(parts)
    if filled and path:
        path = f"M0 100V{path[1:].partition(' ')[2]}V100Z"
    return el("path", d=path, class_=kind)


def stacked(rows: Column, kinds: Sequence[str]) -> list[Element]:
    """Return a bar of shares for every column of `rows`, which stacks them from the bottom."""
    totals = rows.sum(axis=0)
    edges = 100 * np.cumsum(np.vstack([np.zeros_like(totals), rows]), axis=0) / np.maximum(totals, 1)
    return [
        el("rect", x=at, y=f"{100 - high:.2f}", width=1, height=f"{high - low:.2f}", class_=kind)
        for kind, lows, highs in zip(kinds, edges[:-1], edges[1:], strict=True)
        for at, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True))
        if high > low
    ]


def columns(values: Column, kind: str) -> list[Element]:
    """Return the columns of a histogram; the highest is 100 high."""
    heights = 100 * values / max(1, int(values.max(initial=0)))
    return [
        el(
            "rect",
            el("title", f"{count:,}"),
            x=at + 0.05,
            y=f"{100 - h:.2f}",
            width=0.9,
            height=f"{h:.2f}",
            class_=kind,
        )
        for at, (count, h) in enumerate(zip(values.tolist(), heights.tolist(), strict=True))
        if count
    ]


def share_bar(values: Sequence[int], kinds: Sequence[str], label: str) -> Element | None:
    """Return a small bar of shares; None without values."""
    total = sum(values)
    if not total:
        return None
    parts = [
        el("span", class_=kind, style=f"width:{100 * value / total:.2f}%")
        for value, kind in zip(values, kinds, strict=True)
        if value
    ]
    return el("span", *parts, class_="bar", role="img", aria_label=label, title=label)


def legend(names: Sequence[str], kinds: Sequence[str]) -> Element:
    pairs = zip(names, kinds, strict=True)
    return el("ul", *(el("li", el("span", class_=f"key {kind}"), name) for name, kind in pairs), class_="legend")
