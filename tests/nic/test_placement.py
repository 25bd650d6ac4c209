"""Placement: payloads are decoded directly into the reader's memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.facades.nic import DetachedFlow
from tests.facades.packet import Frames

from .harness import IP_A, MAC_B, TOS, Pair, floats, repaired, roundtrip


class Reader:
    """Places the bytes from sequence number 1000 on in `memory`, while there is room."""

    def __init__(self, size: int) -> None:
        self.memory = np.zeros(size, np.uint8)
        self.asked: list[tuple[int, int]] = []

    def place(self, seq: int, size: int, _ack: int) -> npt.NDArray[np.uint8] | None:
        self.asked.append((seq, size))
        start = seq - 1000
        return self.memory[start : start + size] if start + size <= self.memory.size else None


@pytest.mark.parametrize("tos", [0, TOS])
def test_a_run_lies_where_it_was_wanted(tos: int) -> None:
    pair, reader = Pair().handshake(), Reader(100_000)
    pair.flows[pair.b].rx_placement = reader.place
    data = floats(10_000)
    pair.a.transmit(pair.segment(data.tobytes(), tos=tos), MAC_B, 100, 0.0)
    [segment] = pair.received()
    expected = roundtrip("bounded:10", data.tobytes()) if tos else data.tobytes()
    assert segment.payload == expected
    assert np.shares_memory(np.frombuffer(segment.payload, np.uint8), reader.memory)
    assert reader.memory[:40_000].tobytes() == expected
    assert not reader.memory[40_000:].any()
    assert reader.asked == [(1000, 40_000)]


def test_what_is_not_wanted_lies_anywhere() -> None:
    pair, reader = Pair().handshake(), Reader(100)
    pair.flows[pair.b].rx_placement = reader.place
    data = floats(1000).tobytes()
    pair.a.transmit(pair.segment(data, tos=0), MAC_B, 100, 0.0)
    [segment] = pair.received()
    assert segment.payload == data
    assert reader.asked == [(1000, 4000)]
    assert not reader.memory.any()


def test_other_flows_are_not_asked_about() -> None:
    pair, reader = Pair().handshake(), Reader(100_000)
    flow = DetachedFlow(None, rx_placement=reader.place)
    pair.b.lookup = {(IP_A, 4001, 80): flow}.get
    pair.a.transmit(pair.segment(bytes(range(200)), tos=0), MAC_B, 100, 0.0)
    assert pair.received()[0].payload == bytes(range(200))
    assert reader.asked == []


def test_a_malformed_run_is_dropped_as_ever() -> None:
    pair, reader = Pair().handshake(), Reader(100_000)
    pair.flows[pair.b].rx_placement = reader.place
    pair.a.transmit(pair.segment(floats(1000).tobytes()), MAC_B, 100, 0.0)
    frames = pair.link_b.receive(0.0)
    assert frames is not None
    wrong = bytearray(frames[0])
    wrong[66] ^= 0xF0  # the version of the payload header
    pair.link_a.send(Frames.of([repaired(wrong)]), 0.0)
    assert pair.received() == []
    assert pair.b.counters.rx_drop_offload == 1
