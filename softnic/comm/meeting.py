"""Communicators whose ranks find each other through a store, as torch.distributed's processes do.

Every rank listens at a port that its NIC chose and publishes the address under a key of its own; then it reads the
addresses of all others, and they connect (rendezvous.py). What is published says nothing but addresses: who does not
know the job's store learns none of them, and Hello turns away who comes by mistake.
"""

from __future__ import annotations

from typing import Any, Protocol

from softnic.comm.communicator import Communicator
from softnic.comm.errors import CommError, LaunchError
from softnic.comm.launch import DEFAULT_TIMEOUT_S, Launch
from softnic.comm.transport import Transport
from softnic.comm.wire import CHANNELS
from softnic.comm.world import World


class Store(Protocol):
    """What the processes of a job share, as torch.distributed.Store: keys that are set once."""

    def set(self, key: str, value: Any, /) -> None:
        """Of text or bytes."""

    def get(self, key: str, /) -> bytes:
        """Waits until the key is set. Raises an error of its own when it has waited too long."""


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

    All call it, with one `name` that no other meeting in this store has had. Raises CommError, naming the rank that
    did not come within `timeout_s`, or whose address the store did not tell.
    """
    if not 0 <= rank < size:
        raise LaunchError(f"rank {rank} of {size}: a rank is 0 or more and less than the size")
    transport = transport or Transport()
    prefix = f"softnic/{name}"
    try:
        listener = transport.listen((transport.address(), 0), CHANNELS * size) if size > 1 else None
    except OSError as error:
        raise CommError(f"rank {rank} cannot meet the others: {error}", rank=rank) from error
    try:
        own = ("", 0) if listener is None else listener.getsockname()
        store.set(f"{prefix}/{rank}", f"{own[0]}:{own[1]}")
        addresses = tuple(own if other == rank else _published(store, prefix, other) for other in range(size))
        communicator = Communicator(World(Launch(rank, addresses, "store", timeout_s), transport, listener))
    except BaseException:
        if listener is not None:
            listener.close()
        raise
    communicator.Init()
    return communicator


def _published(store: Store, prefix: str, rank: int) -> tuple[str, int]:
    """Where a rank listens, once it has said so."""
    try:
        text = bytes(store.get(f"{prefix}/{rank}")).decode()
        host, _, port = text.rpartition(":")
        return host, int(port)
    except Exception as error:  # each store has errors of its own
        raise CommError(f"the store does not tell where rank {rank} is: {error}", rank=rank) from error
