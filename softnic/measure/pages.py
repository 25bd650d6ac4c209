"""Regions of Markdown pages that are generated from results: between `<!-- results: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_REGION = re.compile(r"(<!-- results: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class PageError(Exception):
    """A page names a region that nothing generates, or lacks one that is generated."""


def regions(page: str) -> list[str]:
    """Return the names of a page's regions, in their order."""
    return [found[1] for found in _REGION.findall(page)]


def rebuilt(page: str, made: Mapping[str, str]) -> str:
    """Return a page with its regions replaced. Raises PageError unless `made` has exactly the page's regions."""
    names = regions(page)
    unknown, missing = sorted(set(names) - set(made)), sorted(set(made) - set(names))
    if unknown or missing:
        wrong = [f"no results for {name}" for name in unknown] + [f"no region {name} in the page" for name in missing]
        raise PageError("; ".join(wrong))
    return _REGION.sub(lambda found: f"{found[1]}\n{made[found[2]].strip()}\n\n{found[4]}", page)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
