"""Arbitrary work requests of processes, and arbitrary messages between engines.

A message that cannot be ends its group, with a reason, on every rank; the NIC itself fails at nothing, and nothing of
the group is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from socket import socket

from softnic.collectives import messages
from softnic.ipc import control, work_queue
from softnic.ipc.work_queue import CancelRequest, StagedPart, WorkRequest
from tests.fuzz.python._daemon import REGION, Lab, read_all, write
from tests.fuzz.python._input import Input

_lab: list[Lab] = []


@dataclass
class _Group:
    """What programs hold: group sockets, or the bare connections of a rank that joined none."""

    sockets: tuple[socket, ...]


def _join(lab: Lab, both: bool) -> _Group:
    """Two ranks of one NIC; or rank 0 alone, and a peer who says what it likes on both connections."""
    first, second, _, peers_words = lab.connected(5000)
    third, fourth, _, peers_data = lab.connected(5001)
    for _ in range(2):
        lab.call(control.Register(), lab.region())
    lab.call(control.Join(0, [0, first], [0, third]), lab.packets())
    own = lab.ends[-1]
    if not both:
        return _Group((own, peers_words, peers_data))
    lab.call(control.Join(1, [second, 0], [fourth, 0]), lab.packets())
    return _Group((own, lab.ends[-1]))


def feed(data: bytes) -> None:
    """Input: whether both ranks have joined (1 byte), then messages: to whom (1), bytes (2, of which 12 bits count)."""
    if not _lab:
        _lab.append(Lab())
    lab, given = _lab[0], Input(data)
    group = _join(lab, bool(given.number(1) & 1))
    while given:
        end = group.sockets[given.number(1) % len(group.sockets)]
        write(end, given.take(given.number(2) & 0xFFF))
        lab.turn(3)
        for each in group.sockets:
            read_all(each)
    lab.turn(8)
    lab.clean()


def _message(whom: int, packet: bytes) -> bytes:
    return bytes([whom]) + len(packet).to_bytes(2, "little") + packet


def _post(number: int, collective: str, region: int, **fields: object) -> WorkRequest:
    algorithm = "tree" if collective in ("bcast", "reduce") else "ring"
    counts = (100,) if algorithm == "tree" else (50, 50)
    root = 0 if algorithm == "tree" else -1
    op = "" if collective in ("allgather", "bcast") else "SUM"
    kept = {"op": op, "root": root, "codec": "bounded:10", **fields}
    memory = ((region, 0), (region, 4096))
    return WorkRequest(number, f"I{collective}", collective, algorithm, "float32", counts, *memory, **kept)  # type: ignore[arg-type]


def seeds() -> Iterator[bytes]:
    for collective in ("allreduce", "reduce_scatter", "allgather", "bcast", "reduce"):
        posts = [work_queue.encode(_post(1, collective, 1)), work_queue.encode(_post(1, collective, 2))]
        yield b"\x01" + _message(0, posts[0]) + _message(1, posts[1]) + _message(0, work_queue.encode(CancelRequest(1)))
        parts = [work_queue.encode(StagedPart(1, block, size)) for block, size in ((0, 64), (1, 200), (0, 200))]
        staged = work_queue.encode(_post(1, collective, 1, staged=True))
        yield b"\x00" + _message(0, staged) + b"".join(_message(0, part) for part in parts)
        head = messages.pack(messages.header_of(_post(1, collective, 1)))
        yield b"\x00" + _message(0, posts[0]) + _message(1, head) + _message(2, bytes(400))
    other = work_queue.encode(_post(1, "allreduce", 1, codec="", op="MAX"))
    yield b"\x01" + _message(0, other) + _message(1, work_queue.encode(_post(2, "allgather", 1)))
    yield b"\x00" + _message(0, other) + _message(1, messages.pack(messages.EngineAbort(1, "why")))
    outside = _post(1, "allreduce", 1)
    yield b"\x01" + _message(0, work_queue.encode(outside).replace(b"\xcd\x10\x00", REGION.to_bytes(3, "big")))
