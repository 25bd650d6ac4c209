"""softnic: a compressing NIC in software. `softnic.socket` and `softnic.MPI` are what programs use.

Nothing is imported before it is asked for, so that a program pays only for what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softnic.cluster import Cluster
    from softnic.ipc.regions import empty, is_registered, zeros
    from softnic.socket.installed import install

__all__ = ["Cluster", "empty", "install", "is_registered", "zeros"]


def __getattr__(name: str) -> Any:
    if name == "Cluster":
        from softnic.cluster import Cluster

        return Cluster
    if name == "install":
        from softnic.socket.installed import install

        return install
    if name in ("empty", "is_registered", "zeros"):
        from softnic.ipc import regions

        return getattr(regions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
