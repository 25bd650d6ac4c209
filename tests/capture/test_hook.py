"""Taps and sinks: nothing costs where nobody looks, nothing waits for a reader, everything missing is counted."""

from __future__ import annotations

import errno
import os
import signal
import socket
from types import FrameType

import pytest

from softnic.capture import pcapng, reader
from softnic.capture.capture_file import CaptureError
from softnic.capture.captured_link import CapturedLink
from softnic.capture.hook import MAX_CAPTURES, CaptureHook
from softnic.capture.merge import Merger
from softnic.capture.pcapng import Direction
from softnic.capture.sink import CaptureSink
from softnic.link.memory import MemoryNetwork
from softnic.packet.frames import Frames
from softnic.packet.ipv4 import checksum
from softnic.packet.segment import Flags, Options, Segment, Transmitted

from .blocks import packets
from .lab import ARP, EPOCH_NS, IPS, TOS, Lab, gradient

HEAD = (
    pcapng.section_header("softnic") + pcapng.interface_description("a:host") + pcapng.interface_description("a:wire")
)
BATCH = Frames.of([ARP] * 10)


def pair(limit_bytes: int = 1 << 20, wire_interface: int = 1) -> tuple[CaptureSink, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return CaptureSink(
        theirs.detach(), host_interface=0, wire_interface=wire_interface, limit_bytes=limit_bytes, start_ns=5
    ), ours


def take(sink: CaptureSink, ours: socket.socket) -> bytes:
    """Ends a capture as its reader does, and gives all of it."""
    ours.shutdown(socket.SHUT_WR)
    parts: list[bytes] = []
    while True:
        sink.poll(9)
        try:
            data = ours.recv(1 << 16)
        except BlockingIOError:
            continue
        if not data:
            ours.close()
            return b"".join(parts)
        parts.append(data)


# Sinks


def test_a_capture_ends_with_its_statistics() -> None:
    sink, ours = pair()
    sink.write(1, 7, BATCH, Direction.OUTBOUND, 3)
    sink.write(0, 8, Frames.of([ARP]), Direction.INBOUND, 0)
    capture = reader.parse(HEAD + take(sink, ours))
    assert sink.closed
    assert capture.interface.tolist() == [1] * 10 + [0]
    assert capture.time_ns.tolist() == [7] * 10 + [8]
    assert [(one.received, one.dropped) for one in capture.interfaces] == [(1, 0), (10, 0)]


def test_a_slow_reader_loses_whole_batches_and_is_told_how_many() -> None:
    sink, ours = pair(limit_bytes=100_000)
    for _ in range(3000):
        sink.write(1, 7, BATCH, Direction.OUTBOUND, 3)
    assert 0 < sink.queued_bytes <= 100_000 + 2000
    dropped = sink.dropped[1]
    assert 0 < dropped < 30_000
    capture = reader.parse(HEAD + take(sink, ours))
    assert len(capture) == 30_000 - dropped
    assert [(one.received, one.dropped) for one in capture.interfaces] == [(0, 0), (30_000, dropped)]


def test_a_reader_that_left_ends_the_capture() -> None:
    sink, ours = pair()
    ours.close()
    sink.write(1, 7, BATCH, Direction.OUTBOUND, 0)
    assert sink.closed
    sink.write(1, 7, BATCH, Direction.OUTBOUND, 0)
    sink.poll(8)
    assert sink.queued_bytes == 0


def test_an_interface_left_out_takes_nothing() -> None:
    sink, ours = pair(wire_interface=-1)
    sink.write(-1, 7, BATCH, Direction.OUTBOUND, 0)
    sink.write(0, 7, Frames.of([]), Direction.OUTBOUND, 0)
    capture = reader.parse(HEAD + take(sink, ours))
    assert len(capture) == 0
    assert [one.received for one in capture.interfaces] == [0, None]


@pytest.mark.parametrize(
    ("numbers", "snaplen", "problem"),
    [((-2, 0), 0, "interface number"), ((0, 1 << 16), 0, "interface number"), ((0, 1), -1, "snaplen")],
)
def test_numbers_out_of_range_are_refused(numbers: tuple[int, int], snaplen: int, problem: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(OSError, match=problem):
        CaptureSink(theirs.fileno(), host_interface=numbers[0], wire_interface=numbers[1], snaplen=snaplen)


@pytest.mark.parametrize("act", ["poll", "flush", "write"])
def test_nothing_blocks_on_a_socket_that_a_program_set_to_blocking(act: str) -> None:
    """The program keeps a copy of the sink's end: they share one open file description, and so O_NONBLOCK."""
    ours, theirs = socket.socketpair()
    with ours, theirs, Deadline():
        sink = CaptureSink(os.dup(theirs.fileno()), host_interface=0, wire_interface=1, limit_bytes=4 << 20)
        while not sink.queued_bytes:
            sink.write(1, 7, BATCH, Direction.OUTBOUND, 3)
        theirs.setblocking(True)
        if act == "poll":
            sink.poll(9)
        elif act == "flush":
            sink.flush()
        else:
            sink.write(1, 7, BATCH, Direction.OUTBOUND, 3)
        assert not sink.closed
        sink.close()


class Deadline:
    """Raises TimeoutError in what blocks for longer."""

    def __init__(self) -> None:
        self._before = signal.getsignal(signal.SIGALRM)

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._over)
        signal.alarm(20)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self._before)

    @staticmethod
    def _over(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise TimeoutError("blocked")


def test_only_unix_stream_sockets_are_taken() -> None:
    readable, writable = os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs, socket.socket() as internet:
        for descriptor in (writable, theirs.fileno(), internet.fileno()):
            with pytest.raises(OSError, match=r"."):
                CaptureSink(descriptor, host_interface=0, wire_interface=1)
        os.close(readable)
        os.close(writable)
        assert ours.send(b"still open") == 10


# The capture hook and the link tap


def test_captures_come_and_go() -> None:
    lab = Lab()
    lab.connect()
    first = lab.file()
    assert not any(station.hook.sinks for station in lab.stations)
    lab.send(b"nobody looks")
    lab.readers = [lab.start(number) for number in (0, 1)]
    lab.send(b"again")
    second = lab.file()
    assert len(reader.parse(first)) == 12
    assert len(reader.parse(second)) == 8
    counters = lab.stations[0].link.counters()
    assert (counters["capture_frames"], counters["capture_dropped"]) == (10, 0)
    assert counters["link_sent_frames"] == 4, "the inner link's counters are told too"


def test_captures_have_a_limit() -> None:
    hook = CaptureHook(IPS[0])
    readers = []
    for _ in range(MAX_CAPTURES):
        ours, theirs = socket.socketpair()
        readers.append(ours)
        hook.start(theirs.detach(), 0.0, host_interface=0, wire_interface=1)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(OSError, match="captures are in progress") as caught:
        hook.start(theirs.fileno(), 0.0, host_interface=0, wire_interface=1)
    assert caught.value.errno == errno.EBUSY
    hook.close()
    for one in readers:
        assert one.recv(10) == b""
        one.close()


def test_a_tap_is_the_link_it_stands_around() -> None:
    inner, other = (network := MemoryNetwork()).port(mtu=900), network.port()
    tap = CapturedLink(inner, CaptureHook(IPS[0]))
    assert tap.mtu == 900
    assert tap.tx_space(0.0) == inner.tx_space(0.0)
    assert tap.next_time() is None
    other.send(BATCH, 2.0)
    assert tap.next_time() == 2.0
    assert tap.receive(2.0) is BATCH
    tap.close()
    other.send(BATCH, 3.0)
    assert inner.counted.received_frames == 10


def test_a_tap_asks_for_time_only_while_someone_looks() -> None:
    hook = CaptureHook(IPS[0])
    tap = CapturedLink(MemoryNetwork().port(), hook)
    tap.advance(1.0)
    assert tap.next_time() is None
    ours, theirs = socket.socketpair()
    hook.start(theirs.detach(), 1.0, host_interface=0, wire_interface=1)
    assert tap.next_time() == 0.0, "at once"
    tap.advance(1.0)
    watch = tap.next_time()
    assert watch is not None
    assert 1.0 < watch < 1.1
    ours.close()
    tap.advance(watch)
    assert tap.next_time() is None


def test_a_tap_does_not_ask_at_once_again_for_a_reader_that_takes_nothing() -> None:
    hook = CaptureHook(IPS[0])
    tap = CapturedLink(MemoryNetwork().port(), hook)
    ours, theirs = socket.socketpair()
    with ours:
        sink = hook.start(theirs.detach(), 1.0, host_interface=0, wire_interface=1)
        while not sink.queued_bytes:
            tap.send(BATCH, 1.0)
        for now in (1.0, 1.001, 2.0):
            tap.advance(now)
            assert sink.queued_bytes
            due = tap.next_time()
            assert due is not None
            assert now < due <= now + 0.001
        tap.close()


def test_times_are_the_clocks_own_and_the_epochs() -> None:
    lab = Lab()
    lab.connect()
    times = reader.parse(lab.file()).time_ns
    assert sorted(set(times.tolist())) == [EPOCH_NS + step * 1_000_000 for step in (1, 2, 3)]


# Host frames


def shown(segment: Segment, consumed: int, number: int = 0) -> list[bytes]:
    """Return the frames that a capture shows for a segment."""
    hook = CaptureHook(IPS[0])
    ours, theirs = socket.socketpair()
    sink = hook.start(theirs.detach(), 0.0, host_interface=0, wire_interface=1)
    hook.sent(segment, Transmitted(consumed, 1, 0, number), 0.0)
    capture = reader.parse(HEAD + take(sink, ours))
    return [capture.data[at : at + size].tobytes() for at, size in zip(capture.offset, capture.captured, strict=True)]


def sums_are_right(frame: bytes) -> bool:
    """Whether the checksums of a TCP segment over IPv4 are."""
    pseudo_header = frame[26:34] + bytes([0, 6]) + (len(frame) - 34).to_bytes(2)
    return not checksum(frame[14:34]) and not checksum(pseudo_header + frame[34:])


def test_long_segments_become_whole_ipv4_packets() -> None:
    payload = gradient(50_000).tobytes()
    segment = Segment(
        IPS[0],
        IPS[1],
        1,
        2,
        2**32 - 5,
        9,
        Flags.ACK | Flags.PSH | Flags.FIN,
        77,
        TOS,
        (1, 2),
        payload=memoryview(payload),
    )
    frames = shown(segment, len(payload), 5)
    payloads = [frame[66:] for frame in frames]
    assert b"".join(payloads) == payload
    assert len(payloads) == 4
    assert all(len(each) % 64 == 0 for each in payloads[:-1])
    assert [frame[47] & 9 for frame in frames] == [0, 0, 0, 9], "PSH and FIN on the last alone"
    assert [int.from_bytes(frame[18:20]) for frame in frames] == [5, 6, 7, 8]
    starts = [2**32 - 5 + sum(map(len, payloads[:index])) for index in range(4)]
    assert [int.from_bytes(frame[38:42]) for frame in frames] == [start % 2**32 for start in starts]
    assert all(sums_are_right(frame) for frame in frames)
    in_part = shown(segment, 640, 5)
    assert len(in_part) == 1
    assert in_part[0][47] & 9 == 0


def test_a_syn_shows_the_options_of_tcp_but_not_the_nics() -> None:
    segment = Segment(IPS[0], IPS[1], 1, 2, 7, 0, Flags.SYN, 77, options=Options(1460, 7, True, codecs=7))
    (frame,) = shown(segment, 0)
    assert frame[54:] == bytes.fromhex("020405b40402030307010101")


# Merging


def blocks(*times: int) -> bytes:
    return b"".join(packets(0, time, Frames.of([ARP]), Direction.OUTBOUND) for time in times)


def times_of(data: bytes) -> list[int]:
    times: list[int] = reader.parse(HEAD + data).time_ns.tolist()
    return times


def test_rounds_put_sources_in_order_of_time() -> None:
    merger = Merger()
    merger.feed(0, blocks(10, 30, 50))
    merger.feed(1, blocks(20, 40))
    assert times_of(merger.take()) == []
    merger.feed(1, blocks(45, 60))
    assert times_of(merger.take()) == [10, 20, 30, 40, 45, 50]
    merger.feed(0, blocks(55))
    assert times_of(merger.finish()) == [55, 60]
    assert merger.packets == 8
    assert merger.held_bytes == 0


def test_blocks_may_arrive_byte_by_byte() -> None:
    merger = Merger()
    data = blocks(1, 2, 3)
    for at in range(len(data) - 1):
        merger.feed(0, data[at : at + 1])
    assert times_of(merger.finish()) == [1, 2]


@pytest.mark.parametrize("length", [0, 20, 27, (1 << 20) + 4])
def test_what_is_no_block_is_refused(length: int) -> None:
    with pytest.raises(CaptureError, match=f"length of {length} bytes"):
        Merger().feed(0, bytes(4) + length.to_bytes(4, "little") + bytes(30))
