"""Structure of the sources: no import cycle, no duplicate class name, no long file, few long lists of parameters."""

from __future__ import annotations

import ast
import graphlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import ROOT, imports_of, modules

MOST_LINES = 600
LONG_FILES = {"tests/tcp/test_states.py": "the states of RFC 9293 are one subject"}
"""Files that may be longer, and why."""
MOST_PARAMETERS = 7
MANY_PARAMETERS = {
    "the options of a command or of a method, by keyword, which are public": {"Cluster.__init__", "Lgc.__init__"},
    "what something without I/O is given by its owner: addresses, link, clock, randomness, options": {
        "Host.__init__",
        "KernelTurn.__init__",
        "Nic.__init__",
        "NicTurn.__init__",
        "Node.__init__",
        "TcpStack.__init__",
    },
    "the fields of a definition, most of which are left out": {"TypeDefinition.__init__"},
    "a super-segment: header, bytes, codec and limits": {
        "Nic.emit",
        "Nic._emit",
        "Segmenter.cut",
        "sn_capture_segment",
    },
    "a batch of frames in C is its bytes, offsets, lengths and their number": {
        "parse_frame",
        "send_datagrams",
        "sn_capture_frames",
        "sn_cut",
        "sn_decode_payloads",
        "sn_decrypt",
        "sn_encrypt",
        "sn_parse",
        "sn_secure_send",
        "sn_tap_write",
        "sn_vxlan_receive",
        "sn_vxlan_send",
    },
    "an encoder in C takes words, their number and the place of a cut, and a buffer, its size and what was consumed": {
        "sn_combine_encode",
        "sn_decode_combine",
        "sn_encode",
    },
    "a kernel of a GPU takes pointers, a number of blocks, and the constants that it is compiled for": {
        "decode_body",
        "encode_with_residual",
        "place",
        "reduce",
    },
    "a function of glibc": {"gethostbyaddr_r"},
}
"""Functions that may have more, by the reason."""
FOLDERS = ("softnic", "daemons", "native", "benchmarks")
C_FUNCTION = re.compile(r"^(?![\s#])[\w \*]+?\b(\w+)\(([^;{}]*?)\)\s*\{", re.MULTILINE)
DEFINED = re.compile(r"^(?!static)[a-z][\w *]*?\b(s[np]_\w+)\([^;{]*\)\n\{", re.MULTILINE)
"""Functions of C that other files may call."""


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


def test_no_file_of_native_needs_one_that_needs_it() -> None:
    """By the functions that they call: headers alone show no circle."""
    texts = {path: path.read_text() for path in (ROOT / "native").glob("*/*.c")}
    defined = {name: path for path, text in texts.items() for name in DEFINED.findall(text)}
    assert len(defined) > 200
    needed = {
        path: {defined[name] for name in re.findall(r"\bs[np]_\w+", text) if name in defined} - {path}
        for path, text in texts.items()
    }
    try:
        graphlib.TopologicalSorter(needed).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" needs ".join(str(path.relative_to(ROOT)) for path in reversed(error.args[1])))


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
        str(path.relative_to(ROOT))
        for path in [*sources(), *(ROOT / "tests").rglob("*.py")]
        if len(path.read_text().splitlines()) > MOST_LINES
    }
    assert long == set(LONG_FILES)


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Return the name and the number of parameters of each function that a file defines."""
    text = path.read_text()
    if path.suffix == ".py":
        for owner, node in methods(ast.parse(text), ""):
            given = node.args
            all_of_them = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            names = [each.arg for each in all_of_them if each]
            yield f"{owner}{node.name}", len(names) - (names[:1] in (["self"], ["cls"]))
    else:
        for name, parameters in C_FUNCTION.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)):
            yield name, 1 + re.sub(r"\([^()]*\)", "", parameters).count(",")


def methods(tree: ast.AST, owner: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return all functions below a node, each with the class that it is a method of, and a dot."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner, node
            yield from methods(node, "")
        else:
            yield from methods(node, f"{node.name}." if isinstance(node, ast.ClassDef) else owner)


def test_no_function_has_more_parameters_than_the_limit() -> None:
    found = [each for path in sources() for each in functions(path)]
    assert len(found) > 3000
    assert {"Cluster.__init__", "sn_turn_run"} <= {name for name, _ in found}
    listed = {name for names in MANY_PARAMETERS.values() for name in names}
    assert {name for name, parameters in found if parameters > MOST_PARAMETERS} == listed
