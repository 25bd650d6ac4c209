"""What NICs send a recorder: blocks of several sources, in pieces.

All that comes out came in, each block once, in order of time within a round; bytes that are no blocks are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from softnic.capture import pcapng
from softnic.capture.capture_file import CaptureError
from softnic.capture.merge import Merger
from softnic.capture.pcapng import Direction
from softnic.packet.frames import Frames
from tests.capture.blocks import packets
from tests.fuzz.python._input import Input

_SOURCES = 3


def feed(data: bytes) -> None:
    """Input: source (1 byte; 255: a round ends), bytes of a piece (2), the piece."""
    given, merger = Input(data), Merger()
    fed, taken = 0, 0
    while given:
        source = given.number(1)
        if source == 255:
            taken += len(merger.take())
            continue
        piece = given.take(given.number(2))
        fed += len(piece)
        try:
            merger.feed(source % _SOURCES, piece)
        except CaptureError:
            return
        assert merger.held_bytes <= fed - taken
    taken += len(merger.finish())
    assert merger.held_bytes == 0
    assert taken <= fed


def seeds() -> Iterator[bytes]:
    frames = Frames.of([bytes(60), bytes(61)])
    blocks = [packets(0, time, frames, Direction.OUTBOUND, packet_id=time) for time in (5, 3, 9)]
    blocks.append(pcapng.InterfaceStatistics(0, start_ns=1, end_ns=20, received=3, dropped=1).block())
    pieces = [bytes([number % 2]) + len(block).to_bytes(2, "little") + block for number, block in enumerate(blocks)]
    yield b"".join(pieces)
    yield b"\xff".join(pieces)
    whole = b"".join(blocks)
    yield b"".join(b"\x01\x1d\x00" + whole[at : at + 29] for at in range(0, len(whole) - 28, 29))
