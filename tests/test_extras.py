"""Messages and pages about optional packages agree with pyproject.toml and install them."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path

from softnic import extras

ROOT = Path(__file__).resolve().parent.parent
DECLARED: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def test_packages_are_those_of_the_extras() -> None:
    users = {
        each
        for name in ("bench", "demo", "metrics", "plot", "ray", "reproduce", "rtl", "torch", "torchft")
        for each in DECLARED[name]
    }
    assert set(extras.PACKAGES.values()) == {each for each in users if not each.startswith("softnic")}


def test_one_line_names_the_command() -> None:
    line = extras.not_installed("torch", "ray")
    assert line.startswith("the modules torch, ray are not installed: ")
    assert shlex.split(line.partition(": ")[2]) == [
        *(sys.executable, "-m", "pip", "install"),
        *("torch>=2.9", "ray[train]>=2.40"),
    ]


def test_no_page_and_no_message_names_a_package_of_an_index() -> None:
    """softnic is in no index: `pip install softnic` would install another package or none."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "softnic").rglob("*.py")]
    index = re.compile(r"softnic\\?\[\w+\]|pip install '?softnic\b(?!-).*")
    assert [f"{page.name}: {found}" for page in pages for found in index.findall(page.read_text())] == []
