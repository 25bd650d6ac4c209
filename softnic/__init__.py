"""softnic: a compressing NIC in software. `softnic.socket` and `softnic.MPI` are what programs use.

Nothing is imported before it is asked for, so that a program pays only for what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softnic.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    if name == "Cluster":
        from softnic.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
