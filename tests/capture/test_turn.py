"""What the turn of a node records in C is what Python records of the same traffic, byte for byte."""

from __future__ import annotations

import random
import socket

import pytest

from softnic.capture import reader
from softnic.capture.capture_file import CaptureFile
from softnic.capture.captured_link import CapturedLink
from softnic.capture.hook import CaptureHook
from softnic.capture.pcapng import Direction, interface_description, section_header
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.packet.frames import Frames
from softnic.packet.segment import PLAIN, Tag
from softnic.sim.clock import VirtualClock
from softnic.tcp.config import TcpConfig

from ..nic.harness import IP_A, IP_B, TOS, floats
from ..nic.nodes import TxPart, expected, transfer
from .lab import EPOCH_NS, Reader

HEAD = section_header("softnic") + b"".join(
    interface_description(f"node{node}:{side}") for node in range(2) for side in ("host", "wire")
)
LOSSLESS = EmulationSpec(rate_bps=1e9, delay_s=1e-4)
LOSSY = EmulationSpec(rate_bps=1e8, delay_s=1e-3, loss=0.02, reorder=0.02, duplicate=0.01)


class BatchingLink(EmulatedLink):
    """Receives all that has arrived as one batch, as a socket's link does."""

    def receive(self, now: float) -> Frames | None:
        arrived: list[bytes] = []
        while (batch := super().receive(now)) is not None:
            arrived += [bytes(frame) for frame in batch]
        return Frames.of(arrived) if arrived else None


class Recorded:
    """Two nodes whose host and wire sides are recorded; `fast_path` says whether C processes their segments."""

    def __init__(self, spec: EmulationSpec, *, fast_path: bool = True, snaplens: tuple[int, ...] = (0,)) -> None:
        network, config = MemoryNetwork(), TcpConfig(fast_path=fast_path)
        self.hooks = [CaptureHook(ip, EPOCH_NS) for ip in (IP_A, IP_B)]
        self.links = [
            CapturedLink(BatchingLink(network.port(), spec, seed=index), hook) for index, hook in enumerate(self.hooks)
        ]
        self.nodes = [
            Node(
                hook.c.ip,
                link,
                rng=random.Random(index),
                offloads={TOS: "bounded:10"},
                capture=hook,
                config=config,
            )
            for index, (hook, link) in enumerate(zip(self.hooks, self.links, strict=True))
        ]
        self.clock = VirtualClock()
        self._readers = [[self._start(index, snaplen) for snaplen in snaplens] for index, _ in enumerate(self.hooks)]

    def _start(self, index: int, snaplen: int) -> Reader:
        ours, theirs = socket.socketpair()
        interfaces = {"host_interface": 2 * index, "wire_interface": 2 * index + 1}
        sink = self.hooks[index].start(theirs.detach(), 0.0, **interfaces, snaplen=snaplen)
        return Reader(sink, ours)

    def transfer(self, parts: list[TxPart], receiver: int = 1) -> bytes:
        """Send parts from the first node, and return what was received."""
        nodes = self.nodes if receiver else self.nodes[:1]
        program, _ = transfer(nodes[0], nodes[-1], parts, clock=self.clock)
        return bytes(program.got)

    def files(self) -> list[list[bytes]]:
        """End the captures. Return the blocks of each one, by node."""

        def poll() -> None:
            for link in self.links:
                link.advance(self.clock.now)

        return [[one.drain(poll) for one in readers] for readers in self._readers]

    @property
    def in_c(self) -> int:
        """Segments that C has sent and received."""
        counters = [node.host.counters for node in self.nodes]
        return sum(each.fast_path_sent + each.fast_path_received for each in counters)


def mixed(size: int, seed: int) -> list[TxPart]:
    """Return plain and tagged parts with odd ends."""
    data, plain = floats(size // 8, seed=seed).tobytes(), random.Random(seed).randbytes(size // 2 + 1)
    return [(PLAIN, plain[: size // 3]), (Tag(TOS), data + b"tl"), (PLAIN, plain[size // 3 :])]


@pytest.mark.parametrize(("spec", "seed"), [(LOSSLESS, 1), (LOSSLESS, 2), (LOSSY, 3), (LOSSY, 4)])
def test_c_records_what_python_records(spec: EmulationSpec, seed: int) -> None:
    parts = mixed(600_000, seed)
    found = {}
    for fast_path in (True, False):
        recorded = Recorded(spec, fast_path=fast_path, snaplens=(0, 100))
        assert recorded.transfer(parts) == expected(parts)
        assert recorded.in_c > 20 if fast_path else recorded.in_c == 0
        found[fast_path] = recorded.files()
    assert found[True] == found[False]
    assert all(len(whole) > len(cut) > 20_000 for whole, cut in found[True])


def test_frames_to_the_node_itself_have_a_host_side_only() -> None:
    parts = mixed(300_000, 5)
    recorded = Recorded(LOSSLESS)
    assert recorded.transfer(parts, receiver=0) == expected(parts)
    assert recorded.in_c
    [[blocks], _] = recorded.files()
    capture = reader.parse(HEAD + blocks)
    assert set(capture.interface.tolist()) == {0}
    assert set(capture.direction.tolist()) == {Direction.INBOUND, Direction.OUTBOUND}
    assert payload_bytes(capture, Direction.OUTBOUND) == len(b"".join(data for _, data in parts))
    assert payload_bytes(capture, Direction.OUTBOUND) == payload_bytes(capture, Direction.INBOUND)


def test_numbers_tie_segments_to_their_frames() -> None:
    parts = mixed(400_000, 6)
    recorded = Recorded(LOSSLESS)
    recorded.transfer(parts)
    [[blocks], _] = recorded.files()
    capture = reader.parse(HEAD + blocks)
    rows = list(
        zip(*(each.tolist() for each in (capture.interface, capture.direction, capture.packet_id)), strict=True)
    )
    host = {number for side, direction, number in rows if (side, direction) == (0, Direction.OUTBOUND)} - {0}
    wire = {number for side, direction, number in rows if (side, direction) == (1, Direction.OUTBOUND)} - {0}
    assert host == wire
    assert all(number >> 32 == IP_A for number in host)
    assert len(host) == recorded.nodes[0].nic.counters.tx_segments
    assert not any(number for _, direction, number in rows if direction == Direction.INBOUND)
    order = [number for side, _, number in rows if side == 0 and number]
    assert order == sorted(order)


def test_statistics_and_counters_say_what_was_seen_and_dropped() -> None:
    recorded = Recorded(LOSSLESS)
    sink = recorded.hooks[0].sinks[0]
    sink.ring.c.limit = 100_000
    recorded.hooks[0].c.interval_s = float("inf")
    recorded.transfer(mixed(2_000_000, 7))
    assert sink.queued_bytes <= 100_000
    dropped, received = sum(sink.dropped.values()), sum(sink.received.values())
    assert 0 < dropped < received
    counters = recorded.links[0].counters()
    assert (counters["capture_frames"], counters["capture_dropped"]) == (received, dropped)
    [[blocks], _] = recorded.files()
    capture = reader.parse(HEAD + blocks)
    assert len(capture) == received - dropped
    assert [(one.received, one.dropped) for one in capture.interfaces[:2]] == [
        (sink.received[side], sink.dropped[side]) for side in (0, 1)
    ]


def test_records_leave_within_a_millisecond_without_a_poll() -> None:
    recorded = Recorded(LOSSLESS)
    recorded.transfer([(PLAIN, b"all")])
    node, hook = recorded.nodes[0], recorded.hooks[0]
    [sink] = hook.sinks
    due, polled = node.next_time(), hook.poll_at
    assert sink.queued_bytes
    assert due is not None
    assert polled is not None
    assert due <= recorded.clock.now + 0.001 < polled
    node.turn.receive(due)
    assert not sink.queued_bytes
    assert hook.c.flush_at == float("inf")
    recorded.files()


def payload_bytes(capture: CaptureFile, direction: int) -> int:
    """Return the TCP payload bytes of the packets of a direction; they are whole."""
    return sum(
        length - 34 - 4 * (int(capture.data[offset + 46]) >> 4)
        for length, offset, its in zip(
            capture.captured.tolist(), capture.offset.tolist(), capture.direction.tolist(), strict=True
        )
        if its == direction
    )
