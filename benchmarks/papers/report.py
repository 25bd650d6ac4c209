"""The documentation's tables and plots, generated from the results in docs/results: `softnic reproduce --report`.

Each paper has a page, docs/papers/inceptionn.md, with a region for each item that there is a result of, `<!-- results:
inceptionn-fig15 -->`, and one for the table of claims; docs/papers.md has the verdicts of all. The region of an item
without a result says so. Plots are SVG files in docs/figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.papers import stored
from benchmarks.papers.claim import Results
from benchmarks.papers.item import Item
from benchmarks.papers.items import ITEMS
from benchmarks.papers.verdicts import claims_table, summary
from softnic.experiments.compare import page as comparison
from softnic.measure import pages
from softnic.measure.kept import ResultFile
from softnic.measure.pages import table
from softnic.measure.plot import draw

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


def page_of(paper: str) -> str:
    """Return the path of a paper's page below docs."""
    return f"papers/{paper}.md"


def written(docs: Path) -> dict[str, str]:
    """Return the pages as the results give them, by their paths below docs: PAGE, and one for each paper.

    Raises
    ------
    PageError
        A page has no region for a result, or a region of no item.
    OSError
        A file cannot be read.
    """
    items = kept_items(docs / "results")
    results = Results({f"{each.item.paper} {each.item.name}": each.item for each in items})
    regions = {PAGE: {"verdicts": summary(results)}}
    for paper, names in ITEMS.items():
        own = {f"claims-{paper}": claims_table(paper, results)}
        own |= {each.name: markdown(each) for each in items if each.item.paper == paper}
        given = pages.regions((docs / page_of(paper)).read_text(encoding="utf-8"))
        open_items = {f"{paper}-{name}": name for name in names if f"{paper}-{name}" not in own}
        own |= {
            region: f"No result is published here: `softnic reproduce {paper} {name}` makes one."
            for region, name in open_items.items()
            if region in given
        }
        regions[page_of(paper)] = own
    return {name: pages.rebuilt((docs / name).read_text(encoding="utf-8"), made) for name, made in regions.items()}


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
        parts.append(f"![{item.title}](../{kept.plot})")
    for heading, lines in (("The set-up differs", item.differs), ("Against the paper", item.findings)):
        if lines:
            parts += [f"{heading}:", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts)


def write() -> list[Path]:
    """Write the pages and the plots of the checkout, docs/comparison.md included. Returns the files.

    Raises PageError, ImportError without matplotlib, OSError.
    """
    root = Path(__file__).resolve().parents[2]
    docs = root / "docs"
    made = written(docs)
    for name, text in made.items():
        (docs / name).write_text(text, encoding="utf-8")
    return [*(docs / name for name in made), *draw_plots(docs), *comparison.rebuild(root)]
