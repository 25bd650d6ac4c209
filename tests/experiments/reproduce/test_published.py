"""docs/papers.md is what the results give, and the virtual times in them are those of the code."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.facades.kept import ResultFile, plain, regions
from tests.facades.reproduce import (
    ITEMS,
    PAPERS,
    Results,
    add_gamma,
    fig15,
    paper,
    perceptron,
    report,
    smartnic_fig4b,
    smartnic_paper,
)

PAGE_PATH = Path(__file__).resolve().parents[3] / "docs" / "papers.md"
PAGE = PAGE_PATH.read_text()
WORKERS = (4, 8, 16, 32)


def test_the_page_is_what_the_results_give() -> None:
    assert report.page(PAGE_PATH.parent) == PAGE, "run `softnic reproduce --report`"


def test_plots_of_results_are_drawn_and_the_page_shows_them(tmp_path: Path) -> None:
    results = PAGE_PATH.parent / "results"
    shutil.copytree(results, tmp_path / "results", ignore=lambda _path, names: names[3:])
    drawn = report.draw_plots(tmp_path)
    assert drawn
    for path in drawn:
        root = ElementTree.fromstring(path.read_bytes())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert path.stat().st_size < 100_000
    shown = set(re.findall(r"\]\(figures/([\w-]+\.svg)\)", PAGE))
    assert shown == {path.name for path in (PAGE_PATH.parent / "figures").iterdir()}
    with_charts = {each.plot for each in report.kept_items(results) if each.item.charts}
    assert with_charts == {f"figures/{name}" for name in shown}


def test_every_result_is_on_the_page() -> None:
    kept = {path.stem for path in (PAGE_PATH.parent / "results").glob("*-*.json")}
    names = {f"{paper_name}-{item}" for paper_name, items in ITEMS.items() for item in items}
    assert kept & names <= set(regions(PAGE)) & names
    assert {each.name for each in report.kept_items(PAGE_PATH.parent / "results")} == kept & names


def test_a_result_that_changes_changes_the_page(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(PAGE_PATH.parent, docs)
    stored = docs / "results" / "inceptionn-fig15.json"
    content = json.loads(stored.read_text())
    content["result"]["tables"][0]["rows"][0][1] = 123.456
    stored.write_text(json.dumps(content))
    made = report.page(docs)
    assert "| 4 | 123.4560 |" in made
    assert "| 4 | 123.4560 |" not in PAGE


def test_a_region_without_a_result_says_so(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(PAGE_PATH.parent, docs)
    (docs / "results" / "inceptionn-fig15.json").unlink()
    assert "`softnic reproduce inceptionn fig15` makes one." in report.page(docs)


def test_claims_whose_result_is_missing_are_open() -> None:
    for claims in PAPERS.values():
        for claim in claims:
            place, *_, ours, verdict, _, _ = claim.cells(Results({}))
            assert place
            assert verdict == ("**open**" if callable(claim.ours) else f"**{claim.verdict}**")
            assert bool(ours) != callable(claim.ours)


@pytest.mark.slow
def test_exchange_time_with_more_workers() -> None:
    """INCEPTIONN's Fig. 15, of HDC."""
    words = round(paper.MODEL_MB["hdc"] * 2**20 / 4)
    words = min(words, fig15.SAMPLE_WORDS) // 512 * 512
    kept = ResultFile(PAGE_PATH.parent / "results" / "inceptionn-fig15.json")
    settings = {"words": words, "rate": 10e9, "gamma": add_gamma("hdc")}
    for kind in (fig15.WA, fig15.INC, fig15.NIC):
        for workers in WORKERS:
            seconds = plain(fig15.virtual(kind, workers, words, 10e9, add_gamma("hdc")))
            assert kept.find(f"HDC, {kind}, {workers} workers", settings, float) == seconds


@pytest.mark.slow
def test_errors_of_the_smart_nics_formulas() -> None:
    """The model of Fig. 4b beside virtual time."""
    kept = ResultFile(PAGE_PATH.parent / "results" / "smartnic-fig4b.json")

    def error(batch: int, variant: str, nodes: int) -> float:
        strategy = smartnic_fig4b.VARIANTS[variant]
        seconds = perceptron.simulated(nodes, batch, smartnic_fig4b.CODECS[strategy])
        settings = {"scale": perceptron.SCALE}
        assert kept.find(f"{variant}, {nodes} nodes, batch {batch}", settings, float) == plain(seconds)
        return abs(perceptron.predicted(strategy, nodes, batch) / seconds - 1)

    errors = {
        (batch, variant): max(error(batch, variant, nodes) for nodes in smartnic_fig4b.SIMULATED)
        for batch in smartnic_paper.FIG_4_BATCHES
        for variant, strategy in smartnic_fig4b.VARIANTS.items()
        if strategy in smartnic_fig4b.CODECS
    }
    assert max(errors, key=lambda which: errors[which]) == (448, "NIC")
    text = f"The formulas are off by {max(errors.values()):.1%} at most from virtual time"
    assert text.replace("%", " %") in PAGE
