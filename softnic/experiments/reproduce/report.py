"""The documentation's tables and plots, generated from the results in docs/results: `softnic reproduce --report`.

A page has a region for each item that there is a result of, `<!-- results: inceptionn-fig15 -->`, and docs/papers.md
one for the table of claims. Plots are SVG files in docs/figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softnic.experiments.kept import ResultFile, checkout
from softnic.experiments.pages import rebuilt, table
from softnic.experiments.reproduce import stored
from softnic.experiments.reproduce.claim import Results
from softnic.experiments.reproduce.item import Item, ReproduceError
from softnic.experiments.reproduce.items import ITEMS
from softnic.experiments.reproduce.verdicts import PAPERS, claims_table
from softnic.experiments.svg import drawn

PAGE = "papers.md"


@dataclass(frozen=True)
class KeptItem:
    """An item as its file has it, with what made it."""

    item: Item
    made_by: str

    @property
    def name(self) -> str:
        return f"{self.item.paper}-{self.item.name}"


def kept_items(results: Path) -> list[KeptItem]:
    """Return the items that a directory has results of, in the order of the papers."""
    found = []
    for paper, names in ITEMS.items():
        for name in names:
            content = ResultFile(results / f"{paper}-{name}.json").content
            if "result" in content:
                found.append(KeptItem(stored.item(content["result"]), _made_by(content)))
    return found


def _made_by(content: Mapping[str, Any]) -> str:
    machine, asked = content["machine"], content["asked"]
    data = f"; data: {asked['data']['name']}" if "data" in asked else ""
    return f"softnic {content['softnic']}; {machine['cores']} cores of {machine['cpu']}{data}"


def documents(docs: Path) -> dict[Path, str]:
    """Return every page and plot that is generated from the results, with its content.

    Raises
    ------
    PageError
        The page has no region for a result, or a region without one.
    OSError
        A file cannot be read.
    """
    items = kept_items(docs / "results")
    results = Results({f"{each.item.paper} {each.item.name}": each.item for each in items})
    regions = {f"claims-{paper}": claims_table(paper, results) for paper in PAPERS}
    made = {}
    for each in items:
        plots = dict(_plots(each))
        made.update({docs / "figures" / name: content for name, content in plots.items()})
        regions[each.name] = markdown(each, list(plots))
    page = docs / PAGE
    return {page: rebuilt(page.read_text(encoding="utf-8"), regions), **made}


def _plots(kept: KeptItem) -> Iterator[tuple[str, str]]:
    for index, chart in enumerate(kept.item.charts, start=1):
        yield f"{kept.name}-{index}.svg", drawn(chart)


def markdown(kept: KeptItem, plots: list[str]) -> str:
    """Return an item as Markdown: tables, plots, what differs and what was found."""
    item = kept.item
    parts = [f"{item.title[0].upper()}{item.title[1:]}. Made by {kept.made_by}."]
    for each in item.tables:
        parts += [f"{each.title}:", table(each.headings, each.cells())]
    parts += [f"![{Path(plot).stem}](figures/{plot})" for plot in plots]
    for heading, lines in (("The set-up differs", item.differs), ("Against the paper", item.findings)):
        if lines:
            parts += [f"{heading}:", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts)


def write() -> list[Path]:
    """Write the pages and plots of the checkout. Returns the files that changed.

    Raises ReproduceError without a checkout, PageError, OSError.
    """
    root = checkout()
    if root is None:
        raise ReproduceError("--report rebuilds the documentation of a checkout of softnic; this is an installed one")
    changed = []
    for path, content in documents(root / "docs").items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")
            changed.append(path)
    return changed
