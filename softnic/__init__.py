"""softnic: a compressing NIC in software. `softnic.socket` and `softnic.MPI` are what programs use.

Nothing is imported before it is asked for, so that a program pays only for what it uses.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softnic import MPI, codecs, gradients, socket
    from softnic.cluster.cluster import Cluster
    from softnic.ipc.regions import empty, is_registered, zeros
    from softnic.socket.installed import install

    __version__: str

__all__ = [
    "MPI",
    "Cluster",
    "__version__",
    "codecs",
    "empty",
    "gradients",
    "install",
    "is_registered",
    "socket",
    "zeros",
]

_MODULES = frozenset({"MPI", "codecs", "gradients", "socket"})


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__version__":
        from softnic.version import version

        return version()
    if name == "Cluster":
        from softnic.cluster.cluster import Cluster

        return Cluster
    if name == "install":
        from softnic.socket.installed import install

        return install
    if name in ("empty", "is_registered", "zeros"):
        from softnic.ipc import regions

        return getattr(regions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
