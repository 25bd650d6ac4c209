"""Which releases of torch softnic works with: said in one sentence, the same everywhere, and kept true by CI."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic import extras, torch_private

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("version", ["2.9.0", "2.9.1+cu128", "2.13.0+cpu", "2.15.0", "2.15.1"])
def test_a_tested_release_is_accepted_silently(version: str) -> None:
    torch_private.check_release(version)


@pytest.mark.parametrize("version", ["1.13.1", "2.4.1", "2.8.0+cpu", "2.8.0a0+git1"])
def test_an_older_release_is_refused_in_one_sentence(version: str) -> None:
    with pytest.raises(
        ImportError, match=rf"^softnic works with torch 2.9 to 2.15, and this is torch {re.escape(version)}: "
    ):
        torch_private.check_release(version)


@pytest.mark.parametrize("version", ["2.16.0", "3.0.0.dev20271001"])
def test_a_later_release_is_used_with_a_warning(version: str) -> None:
    with pytest.warns(RuntimeWarning, match=f"^softnic is tested with torch 2.9 to 2.15, and this is torch {version}$"):
        torch_private.check_release(version)


def test_a_version_that_is_no_number_is_refused() -> None:
    with warnings.catch_warnings(), pytest.raises(ImportError):
        torch_private.check_release("unknown")


def test_the_range_is_the_same_everywhere() -> None:
    oldest, newest = (".".join(map(str, each)) for each in (torch_private.OLDEST, torch_private.NEWEST))
    assert extras.PACKAGES["torch"] == f"torch>={oldest}"
    major, minor = torch_private.NEWEST
    assert f"torch=={oldest}." in (ROOT / ".ci/requirements-torch-oldest.txt").read_text()
    assert f",<{major}.{minor + 1}\n" in (ROOT / ".ci/requirements-torch-newest.txt").read_text()
    assert f"PyTorch {oldest} to {newest}" in (ROOT / "README.md").read_text()
    assert f"torch {oldest} to {newest}" in (ROOT / "docs/torch.md").read_text()


def private_names(path: Path) -> Iterator[str]:
    """Yield the private names of torch in a file: imports, and attributes of modules of torch."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "torch"]
        elif isinstance(node, ast.Attribute) and ast.unparse(node).split(".")[0] in ("torch", "dist"):
            names = [ast.unparse(node)]
        else:
            continue
        yield from (name for name in names if re.fullmatch(r"[\w.]*\._[a-z]\w*", name))


def test_private_names_of_torch_are_in_one_file() -> None:
    files = [path for path in (ROOT / "softnic").rglob("*.py") if path.name != "torch_private.py"]
    assert {str(path.relative_to(ROOT)): found for path in files if (found := list(private_names(path)))} == {}
