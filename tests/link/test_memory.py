"""The network in memory and the virtual clock."""

from __future__ import annotations

import pytest

from tests.facades.link import tx_space
from tests.facades.packet import Frames
from tests.facades.sim import MemoryLink, Network, PortCounters, Stalled, VirtualClock
from tests.link.doubles import BROADCAST, A, B, frame


def received(link: MemoryLink) -> list[bytes]:
    """All that waits at a port."""
    found: list[bytes] = []
    while (frames := link.receive(0.0)) is not None:
        found += frames
    return found


@pytest.fixture
def ports() -> tuple[MemoryLink, MemoryLink, MemoryLink]:
    network = Network()
    return network.port(), network.port(), network.port()


Ports = tuple[MemoryLink, MemoryLink, MemoryLink]


class TestSwitch:
    def test_an_unknown_destination_reaches_all_others(self, ports: Ports) -> None:
        a, b, c = ports
        a.send(Frames.of([frame(B, A)]), 0.0)
        assert [received(port) for port in ports] == [[], [frame(B, A)], [frame(B, A)]]
        assert (b.counted.received_frames, c.counted.received_frames) == (1, 1)

    def test_a_learned_destination_alone_gets_its_frames(self, ports: Ports) -> None:
        a, b, _ = ports
        b.send(Frames.of([frame(BROADCAST, B)]), 0.0)
        assert [received(port) for port in ports] == [[frame(BROADCAST, B)], [], [frame(BROADCAST, B)]]
        a.send(Frames.of([frame(B, A, b"one"), frame(B, A, b"two")]), 0.0)
        assert [received(port) for port in ports] == [[], [frame(B, A, b"one"), frame(B, A, b"two")], []]

    def test_a_station_that_moves_is_found_again(self, ports: Ports) -> None:
        a, b, c = ports
        b.send(Frames.of([frame(BROADCAST, B)]), 0.0)
        c.send(Frames.of([frame(BROADCAST, B)]), 0.0)
        for port in ports:
            received(port)
        a.send(Frames.of([frame(B, A)]), 0.0)
        assert [received(port) for port in ports] == [[], [], [frame(B, A)]]

    def test_a_frame_for_the_senders_own_port_goes_nowhere(self, ports: Ports) -> None:
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
    def test_a_frame_too_short_for_addresses_breaks_nothing(self, ports: Ports, length: int) -> None:
        a, b, _ = ports
        short = frame(B, A)[:length]
        a.send(Frames.of([short]), 0.0)
        assert received(b) == [short]

    def test_an_empty_batch_is_nothing(self, ports: Ports) -> None:
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

    def test_a_closed_port_neither_sends_nor_gets_nor_is_remembered(self, ports: Ports) -> None:
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
    network = Network()
    a, b = network.port(), network.port(limit_bytes=40)
    a.send(Frames.of([frame(B, A), frame(B, A)]), 0.0)
    a.send(Frames.of([frame(B, A)]), 0.0)
    assert len(received(b)) == 2
    a.send(Frames.of([frame(B, A)]), 0.0)
    assert len(received(b)) == 1
    assert b.counted == PortCounters(received_frames=3, received_bytes=42, dropped_full=1)
    assert a.counted == PortCounters(sent_frames=4, sent_bytes=56)
    assert a.counters()["link_sent_frames"] == 4
    assert tx_space(a, 0.0) > 0


class Ticker:
    """Acts every `period` seconds, `count` times, and keeps when it did."""

    def __init__(self, period: float, count: int) -> None:
        self.period = period
        self.count = count
        self.times: list[float] = []
        self.due = period

    def advance(self, now: float) -> None:
        if self.count and now >= self.due:
            self.times.append(now)
            self.due += self.period
            self.count -= 1

    def next_time(self) -> float | None:
        return self.due if self.count else None


class TestClock:
    def test_jumps_from_event_to_event(self) -> None:
        clock = VirtualClock(10.0)
        ticker = Ticker(11.0, 3)
        clock.run([ticker], lambda: len(ticker.times) == 3)
        assert ticker.times == [11.0, 22.0, 33.0]
        assert clock.now == 33.0

    def test_is_done_at_once_when_the_condition_holds(self) -> None:
        clock = VirtualClock(1.0)
        clock.run([Ticker(5.0, 1)], lambda: True)
        assert clock.now == 1.0

    def test_says_when_nothing_is_left_to_happen(self) -> None:
        clock = VirtualClock()
        with pytest.raises(Stalled, match="nothing is left"):
            clock.run([Ticker(1.0, 2)], lambda: False)
        assert clock.now == 2.0

    def test_says_when_the_limit_is_over(self) -> None:
        clock = VirtualClock()
        with pytest.raises(Stalled, match="after 5 virtual seconds"):
            clock.run([Ticker(1.0, 100)], lambda: False, limit_s=5)
        assert clock.now == 5.0

    def test_says_when_time_stands_still(self) -> None:
        class Nagger:
            def advance(self, now: float) -> None:
                pass

            def next_time(self) -> float | None:
                return 0.0

        with pytest.raises(Stalled, match="time stands still"):
            VirtualClock().run([Nagger()], lambda: False)

    def test_run_for_ends_exactly_then(self) -> None:
        clock = VirtualClock()
        ticker = Ticker(1.0, 100)
        clock.run_for([ticker], 2.5)
        assert (clock.now, ticker.times) == (2.5, [1.0, 2.0])
        clock.run_for([], 1.0)
        assert clock.now == 3.5

    def test_a_coarse_clock_wakes_at_multiples(self) -> None:
        clock = VirtualClock(granularity_s=0.25)
        ticker = Ticker(0.3, 3)
        clock.run([ticker], lambda: len(ticker.times) == 3)
        assert ticker.times == [0.5, 0.75, 1.0]

    def test_what_a_port_holds_is_due_at_once(self) -> None:
        network = Network()
        a, b = network.port(), network.port()
        clock = VirtualClock(3.0)

        class Reader:
            def __init__(self) -> None:
                self.got: list[tuple[float, bytes]] = []

            def advance(self, now: float) -> None:
                while (frames := b.receive(now)) is not None:
                    self.got += [(now, data) for data in frames]

            def next_time(self) -> float | None:
                return b.next_time()

        reader = Reader()
        a.send(Frames.of([frame(B, A)]), clock.now)
        clock.run([reader, a], lambda: bool(reader.got))
        assert reader.got == [(3.0, frame(B, A))]
