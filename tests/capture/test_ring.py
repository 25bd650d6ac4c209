"""The ring of a capture: its blocks are those of the format, in order, whole, or dropped and counted."""

from __future__ import annotations

import random
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic.capture.pcapng import Direction
from softnic.capture.ring import CaptureRing
from softnic.packet.frames import Frames

from .blocks import packets

BATCHES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 2**62),
        st.lists(st.binary(max_size=200), min_size=1, max_size=5),
        st.sampled_from(Direction),
        st.one_of(st.just(0), st.integers(1, 2**64 - 1)),
    ),
    max_size=12,
)


@given(BATCHES, st.one_of(st.just(0), st.integers(1, 220)), st.integers(0, 3000), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_blocks_are_whole_and_in_order_or_counted(
    batches: list[tuple[int, int, list[bytes], Direction, int]], snaplen: int, limit: int, rng: random.Random
) -> None:
    ring = CaptureRing(0, 1, snaplen=snaplen, limit_bytes=limit)
    queued, taken, wanted = 0, b"", b""
    received, dropped = [0, 0], [0, 0]
    for side, time_ns, frames, direction, number in batches:
        ring.write(side, time_ns, Frames.of(frames), direction, number)
        blocks = packets(side, time_ns, Frames.of(frames), direction, packet_id=number, snaplen=snaplen)
        received[side] += len(frames)
        if queued + len(blocks) <= limit:
            queued, wanted = queued + len(blocks), wanted + blocks
        else:
            dropped[side] += len(frames)
        assert ring.queued_bytes == queued
        if rng.random() < 0.3:
            taken, queued = taken + ring.take(), 0
    ring.end(b"statistics")
    assert taken + ring.take() == wanted + b"statistics"
    assert (list(ring.received.values()), list(ring.dropped.values())) == (received, dropped)


def test_a_reader_that_takes_little_at_a_time_gets_all() -> None:
    """The ring wraps around at every length of what is queued."""
    ours, theirs = socket.socketpair()
    rng, wanted, got = random.Random(3), bytearray(), bytearray()
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        theirs.setblocking(False)
        ours.setblocking(False)
        ring = CaptureRing(4, -1, snaplen=0, limit_bytes=20_000, descriptor=theirs.fileno())
        for number in range(3000):
            frames = Frames.of([rng.randbytes(rng.randrange(400)) for _ in range(rng.randrange(1, 5))])
            before = ring.dropped[4]
            ring.write(4, number, frames, Direction.OUTBOUND, number)
            if ring.dropped[4] == before:
                wanted += packets(4, number, frames, Direction.OUTBOUND, packet_id=number)
            ring.flush()
            got += received(ours, rng.randrange(1200))
        assert 0 < ring.dropped[4] < 7000
        while ring.queued_bytes:
            ring.flush()
            got += received(ours, 1 << 16)
        while more := received(ours, 1 << 16):
            got += more
    assert got == wanted
    assert not ring.has_failed


def received(ours: socket.socket, size: int) -> bytes:
    """Return what can be read now, at most `size` bytes."""
    try:
        return ours.recv(size) if size else b""
    except BlockingIOError:
        return b""


def test_a_side_that_is_left_out_is_not_counted() -> None:
    ring = CaptureRing(-1, 3, snaplen=0, limit_bytes=1000)
    ring.write(3, 1, Frames.of([b"abc"]), Direction.INBOUND, 0)
    assert (ring.received, ring.dropped) == ({3: 1}, {3: 0})
    with pytest.raises(ValueError, match="interface 0 is not of this capture"):
        ring.write(0, 1, Frames.of([b"abc"]), Direction.INBOUND, 0)


def test_nothing_is_recorded_after_the_end_or_without_a_reader() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ring = CaptureRing(0, 1, snaplen=0, limit_bytes=1000, descriptor=theirs.fileno())
        ours.close()
        ring.write(0, 1, Frames.of([b"abc"]), Direction.INBOUND, 0)
        ring.flush()
        assert ring.has_failed
        ring.write(0, 1, Frames.of([b"abc"]), Direction.INBOUND, 0)
        assert ring.received == {0: 1, 1: 0}
    ended = CaptureRing(0, 1, snaplen=0, limit_bytes=1000)
    ended.end(b"")
    ended.write(1, 1, Frames.of([b"abc"]), Direction.INBOUND, 0)
    assert (ended.received, ended.queued_bytes) == ({0: 0, 1: 0}, 0)
    with pytest.raises(ValueError, match="too many for the end"):
        ended.end(bytes(1 << 20))
    ended.close()
    ended.write(1, 1, Frames.of([b"abc"]), Direction.INBOUND, 0)
    assert ended.queued_bytes == 0
