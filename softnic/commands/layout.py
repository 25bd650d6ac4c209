"""Tables and lines of text in the width of a terminal, for `softnic stat` and `softnic top`.

Nothing that is shown is cut: a table leaves out the columns of least priority, and a line continues in the next one.
Columns have a least width, so that they do not come and go as figures change.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.console import Console

Row = TypeVar("Row")
Line = tuple[str, str]
"""Text, and rich's name of its style."""
GAP = "  "
"""Between columns."""
_UNIT = re.compile(r"(?<=[0-9]) (?=(?:[KMGT]?B(?:/s)?|[kMGT]?bit/s|[nmu]?s)(?![^,;:)\s]))")
"""The space between a number and its unit, where no line is broken."""


@dataclass(frozen=True)
class ScreenColumn(Generic[Row]):
    """A column of a table that fits itself to the terminal."""

    priority: int
    """1 is left out last."""
    heading: str
    text: Callable[[Row], str]
    width: int
    """The least width."""
    left: bool = False
    """Align to the left, for words."""


@dataclass(frozen=True)
class FittedTable:
    """Lines of a table, and the headings of the columns that did not fit, the most important first."""

    lines: Sequence[str]
    left_out: Sequence[str]


def styled(table: FittedTable) -> list[Line]:
    """Return the lines of a table with the style of its heading."""
    return [(line, "bold reverse" if index == 0 else "") for index, line in enumerate(table.lines)]


def terminal_width(console: Console) -> int | None:
    """Return the columns of the terminal, or those of the variable COLUMNS. None, no limit, for a file or a pipe."""
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def fitted(columns: Sequence[ScreenColumn[Row]], rows: Iterable[Row], width: int | None) -> FittedTable:
    """Lay out a heading and rows in `width` characters; None: all columns.

    Columns are taken by their priority while they fit. A row without anything to show in them is left out.
    """
    texts = [[column.text(row) for column in columns] for row in rows]
    by_priority = sorted(range(len(columns)), key=lambda index: columns[index].priority)
    widths = [
        max(column.width, len(column.heading), *(len(text[index]) for text in texts), 0)
        for index, column in enumerate(columns)
    ]
    taken, used = 0, -len(GAP)
    for index in by_priority:
        used += widths[index] + len(GAP)
        if width is not None and used > width:
            break
        taken += 1
    shown = sorted(by_priority[:taken])

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cells[index].ljust(widths[index]) if columns[index].left else cells[index].rjust(widths[index])
            for index in shown
        )
        return GAP.join(aligned).rstrip()

    lines = [line([column.heading for column in columns]), *filter(None, map(line, texts))]
    return FittedTable(lines if shown else [], [columns[index].heading for index in by_priority[taken:]])


def pairs(figures: Iterable[tuple[str, str]], width: int | None) -> list[str]:
    """Lay out names and figures in two columns, or a figure below its name where both do not fit."""
    listed = list(figures)
    name_width = max((len(name) for name, _ in listed), default=0)
    figure_width = max((len(figure) for _, figure in listed), default=0)
    if width is None or name_width + len(GAP) + figure_width <= width:
        return [f"{name:{name_width}}{GAP}{figure:>{figure_width}}" for name, figure in listed]
    return [text for name, figure in listed for text in (name, f"{GAP}{figure}")]


def wrapped(text: str, width: int | None, indent: str = GAP) -> list[str]:
    """Break a line between words, and not between a number and its unit; a longer word has a line of its own."""
    if width is None or len(text) <= width:
        return [text]
    lines = textwrap.wrap(
        _UNIT.sub("\xa0", text),
        max(width, len(indent) + 1),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]


def whole_words(text: str, width: int) -> str:
    """Return the words of a line that fit in `width` characters, and a mark if those are not all."""
    if len(text) <= width:
        return text
    end = text.rfind(" ", 0, max(0, width - 1))
    kept = text[: max(0, end)].rstrip()
    return (f"{kept} …" if kept else "…")[:width]
