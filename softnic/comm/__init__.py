"""Communicators: ranks, messages and collectives over a NIC's sockets.

Reading order: errors, launch, schedule (pure), elements, operations, message_spec, buffers, tasks, journey; then how
bytes move: framing, wire, channel, registered, transport, progress, presence, rendezvous, matching, combining,
collective; then what NICs execute: executor (their own side), pulse, waiting, group, scratch; then the life of a
communicator and how its ranks find each other: store, board, hosts, nics, session, world, finding; then the calls:
base, p2p, exchange, collectives, objects, request, nonblocking, subsets, communicator, meeting; and many calls at a
time: driver. `softnic.MPI` is the face of all this, `softnic.comm.init_communicator` what other frameworks begin with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softnic.comm.bootstrap.store import Store
    from softnic.comm.communicator import Communicator, init_communicator

__all__ = ["Communicator", "Store", "init_communicator"]


def __getattr__(name: str) -> Any:
    """Imported when asked for: NICs use parts of this package too, and need no communicator."""
    if name == "Communicator":
        from softnic.comm.communicator import Communicator

        return Communicator
    if name == "Store":
        from softnic.comm.bootstrap.store import Store

        return Store
    if name == "init_communicator":
        from softnic.comm.communicator import init_communicator

        return init_communicator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
