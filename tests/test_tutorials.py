"""The tutorials are correct: every block of code runs as written, and prints what the page shows."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import waves
from softnic.rtl import vcd, verilator
from tests import needs
from tests.documented import blocks, is_run, run_page

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "docs" / "tutorials"
LIMIT_S = 300.0


@pytest.mark.parametrize("name", ["socket", "capture", pytest.param("numpy", marks=pytest.mark.slow)])
def test_tutorial(name: str, tmp_path: Path) -> None:
    run_page(TUTORIALS / f"{name}.md", tmp_path, LIMIT_S)


@needs.tools("openssl")
def test_tutorial_of_two_hosts(tmp_path: Path) -> None:
    run_page(TUTORIALS / "two-hosts.md", tmp_path, LIMIT_S)


def test_two_hosts_end_with_the_log_where_a_daemon_does_not_start(tmp_path: Path) -> None:
    """The loop that waits for both is bounded; here no time passes."""
    programs = {
        "softnicd": "#!/bin/sh\necho 'softnicd: cannot bind' >&2\nexit 1\n",
        "sleep": "#!/bin/sh\n",
        "softnic": "#!/bin/sh\necho asked\n",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    [start] = [each.text for each in blocks(TUTORIALS / "two-hosts.md") if "softnicd --config" in each.text]
    path = f"{tmp_path}:{os.environ['PATH']}"
    run = ["bash", "-c", f"set -e\n{start}"]
    done = subprocess.run(run, cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "softnicd: cannot bind\nsoftnicd: cannot bind\nasked\n"


@pytest.mark.slow
def test_tutorial_of_pytorch(tmp_path: Path) -> None:
    needs.module("torch")
    run_page(TUTORIALS / "pytorch.md", tmp_path, LIMIT_S)


def texts(picture: Path) -> list[str]:
    """The labels of an SVG, in their order."""
    return [text.text or "" for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.slow
def test_tutorial_of_waves_and_its_picture(tmp_path: Path) -> None:
    if reason := verilator.missing():
        needs.skip(reason)
    needs.module("matplotlib")
    run_page(TUTORIALS / "waves.md", tmp_path, 2 * LIMIT_S)
    waves.draw(vcd.read(tmp_path / "float.vcd"), tmp_path / "waves.svg")
    assert texts(tmp_path / "waves.svg") == texts(ROOT / "docs" / "waves.svg")
    assert {"bounded_encoder", "3e000000", "408e25ff"} <= set(texts(tmp_path / "waves.svg"))


@needs.tools("patch")
@pytest.mark.slow
def test_tutorial_of_a_codec(tmp_path: Path) -> None:
    for name in ("softnic", "native", "daemons"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    run_page(TUTORIALS / "codec.md", tmp_path, 2 * LIMIT_S)


def test_every_tutorial_is_run() -> None:
    pages = {page.stem: blocks(page) for page in TUTORIALS.glob("*.md") if page.stem != "index"}
    assert set(pages) == {"socket", "numpy", "pytorch", "two-hosts", "capture", "codec", "waves"}
    for name, found in pages.items():
        languages = [block.language for block in found if not block.file and is_run(block)]
        assert set(languages) == {"sh", "text"}, name
        assert all(first == "sh" for first, then in pairwise(languages) if then == "text"), name
