"""The import rules of the packages, compared with the actual imports and with the page that shows them.

`python -m tests.test_architecture` rewrites the table of docs/architecture.md.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.measure.pages import rebuilt, table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"

MAY_IMPORT: dict[str, set[str]] = {
    "softnic.version": set(),
    "softnic.arguments": {"version"},
    "softnic.units": set(),
    "softnic.underlay": set(),
    "softnic.extras": set(),
    "softnic.terminal": set(),
    "softnic._fields": {"_native"},
    "softnic.rtl": {"_native", "extras"},
    "softnic.codecs": {"_native", "rtl"},
    "softnic.packet": {"_native"},
    "softnic.tcp": {"packet", "_native", "_fields"},
    "softnic.link": {"_native", "packet", "underlay", "units"},
    # The reasons of the adaptive codec name sizes and rates.
    "softnic.nic": {"_native", "_fields", "codecs", "packet", "tcp", "link", "units"},
    "softnic.tapnic": {"_native", "codecs", "packet", "nic", "link"},
    "softnic.ipc": set(),
    # netns_lab makes links of kernels.
    "softnic.cluster": {"_native", "ipc", "link", "packet", "tapnic", "underlay", "units"},
    "softnic.socket": {"ipc"},
    # The engine runs over TCP connections and gets its work as work requests.
    "softnic.collectives": {"_native", "codecs", "ipc", "packet", "tcp", "terminal"},  # the steps are executed in C
    # All NICs of this host are asked.
    "softnic.diagnosis": {"cluster", "collectives", "ipc"},
    # The first process of a host starts its NIC; errors say what a call is stuck at.
    "softnic.comm": {"cluster", "codecs", "collectives", "diagnosis", "ipc", "socket", "terminal", "underlay"},
    "softnic.mpi": {"cluster", "codecs", "collectives", "comm", "diagnosis", "ipc", "terminal", "version"},
    "softnic.MPI": {"comm", "mpi"},
    # The package of this name on the search path of programs that import mpi4py.
    "softnic.mpi4py": {"MPI", "mpi"},
    # Sources listen at their NIC; members prove that they are of one job as ranks do.
    "softnic.checkpoint": {"comm", "ipc", "socket", "terminal"},
    # Gradients lie in registered memory.
    "softnic.gradients": {"mpi", "codecs", "ipc"},
    "softnic.ray": {"cluster", "ipc", "underlay"},
    # torch runs this whenever it is imported; it imports the backend when a process group is made.
    "softnic.torch_private": set(),
    "softnic.torch_backend": {"torch_private"},
    "softnic.torch": {
        "MPI",
        "checkpoint",
        "codecs",
        "collectives",
        "comm",
        "gradients",
        "mpi",
        "ray",
        "torch_backend",
        "torch_private",
    },
    "softnic.torchft": {"checkpoint", "gradients", "ipc", "torch"},  # members tell their NICs what they do
    "softnic.autoload": {"torch", "torch_backend"},
    "softnic.capture": {"_native", "codecs", "packet", "link", "terminal", "units"},
    "softnic.sim": {"nic", "link", "collectives", "ipc", "packet", "tcp"},
    "softnic.model": {"sim", "collectives", "link", "nic", "packet", "tcp"},
    "softnic.measure": {"codecs", "version"},  # reports say which kernels they are of
    "softnic.experiments": {
        "MPI",
        "arguments",
        "cluster",
        "codecs",
        "comm",
        "gradients",
        "ipc",
        "measure",
        "mpi",
        "torch",
        "units",
    },
    "softnic.bench": {
        "MPI",
        "cluster",
        "codecs",
        "experiments",
        "extras",
        "ipc",
        "measure",
        "model",
        "socket",
        "units",
    },
    "softnic.doctor": {
        "bench",
        "cluster",
        "codecs",
        "ipc",
        "link",
        "measure",
        "model",
        "underlay",
        "units",
        "version",
    },
    # A server, at which NICs meet.
    "softnic.meeting": {"_native", "link", "packet", "underlay"},
    "softnic.preload": set(),
    "softnic.commands": {
        "arguments",
        "bench",
        "capture",
        "cluster",
        "codecs",
        "collectives",
        "diagnosis",
        "doctor",
        "experiments",
        "extras",
        "ipc",
        "link",  # doctor reads keys
        "measure",
        "meeting",
        "model",
        "mpi4py",
        "preload",
        "rtl",  # inspect replays packets
        "socket",
        "tcp",
        "terminal",
        "underlay",
        "units",
        "version",
    },
    "softnic.__main__": {"commands"},
    "softnicd": {
        "_fields",
        "_native",
        "arguments",
        "capture",
        "codecs",
        "collectives",
        "extras",  # what to install for metrics
        "ipc",
        "link",
        "meeting",  # a node that relays is a meeting server of its job
        "nic",
        "packet",
        "tapnic",
        "tcp",
        "terminal",
        "underlay",
        "units",
    },
}
"""What each package imports: of the packages above it only. docs/architecture.md shows this table."""

ROOMS_OF = {"ray": {"softnic.ray"}, "torch": {"softnic.torch", "softnic.torchft"}, "torchft": {"softnic.torchft"}}
"""Rooms that are for an extra, and need it."""
EXTRAS = {
    "blosc2",
    "cramjam",
    "matplotlib",
    "prometheus_client",
    "pysz",
    "ray",
    "skimage",
    "sklearn",
    "torch",
    "torchft",
    "zfpy",
    "zstandard",
}
MEETING = (
    "budget",
    "candidates",
    "card",
    "client",
    "cookies",
    "jobs",
    "nat",
    "numbers",
    "relay_bindings",
    "relay_table",
    "roster",
    "server",
    "token",
    "way",
)
SANS_IO = (
    "softnic.packet",
    "softnic.nic",
    "softnic.codecs",
    "softnic.collectives",
    *(f"softnic.checkpoint.{name}" for name in ("manifest", "pacing", "plan", "progress", "protocol")),
    *(f"softnic.link.reach.{name}" for name in MEETING),
)


def modules() -> Iterator[tuple[str, Path]]:
    """Return every module of the project with its file."""
    for base, package in ((ROOT, "softnic"), (ROOT / "daemons", "softnicd")):
        for path in sorted((base / package).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[0] if parts[0] == "softnicd" else ".".join(parts[:2])


def imports_of(module: str, path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Return every module that a file imports anywhere, with relative names resolved."""
    tree = ast.parse(path.read_text())
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package[: len(package) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield from [f"{base}.{alias.name}" for alias in node.names] if base == "softnic" else [base]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant))


def imports_of_packages() -> Iterator[tuple[str, str, str]]:
    """Return every import of one package by another: a package, the last name of the other, and where it is."""
    for module, path in modules():
        room = package_of(module)
        if room == "softnic":  # softnic/__init__.py exports names of all packages, and imports them only when asked
            continue
        for name in imports_of(module, path):
            if name.split(".")[0] in ("softnic", "softnicd") and package_of(name) != room:
                yield room, package_of(name).split(".")[-1], f"{path.relative_to(ROOT)} imports {name}"


def test_imports_are_those_of_the_table() -> None:
    wrong = [where for room, name, where in imports_of_packages() if name not in MAY_IMPORT[room]]
    assert not wrong, "\n".join(wrong)
    made = {(room, name) for room, name, _ in imports_of_packages()}
    unused = [f"{room}: {name}" for room, names in MAY_IMPORT.items() for name in names if (room, name) not in made]
    assert unused == []


def test_imports_run_down_the_table() -> None:
    above = {"_native"}
    wrong: dict[str, set[str]] = {}
    for room, names in MAY_IMPORT.items():
        wrong |= {room: names - above} if names - above else {}
        above.add(room.split(".")[-1])
    assert wrong == {}


def with_the_table(page: str) -> str:
    """Return the page of the architecture with MAY_IMPORT as it is now."""
    order = ["_native", *(room.split(".")[-1] for room in MAY_IMPORT)]
    rows = [
        (f"`{room}`", ", ".join(f"`{name}`" for name in sorted(names, key=order.index)))
        for room, names in MAY_IMPORT.items()
    ]
    return rebuilt(page, {"imports": table(("package", "imports"), rows)})


def test_the_page_of_the_architecture_has_the_table() -> None:
    assert with_the_table(PAGE.read_text()) == PAGE.read_text(), "python -m tests.test_architecture rewrites it"


def test_the_table_has_no_circle() -> None:
    """Reading order is dependency order."""
    below = {room.removeprefix("softnic."): rooms for room, rooms in MAY_IMPORT.items()}
    try:
        graphlib.TopologicalSorter(below).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of packages: {' <- '.join(error.args[1])}")


def test_extras_are_never_needed_to_import_a_module() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for module, path in modules()
        for name in imports_of(module, path, top_level_only=True)
        if name.split(".")[0] in EXTRAS and package_of(module) not in ROOMS_OF.get(name.split(".")[0], set())
    ]
    assert not wrong, "\n".join(wrong)


def test_sans_io_rooms_read_no_clock_and_make_no_randomness() -> None:
    """Time and randomness are arguments there, so that a cluster of nodes runs from one seed."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for module, path in modules()
        if f"{module}.".startswith(tuple(f"{room}." for room in SANS_IO))
        for name in imports_of(module, path)
        if name.split(".")[0] in {"time", "asyncio", "secrets", "threading", "socket", "select"}
    ]
    assert not wrong, "\n".join(wrong)


def test_top_level_directories_are_those_of_the_design() -> None:
    fixed = {"pyproject.toml", "README.md", "softnic", "native", "daemons", "tests"}
    beside = {"docs", "benchmarks", "CHANGELOG.md", "LICENSE"}
    made = {"build", "dist", "softnic.egg-info"}
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} - made
    assert fixed <= found
    assert found <= fixed | beside


def swallowed(tree: ast.AST) -> Iterator[tuple[int, list[ast.AST]]]:
    """Yield the line and the nodes of each `with suppress(...)` and of each `try` with an empty `except`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            empty = any("suppress" in ast.unparse(item.context_expr) for item in node.items)
        elif isinstance(node, ast.Try | ast.TryStar):
            empty = any(isinstance(handler.body[0], ast.Pass | ast.Continue) for handler in node.handlers)
        else:
            continue
        if empty:
            yield node.lineno, [each for part in node.body for each in ast.walk(part)]


def assertions(nodes: list[ast.AST], helpers: set[str]) -> Iterator[str]:
    """Return the assertions among some nodes, including pytest's and calls of helpers."""
    for node in nodes:
        if isinstance(node, ast.Assert):
            yield "assert"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in helpers:
            yield ast.unparse(node.func)


def test_no_test_suppresses_errors_around_an_assertion() -> None:
    """An error of anything before the assertion would skip it, and the test would pass."""
    trees = {path: ast.parse(path.read_text()) for path in sorted((ROOT / "tests").rglob("*.py"))}
    functions: dict[Path, set[str]] = {}
    for path, tree in trees.items():
        defined = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        functions[path] = {each.name for each in defined if any(isinstance(n, ast.Assert) for n in ast.walk(each))}
    wrong = []
    for path, tree in trees.items():
        helpers = {"pytest.raises", "pytest.warns", "pytest.fail"} | functions[path]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                origin = ROOT.joinpath(*(node.module or "").split(".")).with_suffix(".py")
                helpers |= {name.name for name in node.names} & functions.get(origin, set())
        for line, nodes in swallowed(tree):
            found = ", ".join(sorted(set(assertions(nodes, helpers))))
            wrong += [f"{path.relative_to(ROOT)}:{line} suppresses errors of {found}"] if found else []
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    PAGE.write_text(with_the_table(PAGE.read_text()))
