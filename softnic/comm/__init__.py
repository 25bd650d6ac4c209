"""Communicators: ranks, messages and collectives over NICs.

Reading order: errors, pickling, message_spec, buffers, collective_args; then the NIC: heartbeat, waiting,
offload_queue, scratch, nic_memory, zerocopy_channel; then the other ranks: messages, transport, peer, progress,
matching, status, message_target, pending; then the life of a communicator: bootstrap, connections, state; then the
calls: base, execution, folding, objects, request_sets, request, collectives, exchanges; p2p_base, bsend, p2p_buffers,
p2p_objects, p2p_probe, p2p_persistent, p2p, grequest; subsets, communicator; and many calls at a time: progress_loop.
`softnic.MPI` is the public face of all this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softnic.comm.bootstrap.store import Store
    from softnic.comm.communicator import Communicator, init_communicator

__all__ = ["Communicator", "Store", "init_communicator"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: NICs use parts of this package, and need no communicator."""
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
