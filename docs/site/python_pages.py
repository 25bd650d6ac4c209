"""The reference of Python: one page per public module, filled by mkdocstrings from docstrings."""

from __future__ import annotations

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
        "softnic.comm.communicator.Communicator",
        "softnic.comm.request.Request",
        "softnic.comm.status.Status",
        "softnic.comm.groups.Group",
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
        return f"{heading}\n::: {module}\n"
    parts = [heading, f"::: {module}\n    options:\n      members: false\n      summary: false\n"]
    for member in MEMBERS[module]:
        name = member.rpartition(".")[2]
        parts.append(
            f"## {name}\n\n::: {member}\n    options:\n      heading_level: 3\n      inherited_members: true\n"
        )
    return "\n".join(parts)
