"""What a program writes to a stream in registered mode.

A record that breaks a rule ends its stream and no other; what was not asked for never comes; memory outside the region
is not touched; nothing is left in the end.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from tests.facades.ipc import BYTES, FLAG_SIGNALED, PLACED, RECEIVE, RECORD, SEND, SENT, TAG, TAG_RECORD, control
from tests.fuzz.python._daemon import REGION, Lab, read_all, write
from tests.fuzz.python._input import Input

_PORT = 5000
_lab: list[Lab] = []


def feed(data: bytes) -> None:
    """Input: pieces: whose (1 byte: bit 0), bytes (2, of which 12 bits count), what that end of the connection writes;
    both are in registered mode."""
    if not _lab:
        _lab.append(Lab())
    lab = _lab[0]
    one, other, first, second = lab.connected(_PORT)
    descriptor = lab.region()
    memory = mmap.mmap(descriptor, REGION)
    kept = os.dup(descriptor)
    lab.call(control.Register(), descriptor)
    for number in (one, other):
        lab.call(control.UseRecords(number))
    given = Input(data)
    said = [b"", b""]
    while given:
        which = given.number(1) & 1
        write((first, second)[which], given.take(given.number(2) & 0xFFF))
        lab.turn(2)
        for index, end in enumerate((first, second)):
            said[index] += read_all(end)
    lab.turn(8)
    for index, end in enumerate((first, second)):
        _check_records(said[index] + read_all(end))
    memory.close()
    os.close(kept)
    lab.clean()


def _check_records(said: bytes) -> None:
    """What a NIC says is records that NICs send."""
    at = 0
    while len(said) - at >= RECORD.size:
        kind, *_, size = RECORD.unpack_from(said, at)
        assert kind in (SENT, PLACED, BYTES)
        at += RECORD.size + (size if kind == BYTES else 0)


def _piece(which: int, *records: bytes) -> bytes:
    data = b"".join(records)
    return bytes([which]) + len(data).to_bytes(2, "little") + data


def seeds() -> Iterator[bytes]:
    send = RECORD.pack(SEND, FLAG_SIGNALED, 3, 0, 1, 64, 4000)
    tag = TAG_RECORD.pack(TAG, 0, 0x28, 0, b"bfp:7")
    receive = RECORD.pack(RECEIVE, 0, 3, 1000, 1, 8192, 4000)
    through = RECORD.pack(RECEIVE, 0, 0, 0, 0, 0, 100)
    plain = RECORD.pack(BYTES, 0, 5, 0, 0, 0, 100) + bytes(100)
    yield _piece(1, receive) + _piece(0, send)
    yield _piece(1, receive, through) + _piece(0, tag, send, TAG_RECORD.pack(TAG, 0, 0, 0, b""), plain)
    yield _piece(0, plain, send[:10]) + _piece(1, through) + _piece(0, send[10:])
    yield _piece(0, RECORD.pack(SEND, 0, 0, 0, 1, REGION - 8, 16)) + _piece(1, RECORD.pack(RECEIVE, 0, 0, 0, 9, 0, 1))
