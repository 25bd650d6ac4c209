"""The import rules of the packages, compared with the actual imports."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Package -> the packages it may import, in the order of the design's table; comments mark additions to that table.
MAY_IMPORT: dict[str, set[str]] = {
    # Text of rates, times and sizes; the advice for a missing package.
    "softnic.units": set(),
    "softnic.extras": set(),
    "softnic.codecs": {"_native"},
    "softnic.packet": {"_native"},
    "softnic.tcp": {"packet", "_native", "_flow"},
    # The reasons of the adaptive codec name sizes and rates.
    "softnic.nic": {"_native", "_flow", "codecs", "packet", "tcp", "link", "units"},
    "softnic.link": {"_native", "packet", "units"},
    "softnic.tapnic": {"_native", "codecs", "packet", "tcp", "nic", "link"},
    "softnic.ipc": set(),
    "softnic.socket": {"ipc"},
    # The engine runs over TCP connections and gets its work as work requests.
    "softnic.collectives": {"_native", "codecs", "ipc", "packet", "tcp"},  # the steps are executed in C
    # The first process of a host starts its NIC.
    "softnic.comm": {"cluster", "codecs", "collectives", "ipc", "socket"},
    "softnic.MPI": {"comm", "collectives"},
    # The package of this name on the search path of programs that import mpi4py.
    "softnic.mpi4py": {"MPI", "comm"},
    # Gradients lie in registered memory.
    "softnic.gradients": {"comm", "codecs", "ipc"},
    # torch runs this whenever it is imported; it imports the backend when a process group is made.
    "softnic.torch_backend": set(),
    "softnic.autoload": {"torch", "torch_backend"},
    "softnic.torch": {"MPI", "torch_backend", "comm", "codecs", "gradients", "ray"},
    "softnic.ray": {"cluster", "ipc"},
    "softnic.capture": {"_native", "codecs", "packet", "link", "units"},
    "softnic.sim": {"nic", "link", "collectives", "ipc", "packet", "tcp"},
    "softnic.model": {"sim", "collectives", "link", "nic", "packet", "tcp", "units"},
    "softnic.experiments": {
        "MPI",
        "bench",  # Fig. 7 measures codecs as `softnic bench codec` does
        "cluster",
        "codecs",
        "collectives",
        "comm",
        "extras",
        "gradients",
        "ipc",
        "model",
        "sim",
        "torch",
        "units",
    },
    # netns_lab makes links of kernels.
    "softnic.cluster": {"_native", "ipc", "link", "packet", "tapnic", "units"},
    "softnic.bench": {
        "MPI",
        "cluster",
        "codecs",
        "collectives",
        "comm",
        "experiments",
        "extras",
        "ipc",
        "model",
        "socket",
        "units",
    },
    "softnic.doctor": {"bench", "cluster", "codecs", "experiments", "ipc", "link", "model", "units"},
    "softnic.preload": set(),
    "softnic.__main__": {"commands"},
    "softnic.commands": {
        "MPI",
        "bench",
        "capture",
        "cluster",
        "codecs",
        "collectives",
        "comm",
        "doctor",
        "experiments",
        "extras",
        "ipc",
        "link",  # doctor reads keys
        "model",
        "mpi4py",
        "preload",
        "socket",
        "tcp",
        "units",
    },
    "softnicd": {
        "_flow",
        "_native",
        "capture",
        "codecs",
        "collectives",
        "extras",  # what to install for metrics
        "ipc",
        "link",
        "nic",
        "packet",
        "tapnic",
        "tcp",
        "units",
    },
}

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
    "zfpy",
    "zstandard",
}
SANS_IO = ("softnic.packet", "softnic.nic", "softnic.codecs", "softnic.collectives")


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


def test_imports_run_down_the_table_and_nowhere_else() -> None:
    wrong = []
    for module, path in modules():
        room = package_of(module)
        if room == "softnic":  # softnic/__init__.py exports names from above, and imports them only when asked
            continue
        allowed = MAY_IMPORT[room] | {room.split(".")[-1]}
        for name in imports_of(module, path):
            if name.split(".")[0] in ("softnic", "softnicd") and package_of(name).split(".")[-1] not in allowed:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_extras_are_never_needed_to_import_a_module() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for module, path in modules()
        for name in imports_of(module, path, top_level_only=True)
        if name.split(".")[0] in EXTRAS and package_of(module) != f"softnic.{name.split('.')[0]}"
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


FACADES = ROOT / "tests" / "facades"
PUBLIC = {"", ".MPI", ".codecs", ".gradients", ".mpi4py", ".preload", ".ray", ".socket", ".torch"}
"""Public modules, after "softnic". Every other module is internal."""
PUBLIC_PRIVATE = {
    "_GLOBAL_DEFAULT_TIMEOUT": "the standard socket module has it, and programs name it",
    "_device_types": "torch reads it of every process group",
}
"""Private names of other projects' interfaces."""
PATCHING = {"setattr", "delattr", "getattr", "patch", "object", "import_module"}


def is_internal(module: str, name: str = "") -> bool:
    """Return whether `import module`, or `from module import name`, imports an internal name."""
    package, dot, rest = module.partition(".")
    if package != "softnic":
        return package == "softnicd"
    if dot + rest not in PUBLIC:
        return True
    place = ROOT.joinpath(*module.split("."), name)
    is_module = bool(name) and (place.is_dir() or place.with_suffix(".py").is_file())
    return name.startswith("_") or (is_module and is_internal(f"{module}.{name}"))


@functools.cache
def sources_of_tests() -> list[tuple[Path, ast.Module]]:
    """Return every file of the tests except the facades."""
    paths = [path for path in sorted((ROOT / "tests").rglob("*.py")) if FACADES not in path.parents]
    return [(path, ast.parse(path.read_text())) for path in paths]


def patched(node: ast.AST) -> Iterator[tuple[int, ast.expr, str]]:
    """Return line, first argument and each string of a call like monkeypatch.setattr(where, "name", ...)."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in PATCHING:
        for argument in node.args[:2]:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield node.lineno, node.args[0], argument.value


def inner_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return line and name of each internal module of softnic that a file imports or patches by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if is_internal(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found = [alias.name for alias in node.names if is_internal(node.module, alias.name)]
            yield from ((node.lineno, f"{name} of {node.module}") for name in found)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, name in re.findall(r"\bfrom (softnicd?[\w.]*) import (\w+)", node.value):
                if is_internal(module, name):
                    yield node.lineno, f"{name} of {module} in a program"
        for line, _, text in patched(node):
            if is_internal(text):
                yield line, f'"{text}"'


def test_tests_import_internals_through_facades() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}: export it from a module of tests/facades and import it there"
        for path, tree in sources_of_tests()
        for line, name in inner_modules(tree)
    ]
    assert not wrong, "\n".join(wrong)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC_PRIVATE


def others_modules(tree: ast.Module) -> set[str]:
    """Return the names that a file imports from neither softnic nor the tests, whose private names are not checked."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                origin = (node.module or ".") if isinstance(node, ast.ImportFrom) else alias.name
                if origin.split(".")[0] not in {"", "softnic", "softnicd", "tests"}:
                    names.add((alias.asname or alias.name).split(".")[0])
    return names


def own_names(tree: ast.Module) -> set[str]:
    """Return the private names that the classes and functions of a file define."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            fields: list[ast.expr] = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            fields += [target for each in node.body if isinstance(each, ast.Assign) for target in each.targets]
            names |= {ast.unparse(field) for field in fields}
    return names


def private_reads(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each access to a private name of softnic's: of anything but an imported module of others, and
    `self` where the name is the class's own."""
    others, own = others_modules(tree), own_names(tree)
    initialised = {
        node.attr
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            whose = ast.unparse(node.value)
            mine = whose in {"self", "cls"} and node.attr in own | initialised
            if not mine and re.split(r"\W", whose)[0] not in others:
                yield node.lineno, f"{whose}.{node.attr}"
        for line, where, text in patched(node):
            root = re.split(r"\W", ast.unparse(where))[0]
            if is_private(text.split(".")[-1]) and root not in others | {"self"}:
                yield line, text


def test_tests_read_private_names_through_facades() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} reads {name}: use what a public seam shows, or a function of tests/facades"
        for path, tree in sources_of_tests()
        for line, name in private_reads(tree)
    ]
    assert not wrong, "\n".join(wrong)
