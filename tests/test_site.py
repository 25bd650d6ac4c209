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

from tests import needs
from tests.facades.commands import COMMANDS

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
    assert "Allreduce_comp" in documented
    assert "the socket is not listening" in (site / "reference" / "messages.html").read_text()


@pytest.mark.slow
def test_the_search_finds_pages(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries if "error feedback" in entry["text"].lower()}
    assert {"gradients.html", "glossary.html"} <= found


def test_every_page_is_in_the_navigation() -> None:
    text = (SITE / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/.-]+\.md", text))
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert {name for name in named if not name.startswith("reference/")} == there, "add it to docs/site/mkdocs.yml"
