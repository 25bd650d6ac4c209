"""What a paper claims, beside what was found here: a row of docs/papers.md's first tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from softnic.experiments.report import Value
from softnic.experiments.reproduce.item import Item, number

Verdict = Literal["confirmed", "in part", "not seen", "refuted", "open", "out of scope"]
"""In part: with other data, models or machines, or for some of the claim. Not seen: trainings as short as those here do
not show it, which refutes nothing for longer ones. Open: it runs, without a result so far."""


class NoResultError(Exception):
    """The results lack a figure that a claim is compared with."""


class Results:
    """Kept items by their names, `inceptionn fig15`."""

    def __init__(self, items: Mapping[str, Item]) -> None:
        self._items = items

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def values(self, name: str, column: str, table: str = "", **where: Value) -> Iterator[float]:
        """Yield a column's numbers, in the rows whose columns have the values of `where`. Raises NoResultError.

        Blanks and other characters of headings that names of Python lack are underscores in `where`.
        """
        if name not in self._items:
            raise NoResultError(name)
        for each in self._items[name].tables:
            if each.name == table:
                for row in each.records():
                    named = {"".join(c if c.isalnum() else "_" for c in key): value for key, value in row.items()}
                    if all(named[key] == value for key, value in where.items()) and row[column] is not None:
                        yield number(row[column])

    def records(self, name: str) -> list[dict[str, Value]]:
        """Return the rows of an item's first table, by heading. Raises NoResultError."""
        if name not in self._items:
            raise NoResultError(name)
        return self._items[name].tables[0].records()

    def finding(self, name: str) -> str:
        """Return an item's first finding, one sentence or two. Raises NoResultError."""
        if name not in self._items:
            raise NoResultError(name)
        return self._items[name].findings[0]

    def value(self, name: str, column: str, table: str = "", **where: Value) -> float:
        """Return the only number that `values` yields. Raises NoResultError."""
        found = list(self.values(name, column, table, **where))
        if len(found) != 1:
            raise NoResultError(f"{name}: {len(found)} figures of {column} where {where}")
        return found[0]


@dataclass(frozen=True)
class Claim:
    """One claim of a paper."""

    place: str
    """Table, figure or section of the paper."""
    claim: str
    theirs: str
    ours: str | Callable[[Results], str]
    """Words, or figures from the results."""
    verdict: Verdict | Callable[[Results], Verdict]
    """By itself, or as it follows from the results."""
    why: str
    link: str
    """Heading of docs/papers.md as an anchor, or another page."""

    def cells(self, results: Results) -> list[str]:
        """Return the claim as a row of a table. Without the result that it needs it is open."""
        ours, verdict = "", "open"
        try:
            ours = self.ours if isinstance(self.ours, str) else self.ours(results)
            verdict = self.verdict if isinstance(self.verdict, str) else self.verdict(results)
        except NoResultError:
            pass
        return [self.place, self.claim, self.theirs, ours, f"**{verdict}**", self.why, f"[more]({self.link})"]
