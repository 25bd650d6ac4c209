"""The network in memory and the virtual clock."""

from __future__ import annotations

import pytest

from softnic.link.memory import MemoryLink, MemoryNetwork, PortCounters
from softnic.packet.frames import Frames
from tests.link.doubles import BROADCAST, A, B, frame


def received(link: MemoryLink) -> list[bytes]:
    """Return the payloads that wait at a port."""
    found: list[bytes] = []
    while (frames := link.receive(0.0)) is not None:
        found += frames
    return found


@pytest.fixture
def ports() -> tuple[MemoryLink, MemoryLink, MemoryLink]:
    network = MemoryNetwork()
    return network.port(), network.port(), network.port()


Ports = tuple[MemoryLink, MemoryLink, MemoryLink]


class TestSwitch:
    def test_a_frame_to_an_unknown_destination_is_flooded(self, ports: Ports) -> None:
        a, b, c = ports
        a.send(Frames.of([frame(B, A)]), 0.0)
        assert [received(port) for port in ports] == [[], [frame(B, A)], [frame(B, A)]]
        assert (b.counted.received_frames, c.counted.received_frames) == (1, 1)

    def test_a_frame_to_a_learned_destination_is_not_flooded(self, ports: Ports) -> None:
        a, b, _ = ports
        b.send(Frames.of([frame(BROADCAST, B)]), 0.0)
        assert [received(port) for port in ports] == [[frame(BROADCAST, B)], [], [frame(BROADCAST, B)]]
        a.send(Frames.of([frame(B, A, b"one"), frame(B, A, b"two")]), 0.0)
        assert [received(port) for port in ports] == [[], [frame(B, A, b"one"), frame(B, A, b"two")], []]

    def test_a_moved_station_is_learned_again(self, ports: Ports) -> None:
        a, b, c = ports
        b.send(Frames.of([frame(BROADCAST, B)]), 0.0)
        c.send(Frames.of([frame(BROADCAST, B)]), 0.0)
        for port in ports:
            received(port)
        a.send(Frames.of([frame(B, A)]), 0.0)
        assert [received(port) for port in ports] == [[], [], [frame(B, A)]]

    def test_a_frame_to_the_senders_own_port_is_dropped(self, ports: Ports) -> None:
        a, _, _ = ports
        a.send(Frames.of([frame(BROADCAST, A)]), 0.0)
        for port in ports:
            received(port)
        a.send(Frames.of([frame(A, A)]), 0.0)
        assert [received(port) for port in ports] == [[], [], []]

    def test_a_group_address_is_never_learned(self, ports: Ports) -> None:
        a, b, _ = ports
        group = b"\x01" + B[1:]
        b.send(Frames.of([frame(BROADCAST, group)]), 0.0)
        for port in ports:
            received(port)
        a.send(Frames.of([frame(group, A)]), 0.0)
        assert [received(port) for port in ports] == [[], [frame(group, A)], [frame(group, A)]]

    @pytest.mark.parametrize("length", range(13))
    def test_a_frame_too_short_for_addresses_is_tolerated(self, ports: Ports, length: int) -> None:
        a, b, _ = ports
        short = frame(B, A)[:length]
        a.send(Frames.of([short]), 0.0)
        assert received(b) == [short]

    def test_an_empty_batch_sends_nothing(self, ports: Ports) -> None:
        a, b, _ = ports
        a.send(Frames.of([]), 0.0)
        assert received(b) == []
        assert b.next_time() is None

    def test_order_and_packet_ids_are_kept_across_batches(self, ports: Ports) -> None:
        a, b, _ = ports
        a.send(Frames.of([frame(B, A, b"1"), frame(B, A, b"2")], packet_id=7), 0.0)
        a.send(Frames.of([frame(B, A, b"3")], packet_id=8), 0.0)
        first, second = b.receive(0.0), b.receive(0.0)
        assert first is not None
        assert second is not None
        assert (first.packet_id, second.packet_id) == (7, 8)
        assert [data[14:] for data in [*first, *second]] == [b"1", b"2", b"3"]

    def test_a_closed_port_neither_sends_nor_receives_and_is_forgotten(self, ports: Ports) -> None:
        a, b, c = ports
        b.send(Frames.of([frame(BROADCAST, B)]), 0.0)
        received(c)
        b.close()
        b.close()
        b.send(Frames.of([frame(BROADCAST, B)]), 0.0)
        a.send(Frames.of([frame(B, A)]), 0.0)
        assert received(b) == []
        assert received(c) == [frame(B, A)]


def test_a_full_port_drops_whole_batches_and_counts_frames() -> None:
    network = MemoryNetwork()
    a, b = network.port(), network.port(limit_bytes=40)
    a.send(Frames.of([frame(B, A), frame(B, A)]), 0.0)
    a.send(Frames.of([frame(B, A)]), 0.0)
    assert len(received(b)) == 2
    a.send(Frames.of([frame(B, A)]), 0.0)
    assert len(received(b)) == 1
    assert b.counted == PortCounters(received_frames=3, received_bytes=42, dropped_full=1)
    assert a.counted == PortCounters(sent_frames=4, sent_bytes=56)
    assert a.counters()["link_sent_frames"] == 4
    assert a.tx_space(0.0) > 0
