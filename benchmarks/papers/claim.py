"""What a paper claims, beside what was found here: a row of the first table of its page.

A paper's `claims.toml` has words, limits and verdicts, and its `evidence.py` finds the figures in the results.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import ge, gt, le, lt
from pathlib import Path
from string import Formatter
from types import ModuleType
from typing import Any, Literal

import msgspec

from benchmarks.papers.item import Item, change, number, span
from softnic.measure.report import Value

Verdict = Literal["confirmed", "in part", "not seen", "refuted", "open", "out of scope"]
"""In part: with other data, models or machines, for some of the claim, or beyond the paper's range. Not seen:
trainings as short as those here do not show it, which refutes nothing for longer ones. Open: it runs, without a result
so far."""


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


class Figures(tuple[float, ...]):
    """Figures of several cases, which words show by `{name:and .2f}`: how they are joined, and the format of each."""

    def __format__(self, form: str) -> str:
        how, _, each = form.partition(" ")
        return _JOINED[how](self, each)


_JOINED: Mapping[str, Callable[[Sequence[float], str], str]] = {
    "list": lambda figures, form: ", ".join(format(each, form) for each in figures),
    "and": lambda figures, form: " and ".join(format(each, form) for each in figures),
    "span": span,
    "change": lambda figures, digits: change(figures, int(digits or 1)),
    "min": lambda figures, form: format(min(figures), form),
    "max": lambda figures, form: format(max(figures), form),
}

Found = str | float | Figures | Mapping[str, Any]
"""What the results say of a claim: words, figures, or several of them by name."""
Evidence = Mapping[str, Callable[[Results], Found]]
"""Functions of a paper's `evidence.py` by name."""


class _Findings:
    """First findings by item, for `{finding[lgc fig4]}`."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def __getitem__(self, name: str) -> str:
        return self._results.finding(name)


class _Shown(dict[str, Any]):
    """What the names in a claim's words stand for, found when it is needed."""

    def __init__(self, evidence: Evidence, results: Results) -> None:
        super().__init__(finding=_Findings(results))
        self._evidence, self._results = evidence, results

    def __missing__(self, name: str) -> Found:
        return self._evidence[name](self._results)


_TESTS: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


@dataclass(frozen=True)
class Rule:
    """A verdict by the figures of several cases: models, networks, compressors. Tests are written `>= 75`."""

    of: str
    """What the figures are found by; infinite where a case has none."""
    every: str
    """Holds for all cases where the claim is confirmed."""
    some: str = ""
    """Holds for a case at least where it is seen in part; by default as `every`."""
    some_of: str = ""
    """What the figures for `some` are found by; by default the same."""
    pick: Literal["min", "max", ""] = ""
    """The one figure of `of` that decides."""
    confirmed: Verdict = "confirmed"
    """The verdict where `every` holds, which is less than this if the cases are not those of the claim."""
    otherwise: Verdict = "not seen"

    @property
    def names(self) -> set[str]:
        """What the rule needs of the evidence."""
        return {self.of, self.some_of or self.of}

    def judge(self, evidence: Evidence, results: Results) -> Verdict:
        """Return the verdict. Raises NoResultError without a case."""
        figures = list(_numbers(evidence[self.of](results)))
        if not figures:
            raise NoResultError(self.of)
        if self.pick:
            figures = [{"min": min, "max": max}[self.pick](figures)]
        if all(_holds(self.every, each) for each in figures):
            return self.confirmed
        if self.some_of:
            figures = list(_numbers(evidence[self.some_of](results)))
        return "in part" if any(_holds(self.some or self.every, each) for each in figures) else self.otherwise


def _holds(test: str, figure: float) -> bool:
    operator, limit = test.split()
    return _TESTS[operator](figure, float(limit))


def _numbers(found: Found) -> Iterator[float]:
    if isinstance(found, Mapping):
        for each in found.values():
            yield from _numbers(each)
    elif isinstance(found, Figures):
        yield from found
    else:
        yield float(found)


@dataclass(frozen=True)
class Claim:
    """One claim of a paper."""

    place: str
    """Table, figure or section of the paper."""
    claim: str
    theirs: str
    ours: str
    """Words, with what the evidence finds: `{ratios_at_10:span .1f} at 2^-10`."""
    verdict: Verdict | Rule
    """By itself, or as it follows from the results."""
    why: str
    link: str
    """Heading of the paper's page as an anchor, or another page below docs."""
    evidence: Evidence = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """What the claim needs of the evidence."""
        named = {name.partition("[")[0] for _, name, _, _ in Formatter().parse(self.ours) if name} - {"finding"}
        return named | (self.verdict.names if isinstance(self.verdict, Rule) else set())

    @property
    def is_measured(self) -> bool:
        """Whether the words have figures of the results."""
        return any(name for _, name, _, _ in Formatter().parse(self.ours))

    def cells(self, results: Results) -> list[str]:
        """Return the claim as a row of a table. Without the result that it needs it is open."""
        ours = ""
        with suppress(NoResultError):
            ours = self.words(results)
        more = self.link if self.link.startswith("#") else f"../{self.link}"
        return [self.place, self.claim, self.theirs, ours, f"**{self.judged(results)}**", self.why, f"[more]({more})"]

    def words(self, results: Results) -> str:
        """Return what was found here. Raises NoResultError."""
        return self.ours.format_map(_Shown(self.evidence, results))

    def judged(self, results: Results) -> Verdict:
        """Return the verdict that follows from the results."""
        try:
            self.words(results)
            return self.verdict.judge(self.evidence, results) if isinstance(self.verdict, Rule) else self.verdict
        except NoResultError:
            return "open"


def load(path: Path, module: ModuleType) -> list[Claim]:
    """Read a paper's claims. `module` has the functions that find what they name."""
    found = []
    for given in tomllib.loads(path.read_text(encoding="utf-8"))["claims"]:
        verdict: Verdict | Rule = msgspec.convert(given["verdict"], Verdict | Rule)
        claim = Claim(**{**given, "verdict": verdict})
        found.append(replace(claim, evidence={name: getattr(module, name) for name in claim.names}))
    return found
