"""Files, tests, modules and flags of commands that documents name exist."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks.papers.items import ITEMS
from softnic.commands import COMMANDS, main
from softnicd.config import parser

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MADE_BY_USERS = {"softnic/machine.json"}
"""Under ~/.config."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_modules_exist(page: Path) -> None:
    text = page.read_text()
    files = set(re.findall(r"`((?:softnic|daemons|native|tests|benchmarks|docs)/[\w./]+)`", text)) - MADE_BY_USERS
    assert [name for name in files if not (ROOT / name).exists()] == []
    modules = re.findall(r"python -m ((?:softnic|tests|benchmarks)[\w.]*)", text)
    places = {name: ROOT / name.rstrip(".").replace(".", "/") for name in modules}
    assert [
        name
        for name, place in places.items()
        if not (place.with_suffix(".py").exists() or (place / "__main__.py").exists())
        and not (name.endswith(".") and place.is_dir())  # python -m benchmarks.*
    ] == []


def rows() -> Iterator[tuple[str, str, str]]:
    """Return the rows of the RFC tables: RFC, where, tested by."""
    for line in (ROOT / "docs" / "rfcs.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and not set(cells[0]) <= {"-"}:
            yield cells[0], cells[2], cells[3]


def test_the_files_and_tests_of_each_rfc_exist() -> None:
    wrong = []
    for rfc, where, tested in rows():
        for cell, room in ((where, "softnic"), (tested, "tests/tcp")):
            for name, names_in_it in re.findall(r"`([\w/.]+\.\w+|tests/\w+)`(?: \(([^)]*)\))?", cell):
                path = next((path for path in (ROOT / room / name, ROOT / name) if path.exists()), None)
                if path is None:
                    wrong.append(f"{rfc}: there is no {name}")
                elif path.is_file():
                    text = path.read_text()
                    wrong += [
                        f"{rfc}: {name} has no {one}" for one in re.findall(r"\w+", names_in_it) if one not in text
                    ]
    assert wrong == []
    assert len(list(rows())) > 50


@cache
def flags_of(command: str) -> frozenset[str]:
    """Return the flags that --help of a command lists."""
    if command == "softnicd":
        said = parser().format_help()
    else:
        with io.StringIO() as out:
            with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
                main([*command.split()[1:], "--help"])
            said = out.getvalue()
    return frozenset(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", said))


def commands_in(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of softnic's that stand on lines of their own or in code, with the flags that each is given."""
    names = rf"softnicd|softnic (?:(?:bench|model) [a-z]+|meet token|{'|'.join(COMMANDS)})"
    for command, rest in re.findall(rf"(?:^ *|`|&& |\$\()({names})\b((?: [^`#|&)\n]*)?)", text, re.MULTILINE):
        yield command, re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rest.partition(" -- ")[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_flags_that_they_are_given(page: Path) -> None:
    wrong = [
        f"{command} has no {flag}"
        for command, flags in commands_in(page.read_text())
        for flag in flags
        if flag not in flags_of(command)
    ]
    assert wrong == []


def test_commands_are_found_in_documents() -> None:
    found = [command for page in PAGES for command, flags in commands_in(page.read_text()) if flags]
    assert len(found) > 50
    assert {"softnicd", "softnic run", "softnic bench stream"} <= set(found)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub generates them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_are_valid(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        if "://" in target:
            continue
        path = page.parent / name if name else page
        if not path.exists():
            wrong.append(f"{target}: there is no such file")
        elif anchor and anchor not in anchors(path):
            wrong.append(f"{target}: there is no such heading")
    assert wrong == []


def test_pages_that_sources_name_exist() -> None:
    sources = [
        path
        for folder in ("softnic", "daemons", "native", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".pyi", ".c", ".h"}
    ]
    wrong = {
        f"{path.relative_to(ROOT)} names {name}"
        for path in sources
        for name in re.findall(r"\bdocs/\w+\.(?:md|svg)", path.read_text())
        if not (ROOT / name).exists()
    }
    assert sorted(wrong) == []


def test_figures_and_tables_that_sources_and_pages_name_are_reproduced() -> None:
    wrong = []
    for path in [*PAGES, *(ROOT / "softnic").rglob("*.py")]:
        for paper, item in re.findall(r"\b(inceptionn|smartnic|lgc|a2dtwp) ((?:fig|table)\d+)\b", path.read_text()):
            if item not in ITEMS[paper]:
                wrong.append(f"{path.relative_to(ROOT)} names {paper} {item}")
    assert wrong == []


JOURNAL = {"SOFTNIC_NIC", "SOFTNIC_TOPIC", "SOFTNIC_TRACEBACK"}
"""Names of fields in systemd's journal; the first one is a variable, too."""


def test_the_page_of_environment_variables_is_complete() -> None:
    """Every variable that the sources name is on it, and no other."""
    sources = [
        *(path for folder in ("softnic", "daemons") for path in (ROOT / folder).rglob("*.py")),
        *(ROOT / "native").rglob("*.c"),
    ]
    named = {name for path in sources for name in re.findall(r"[\"'](SOFTNIC_[A-Z_]+)[\"']", path.read_text())}
    rows = [line for line in (ROOT / "docs" / "environment.md").read_text().splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(SOFTNIC_[A-Z_]+)`", row.split("|")[1])}
    assert listed - named == set()
    assert named - listed == JOURNAL - {"SOFTNIC_NIC"}
