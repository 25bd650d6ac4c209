"""Exchanges of pickled objects between the ranks of a communicator, inside a collective call."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

from softnic.comm import buffers
from softnic.comm.connections import Session
from softnic.comm.matching import Call


def exchange(
    session: Session,
    name: str,
    obj: Any,
    receivers: Iterable[int],
    sources: Iterable[int],
    root: int = -1,
    op: str = "",
) -> dict[int, Any]:
    """Sends `obj` to the receivers; returns what the sources sent. All ranks call this, as the call `name`."""
    data = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
    call = Call(session.head(name, None, op, root), session.progress)
    parts = session.matcher.exchange(call, dict.fromkeys(receivers, data), sources)
    return {rank: pickle.loads(part) for rank, part in parts.items()}


def gather_all(session: Session, name: str, obj: Any, op: str = "") -> list[Any]:
    """The objects of all ranks, in rank order."""
    others = list(session.progress.peers)
    found = exchange(session, name, obj, others, others, op=op)
    return [obj if rank == session.progress.rank else found[rank] for rank in range(len(others) + 1)]


def receive_counts(session: Session, call: str, send: Any, receive: Any, counts: Any) -> Any:
    """The `recvcounts` of a Reduce_scatter.

    None stands for the length of each rank's receive buffer, as in mpi4py, if these add up to the input. Otherwise it
    stays None, for near-equal blocks.
    """
    if counts is not None or buffers.is_in_place(send):
        return counts
    source = buffers.flat(send, what="the send buffer")
    own = buffers.flat(receive, writable=True, what="the receive buffer")
    if buffers.same_memory(source, own):
        return None
    lengths = gather_all(session, f"{call} without recvcounts", own.size)
    return lengths if sum(lengths) == source.size else None
