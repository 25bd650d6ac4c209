"""Communicators whose ranks find each other through a store, as torch.distributed's processes do.

Every rank listens at a port that its NIC chose and publishes the address under a key of its own; then it reads the
addresses of all others, and they connect (rendezvous.py). What is published says nothing but addresses: who does not
know the job's store learns none of them, and Hello turns away who comes by mistake. Where no NIC is given, the hosts'
first ranks start them (nics.py).
"""

from __future__ import annotations

from softnic.comm.bootstrap.discovery import through
from softnic.comm.bootstrap.launch import DEFAULT_TIMEOUT_S, NOWHERE, Launch
from softnic.comm.bootstrap.store import Store
from softnic.comm.communicator import Communicator
from softnic.comm.errors import LaunchError
from softnic.comm.state import World
from softnic.comm.transport import Transport


def meet(
    store: Store,
    rank: int,
    size: int,
    *,
    name: str = "world",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    transport: Transport | None = None,
) -> Communicator:
    """A communicator of `size` processes, this one its `rank`. Returns when all are connected.

    All call it, with one `name` that no other meeting in this store has had. They use the NIC that SOFTNIC_NIC names,
    or, if no rank has one, NICs that start by themselves. Raises CommError, naming the rank that did not come within
    `timeout_s`, or of which the store tells nothing, or an error.
    """
    if not 0 <= rank < size:
        raise LaunchError(f"rank {rank} of {size}: a rank is 0 or more and less than the size")
    launch = Launch(rank, (NOWHERE,) * size, "store", timeout_s, found="the store given")
    communicator = Communicator(World(launch, find=lambda launch: through(store, name, launch, transport)))
    communicator.Init()
    return communicator
