"""The documentation site: mkdocs builds it without a warning, its links lead somewhere, and it needs no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from softnic.commands import COMMANDS
from softnicd.config import EMULATION, Config
from tests import needs

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "docs" / "site"


class Page(HTMLParser):
    """Links, anchors and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag in {"img", "script"} and "src" in given:
            self.loaded.add(given["src"])
        if tag == "link" and given.get("rel") in {"stylesheet", "icon", "preconnect"} and "href" in given:
            self.loaded.add(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built from this checkout."""
    for name in ("mkdocs", "material", "mkdocstrings"):
        needs.module(name)
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", SITE / "mkdocs.yml", "-d", out],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_key_of_the_configuration_is_described() -> None:
    import configuration_page

    page = configuration_page.page()
    rows = re.findall(r"^\| `\[?(\w+)\]?` \|(.*)\|$", page, re.MULTILINE)
    assert {name for name, _ in rows} == {*Config.__struct_fields__, *EMULATION}
    assert [name for name, cells in rows if not cells.split("|")[-1].strip()] == []


def test_the_reference_of_mpi_has_all_collectives_with_their_forms() -> None:
    import python_pages

    page = python_pages.page("softnic.MPI", "")
    headings = set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    calls = {"Allreduce", "Reduce", "Reduce_scatter", "Allgather", "Allgatherv", "Alltoall", "Bcast", "Scan", "Gather"}
    assert headings >= {"Barrier", *calls, *(f"{name}_comp" for name in calls)}
    assert "Also: `Iallreduce`, `Allreduce_init`." in page
    assert "- **codec**: " in page


def test_the_reference_of_torch_begins_with_its_functions() -> None:
    import python_pages

    exported = python_pages.exported("softnic.torch")
    assert "compress" in exported
    assert f"members: {exported}" in python_pages.page("softnic.torch", "")


@pytest.mark.slow
def test_links_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in page.links | page.loaded:
            target, anchor = urldefrag(unquote(link))
            if "://" in target or target.startswith("mailto:"):
                continue
            file = (path.parent / target).resolve() if target else path
            if not file.exists():
                wrong.append(f"{path.relative_to(site)}: {link}")
            elif anchor and file in pages and anchor not in pages[file].anchors:
                wrong.append(f"{path.relative_to(site)}: there is no {link}")
    assert wrong == []


@pytest.mark.slow
def test_nothing_is_loaded_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    assert {each for page in pages.values() for each in page.loaded if "//" in each} == set()
    styles = " ".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)]*", styles) == []


@pytest.mark.slow
def test_references_are_generated(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text()
    assert [name for name in COMMANDS if f">softnic {name}<" not in commands.replace("&nbsp;", " ")] == []
    assert "--peer-timeout" in commands
    assert "Not usable" not in commands
    documented = (site / "reference" / "python" / "softnic.MPI.html").read_text()
    assert 'id="allreduce_comp"' in documented
    assert not [path.name for path in (site / "reference" / "python").iterdir() if "Reading order" in path.read_text()]
    assert "the socket is not listening" in (site / "reference" / "messages.html").read_text()


@pytest.mark.slow
def test_the_search_finds_pages(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries if "error feedback" in entry["text"].lower()}
    assert {"gradients.html", "glossary.html"} <= found


FITTING = {
    "rht:4": "codecs.html",
    "bounded:10": "codecs.html",
    "softnic top": "monitoring.html",
    "no route": "troubleshooting.html",
    "Allreduce_comp": "reference/python/softnic.MPI.html",
    "node.toml": "reference/configuration.html",
    "SOFTNIC_KERNELS": "environment.html",
    "packet mode": "modes.html",
    "gpu": "gpu.html",
}


@needs.tools("node")
@pytest.mark.slow
def test_the_search_finds_the_fitting_page_first(site: Path) -> None:
    """By the script that searches in a browser, with the site's index."""
    [worker] = (site / "assets" / "javascripts" / "workers").glob("search.*.js")
    index = site / "search" / "search_index.json"
    command = ["node", *map(str, (ROOT / "tests" / "search.js", worker, index)), *FITTING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = dict(zip(FITTING, json.loads(done.stdout), strict=True))
    assert {query: places[0].partition("#")[0] for query, places in found.items()} == FITTING


@pytest.mark.slow
def test_the_search_works_where_the_site_is_opened_as_files(site: Path) -> None:
    """Index and worker are plain scripts: browsers load neither JSON nor workers from files."""
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = {")
    assert "iframe-worker.js" in (site / "index.html").read_text()
    assert (site / "iframe-worker.js").exists()


def test_every_page_is_in_the_navigation() -> None:
    text = (SITE / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/.-]+\.md", text))
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert {name for name in named if not name.startswith("reference/")} == there, "add it to docs/site/mkdocs.yml"
