"""The documentation's tables and plots, generated from the results in docs/results: `softnic reproduce --report`.

A page has a region for each item that there is a result of, `<!-- results: inceptionn-fig15 -->`, and docs/papers.md
one for the table of claims. The region of an item without a result says so. Plots are SVG files in docs/figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softnic.experiments import pages
from softnic.experiments.compare import page as comparison
from softnic.experiments.kept import ResultFile, checkout
from softnic.experiments.pages import table
from softnic.experiments.plot import draw
from softnic.experiments.reproduce import stored
from softnic.experiments.reproduce.claim import Results
from softnic.experiments.reproduce.item import Item, ReproduceError
from softnic.experiments.reproduce.items import ITEMS
from softnic.experiments.reproduce.verdicts import PAPERS, claims_table

PAGE = "papers.md"


@dataclass(frozen=True)
class KeptItem:
    """An item as its file has it, with what made it."""

    item: Item
    made_by: str

    @property
    def name(self) -> str:
        return f"{self.item.paper}-{self.item.name}"

    @property
    def plot(self) -> str:
        """The plot's path below docs."""
        return f"figures/{self.name}.svg"


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


def page(docs: Path) -> str:
    """Return docs/papers.md as the results give it.

    Raises
    ------
    PageError
        The page has no region for a result, or a region of no item.
    OSError
        A file cannot be read.
    """
    items = kept_items(docs / "results")
    results = Results({f"{each.item.paper} {each.item.name}": each.item for each in items})
    regions = {f"claims-{paper}": claims_table(paper, results) for paper in PAPERS}
    regions |= {each.name: markdown(each) for each in items}
    given = (docs / PAGE).read_text(encoding="utf-8")
    open_items = {f"{paper}-{name}": f"{paper} {name}" for paper, names in ITEMS.items() for name in names}
    regions |= {
        name: f"No result is published here: `softnic reproduce {open_items[name]}` makes one."
        for name in pages.regions(given)
        if name in open_items and name not in regions
    }
    return pages.rebuilt(given, regions)


def draw_plots(docs: Path) -> list[Path]:
    """Draw the items that have charts. Returns the files. Raises ImportError without matplotlib, OSError."""
    plots = []
    for each in kept_items(docs / "results"):
        if each.item.charts:
            plots.append(docs / each.plot)
            plots[-1].parent.mkdir(exist_ok=True)
            draw(f"{each.item.paper} {each.item.name}: {each.item.title}", each.item.charts, plots[-1])
    return plots


def markdown(kept: KeptItem) -> str:
    """Return an item as Markdown: tables, plot, what differs and what was found."""
    item = kept.item
    parts = [f"{item.title[0].upper()}{item.title[1:]}. Made by {kept.made_by}."]
    for each in item.tables:
        parts += [f"{each.title}:", table(each.headings, each.cells())]
    if item.charts:
        parts.append(f"![{item.title}]({kept.plot})")
    for heading, lines in (("The set-up differs", item.differs), ("Against the paper", item.findings)):
        if lines:
            parts += [f"{heading}:", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts)


def write() -> list[Path]:
    """Write the pages and the plots of the checkout, docs/comparison.md included. Returns the files.

    Raises ReproduceError without a checkout, PageError, ImportError without matplotlib, OSError.
    """
    root = checkout()
    if root is None:
        raise ReproduceError("--report rebuilds the documentation of a checkout of softnic; this is an installed one")
    docs = root / "docs"
    (docs / PAGE).write_text(page(docs), encoding="utf-8")
    return [docs / PAGE, *draw_plots(docs), *comparison.rebuild(root)]
