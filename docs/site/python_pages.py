"""The reference of Python: one page per public module, filled by mkdocstrings from docstrings.

mkdocstrings reads sources. The collectives of softnic.MPI are made from declarations when the module is imported, so
their section is written here, from the calls themselves.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from softnic.mpi.collectives import calls as collective_calls
from softnic.mpi.communicator import Communicator

ROOT = Path(__file__).resolve().parent.parent.parent

MODULES = {
    "softnic": "Clusters of NICs on this machine, registered memory, sockets for all of a program",
    "softnic.socket": "Sockets, shaped like the standard module",
    "softnic.MPI": "Communicators, collectives and messages, shaped like mpi4py",
    "softnic.codecs": "Codecs without a network",
    "softnic.torch": "The backend of torch.distributed",
    "softnic.torch.hooks": "Gradient methods as DDP's communication hooks",
    "softnic.gradients": "Gradient methods",
    "softnic.ray": "NICs on the nodes of a Ray cluster",
    "softnic.mpi4py": "softnic.MPI under mpi4py's name",
    "softnic.preload": "The NIC's sockets for programs of any language",
    "softnic.capture.scapy_layer": "Payload headers for scapy",
}
MEMBERS = {
    "softnic": [
        "softnic.cluster.cluster.Cluster",
        "softnic.ipc.regions.empty",
        "softnic.ipc.regions.zeros",
        "softnic.ipc.regions.is_registered",
        "softnic.socket.installed.install",
    ],
    "softnic.MPI": [
        "softnic.mpi.communicator.Communicator",
        "softnic.mpi.requests.request.Request",
        "softnic.mpi.requests.status.Status",
        "softnic.mpi.groups.Group",
        "softnic.comm.errors.CommError",
        "softnic.comm.errors.ArgumentError",
        "softnic.comm.errors.LaunchError",
    ],
    "softnic.codecs": [
        "softnic.codecs.registry.get",
        "softnic.codecs.registry.names",
        "softnic.codecs.registry.Codec",
        "softnic.codecs.registry.CodecError",
        "softnic.codecs.registry.DecodeError",
        "softnic.codecs.kernels.simd",
        "softnic.codecs.kernels.simd_available",
    ],
}
"""What modules export that others define."""


def pages() -> dict[str, str]:
    """Return the pages by their paths: an index, and one a module."""
    rows = [f"| [`{name}`]({name}.md) | {what} |" for name, what in MODULES.items()]
    introduction = ["# Python", "", "The public modules. Names of other modules may change.", ""]
    index = [*introduction, "| module | contents |", "|---|---|", *rows, ""]
    return {
        "reference/python/index.md": "\n".join(index),
        **{f"reference/python/{name}.md": page(name, what) for name, what in MODULES.items()},
    }


def page(module: str, what: str) -> str:
    """Return the page of a module."""
    heading = f"# {module}\n\n{what}.\n"
    if module not in MEMBERS:
        members = f"    options:\n      members: {exported(module)}\n" if exported(module) else ""
        return f"{heading}\n::: {module}\n{members}"
    parts = [heading, f"::: {module}\n    options:\n      members: false\n      summary: false\n"]
    if module == "softnic.MPI":
        parts += collectives()
    for member in MEMBERS[module]:
        name = member.rpartition(".")[2]
        parts.append(
            f"## {name}\n\n::: {member}\n    options:\n      heading_level: 3\n      inherited_members: true\n"
        )
    return "\n".join(parts)


def exported(module: str) -> list[str]:
    """Return the names in a module's `__all__`; none if it has none."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    return []


def collectives() -> Iterator[str]:
    """Yield the section of the collectives of communicators, in Markdown: a heading for each, with its other forms."""
    calls = {
        name: call
        for name in dir(Communicator)
        if getattr(call := getattr(Communicator, name), "__module__", "") == collective_calls.__name__
    }
    yield (
        "## Collectives\n\nMethods of a communicator. All ranks make these calls in the same order. A name with `I` in "
        "front is the nonblocking form, which returns a Request; one with `_init` behind it returns a persistent "
        "request; one with `_comp` behind it compresses.\n"
    )
    for name, call in calls.items():
        if name.endswith("_init") or (name[0] == "I" and name[1:].capitalize() in calls):
            continue
        others = [other for other in (f"I{name.lower()}", f"{name}_init") if other in calls]
        also = f"Also: {', '.join(f'`{other}`' for other in others)}.\n\n" if others else ""
        shown = f"comm.{name}{inspect.signature(call)}".replace("(self, ", "(").replace("(self)", "()").replace("'", "")
        yield f"### {name}\n\n```python\n{shown}\n```\n\n{also}{_described(inspect.getdoc(call) or '')}\n"


def _described(docstring: str) -> str:
    """Return a docstring as Markdown, its parameters as a list."""
    text, _, parameters = docstring.partition("Parameters\n----------\n")
    items = re.findall(r"^(\w+)\n((?:    .*\n?)+)", parameters, re.MULTILINE)
    return text + "\n".join(f"- **{name}**: {' '.join(lines.split())}" for name, lines in items)
