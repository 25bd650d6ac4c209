"""All members of a torchft job send their state to one that joins: what torchft's hooks leave out.

    transport = SoftnicTransport(timeout=timedelta(seconds=60))
    manager = torchft.Manager(pg=pg, ..., checkpoint_transport=transport)
    serve_from_all(manager, pg, transport)

torchft hands the state to the transport of the one member that it assigns to a joiner, and gives the joiner that one's
address. Two things are missing for the others, and this file has both:

- Their state. `transport.metadata()` is called on all members when a step begins, and `disallow_checkpoint()` before
  the optimizer changes the state. In between, the manager's own function returns the state that it would send; it is
  private (`Manager._manager_state_dict`, torchft 0.2).
- Their addresses. `pg.configure` is called on all members of a new quorum with the address of a store that is theirs
  alone. Each writes its own there before the group connects, so that all are there when a state is received.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from softnic.checkpoint import CheckpointError
from softnic.checkpoint.receiver import Address
from softnic.torch.checkpoint import SoftnicTransport, parse_metadata
from softnic.torch.stores import EpochStores

_STORE_S = 5.0


class _Quorum:
    """The members of the last quorum, as its store has them."""

    def __init__(self, transport: SoftnicTransport) -> None:
        self._transport = transport
        self._stores = EpochStores()
        self._store: Any = None
        self._keys: list[str] = []

    def enter(self, store_address: str, rank: int, size: int) -> None:
        """Write this member's address. A store that fails leaves the assigned member as the only source."""
        self._store, self._keys = None, []
        try:
            store = self._stores.open(store_address, timedelta(seconds=_STORE_S))
            store.set(_key(rank), json.dumps({"softnic": list(self._transport.address)}))
        except (RuntimeError, ValueError):  # torch's errors of stores
            return
        self._store, self._keys = store, [_key(other) for other in range(size) if other != rank]

    def others(self) -> list[Address]:
        """Return the addresses that the other members have written."""
        found = []
        for number, key in enumerate(self._keys):
            try:
                if self._store.check([key]):
                    found.append(parse_metadata(number, self._store.get(key).decode()))
            except (RuntimeError, ValueError, CheckpointError):  # its member, or the store's, has ended
                continue
        return found


def _key(rank: int) -> str:
    return f"softnic/checkpoint/{rank}"


def serve_from_all(manager: Any, pg: Any, transport: SoftnicTransport) -> None:
    """Have every member of a job send its state to one that joins.

    All members call this, before their first step.

    Parameters
    ----------
    manager : torchft.Manager
        Of this member, made with `transport` as its checkpoint_transport.
    pg : torchft.process_group.ProcessGroup
        The one that the manager has.
    transport : SoftnicTransport
        Of this member.

    Raises
    ------
    CheckpointError
        If this release of torchft has not what is needed. The assigned member alone sends then.
    """
    state: Callable[[], object] | None = getattr(manager, "_manager_state_dict", None)
    if state is None:
        raise CheckpointError("this torchft has no Manager._manager_state_dict: only the assigned member can send")
    quorum, configure = _Quorum(transport), pg.configure

    def configured(store_addr: str, replica_id: str, rank: int, world_size: int, *rest: Any, **named: Any) -> None:
        quorum.enter(store_addr, rank, world_size)
        configure(store_addr, replica_id, rank, world_size, *rest, **named)

    pg.configure = configured
    transport.join_members(quorum.others, lambda: (manager.current_step(), state))
