"""How pickled objects move between ranks: in slots of one length, and what is longer in a second exchange.

A slot has the length of its object and that of the longest one that its sender sends: from these all ranks know
whether there is a second exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softnic.collectives.elements import Array
from softnic.comm.connections import CommConnections
from softnic.mpi import pickling
from softnic.mpi.arguments import buffers, collective_args
from softnic.mpi.arguments.blocks import BYTES
from softnic.mpi.collectives import execution
from softnic.mpi.collectives.parts import BlockArgs, moved_blocks

SLOT_BYTES = 512
"""Bytes of each object in the first exchange, its length included. A second one moves the rest of longer objects."""
_LENGTH_BYTES = 8
HEAD_BYTES = SLOT_BYTES - 2 * _LENGTH_BYTES


def gather_integers(connections: CommConnections, call: str, number: int) -> list[int]:
    """Return one integer of every rank, in rank order."""
    rank, size = _place(connections)
    numbers = np.zeros(size, np.int64)
    numbers[rank] = number
    execution.run(connections, call, collective_args.allgather(size, rank, buffers.IN_PLACE, numbers))
    return [int(each) for each in numbers]


def gather_objects(
    connections: CommConnections,
    call: str,
    obj: Any,
    senders: Sequence[int],
    root: int = -1,
    op_name: str = "",
    *,
    at_root: bool = False,
) -> list[Any]:
    """Return the objects of the senders, in their order. All ranks call this; only senders contribute `obj`.

    Parameters
    ----------
    root, op_name
        What the ranks compare.
    at_root
        Only the root needs the objects; others get an empty list.
    """
    rank, size = _place(connections)
    data = _pickled(obj) if rank in senders else b""
    counts = tuple(SLOT_BYTES if each in senders else 0 for each in range(size))
    starts = np.cumsum((0, *counts))
    slots = np.zeros(starts[-1], np.uint8)
    if rank in senders:
        _fill(slots[starts[rank] : starts[rank + 1]], data, len(data))
    execution.run(connections, call, collective_args.gathered_bytes(counts, slots, root, op_name))
    heads = {each: slots[starts[each] : starts[each + 1]] for each in senders}
    lengths = {each: _lengths(head)[0] for each, head in heads.items()}
    tails: dict[int, Array] = {}
    if max(lengths.values(), default=0) > HEAD_BYTES:
        longer = [_beyond(lengths.get(each, 0)) for each in range(size)]
        own = np.frombuffer(data, np.uint8)[HEAD_BYTES:]
        tails = _gather_tails(connections, call, longer, own, root, op_name, at_root)
    if at_root and rank != root:
        return []
    return [_unpickled(heads[each], lengths[each], tails.get(each)) for each in senders]


def _gather_tails(
    connections: CommConnections, call: str, counts: list[int], own: Array, root: int, op_name: str, at_root: bool
) -> dict[int, Array]:
    """Return what the objects of the ranks have beyond their slots."""
    rank, size = _place(connections)
    if not at_root:
        starts = np.cumsum((0, *counts))
        tails = np.empty(starts[-1], np.uint8)
        tails[starts[rank] : starts[rank + 1]] = own
        execution.run(connections, call, collective_args.gathered_bytes(tuple(counts), tails, root, op_name))
        return {each: tails[starts[each] : starts[each + 1]] for each in range(size)}
    found = {each: np.empty(counts[each], np.uint8) for each in range(size) if rank == root != each}
    given = {rank: own} if rank != root else {}
    blocks = tuple(count if each in found or each in given else 0 for each, count in enumerate(counts))
    args = BlockArgs("gather", "direct", BYTES, blocks, given, found, root=root, op_name=op_name)
    execution.run(connections, call, args)
    return {**found, rank: own}


def scatter_objects(connections: CommConnections, call: str, items: Sequence[Any], root: int) -> Any:
    """Return this rank's item of the root's. All ranks call this; others than the root pass none."""
    rank, _ = _place(connections)
    data = [_pickled(item) for item in items]
    greatest = max(map(len, data), default=0)
    slots = {each: _slot(part, greatest) for each, part in enumerate(data)}
    head = slots.get(rank, np.empty(SLOT_BYTES, np.uint8))
    _scatter(connections, call, slots, head, root)
    length, greatest = _lengths(head)
    tail = np.empty(_beyond(length), np.uint8)
    if greatest > HEAD_BYTES:
        tails = {each: np.frombuffer(part, np.uint8)[HEAD_BYTES:] for each, part in enumerate(data)}
        tail = tails.get(rank, tail)
        _scatter(connections, call, tails, tail, root)
    return _unpickled(head, length, tail)


def _scatter(connections: CommConnections, call: str, given: dict[int, Array], own: Array, root: int) -> None:
    """Send the blocks of the root, or receive this rank's."""
    rank, size = _place(connections)
    sent = {each: block for each, block in given.items() if each != rank}
    results = {rank: own} if rank != root else {}
    moved = moved_blocks(size, sent, results)
    execution.run(connections, call, BlockArgs("scatter", "direct", BYTES, *moved, root=root))


def exchange_objects(connections: CommConnections, call: str, items: Sequence[Any], op_name: str = "") -> list[Any]:
    """Send each rank its item, and return those for this rank. All ranks call this; they compare `op_name`."""
    rank, size = _place(connections)
    pickled = {key: _pickled(item) for key, item in {id(item): item for item in items}.items()}
    data = [pickled[id(item)] for item in items]
    greatest = max(map(len, data))
    heads = [np.empty(SLOT_BYTES, np.uint8) for _ in range(size)]
    heads[rank] = _slot(data[rank], greatest)
    _exchange(connections, call, [_slot(part, greatest) for part in data], heads, op_name)
    lengths = [_lengths(head) for head in heads]
    tails = [np.empty(_beyond(length), np.uint8) for length, _ in lengths]
    if max(longest for _, longest in lengths) > HEAD_BYTES:
        given = [np.frombuffer(part, np.uint8)[HEAD_BYTES:] for part in data]
        tails[rank] = given[rank]
        _exchange(connections, call, given, tails, op_name)
    return [_unpickled(head, length, tail) for head, (length, _), tail in zip(heads, lengths, tails, strict=True)]


def _exchange(
    connections: CommConnections, call: str, given: Sequence[Array], taken: Sequence[Array], op_name: str
) -> None:
    """Send each other rank its block, and receive those of the others."""
    rank, size = _place(connections)
    sent = {each: block for each, block in enumerate(given) if each != rank}
    results = {size + each: block for each, block in enumerate(taken) if each != rank}
    moved = moved_blocks(2 * size, sent, results)
    execution.run(connections, call, BlockArgs("alltoall", "direct", BYTES, *moved, op_name=op_name))


def _place(connections: CommConnections) -> tuple[int, int]:
    """Return this rank, and the number of ranks."""
    return connections.progress.rank, len(connections.progress.peers) + 1


def _pickled(obj: Any) -> bytes:
    return pickling.pickle.dumps(obj)


def _slot(data: bytes, greatest: int) -> Array:
    slot = np.zeros(SLOT_BYTES, np.uint8)
    _fill(slot, data, greatest)
    return slot


def _fill(slot: Array, data: bytes, greatest: int) -> None:
    content = b"".join(length.to_bytes(_LENGTH_BYTES, "little") for length in (len(data), greatest)) + data[:HEAD_BYTES]
    slot[: len(content)] = np.frombuffer(content, np.uint8)


def _lengths(slot: Array) -> tuple[int, int]:
    """Return the length of a slot's object, and that of the longest of its sender."""
    first = slot[: 2 * _LENGTH_BYTES].tobytes()
    return int.from_bytes(first[:_LENGTH_BYTES], "little"), int.from_bytes(first[_LENGTH_BYTES:], "little")


def _beyond(length: int) -> int:
    return max(0, length - HEAD_BYTES)


def _unpickled(slot: Array, length: int, tail: Array | None) -> Any:
    data = slot[2 * _LENGTH_BYTES : 2 * _LENGTH_BYTES + length].tobytes()
    return pickling.pickle.loads(data if tail is None or not tail.size else b"".join((data, tail.data)))
