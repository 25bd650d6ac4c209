"""Progress of measurements: what is being measured, and each row as soon as it is.

A measurement gets a function and calls it with text (`Progress` in report.py). Text that is `Measured` is kept on the
screen; other text says what is done now. So a run that is ended early, or that takes long, has shown what it found.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from softnic.measure.report import Column, Progress

Row = TypeVar("Row")
PERIOD_S = 10.0
"""Where there is no terminal, what is being measured is printed this often at most."""


class Measured(str):
    """A row or a figure that is done."""

    __slots__ = ()


def row_text(columns: Sequence[Column[Row]], row: Row) -> str:
    """Return a row in one line: its words, then each figure behind its heading. Empty cells are left out."""
    cells = [(column, text) for column in columns if (text := " ".join(column.text(row).split()))]
    return ", ".join(
        text if column.left or not column.heading else f"{column.heading} {text}" for column, text in cells
    )


def as_measured(rows: Iterable[Row], columns: Sequence[Column[Row]], progress: Progress) -> list[Row]:
    """Return the rows of a measurement, and report each as soon as it is there."""
    found = []
    for row in rows:
        progress(Measured(row_text(columns, row)))
        found.append(row)
    return found


def inside(progress: Progress, case: str) -> Progress:
    """Return a Progress for a part of a measurement: each text begins with its name."""

    def told(what: str) -> None:
        progress(type(what)(f"{case}: {what}"))

    return told


@contextmanager
def shown(console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """Yield a Progress that writes to a console (standard error), each row in a line of its own at once."""
    console = console or Console(file=sys.stderr, markup=False)
    printed = clock()
    with console.status("starting") as status:

        def told(what: str) -> None:
            nonlocal printed
            if isinstance(what, Measured):
                text: str = what
            else:
                text = f"measuring {what}"
                status.update(Text(text))  # as it is: a string would be markup
                if console.is_terminal or clock() < printed + PERIOD_S:
                    return
            console.print(text, highlight=False, soft_wrap=True)
            printed = clock()

        yield told
