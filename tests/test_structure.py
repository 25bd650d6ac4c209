"""Structure of the sources: no import cycle, no duplicate class name, no long file or function."""

from __future__ import annotations

import ast
import graphlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import ROOT, imports_of, modules

MOST_LINES = 400
MOST_FUNCTION_LINES = 45
FOLDERS = ("softnic", "daemons", "native", "benchmarks")


def imported_files() -> dict[str, set[str]]:
    """Return every module with the project's modules that it imports, including imports for type checkers."""
    known = dict(modules())
    found: dict[str, set[str]] = {}
    for module, path in known.items():
        tree = ast.parse(path.read_text())
        names = set(imports_of(module, path))
        names |= {
            f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        }
        found[module] = {name for name in names if name in known and name != module}
        # Importing a module of a package is not a dependency on the package itself.
        found[module] -= {
            name for name in found[module] if any(other.startswith(f"{name}.") for other in found[module])
        }
    return found


def test_there_is_no_import_cycle() -> None:
    try:
        graphlib.TopologicalSorter(imported_files()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def classes() -> Iterator[tuple[str, str]]:
    """Return name and module of each public class of the product."""
    for module, path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, module


SAME_NAME = {
    "Error": "the class of the standard modules that these modules are shaped like",
}
"""Class names that two modules may have, and why."""


def test_each_class_name_is_defined_by_one_module() -> None:
    where = defaultdict(list)
    for name, module in classes():
        where[name].append(module)
    twice = {name: places for name, places in where.items() if len(places) > 1 and name not in SAME_NAME}
    assert twice == {}


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".c", ".h"}:
                yield path


def test_no_file_is_longer_than_the_limit() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if (lines := len(path.read_text().splitlines())) > MOST_LINES
    }
    assert long == {}


def test_no_function_is_longer_than_the_limit() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"
        for path in sources()
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_FUNCTION_LINES
    ]
    assert long == []
