"""SACK in both directions: reports of out-of-order data, and the sender's reaction to reports."""

from __future__ import annotations

import pytest

from softnic.packet.headers import pack_options, unpack_sacks
from softnic.packet.segment import Options, Segment, Tag
from softnic.tcp import seq
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.reassembly import Reassembly
from tests.tcp.flows import flow, taken
from tests.tcp.lab import TAGGED, Lab, Pump, Wire
from tests.tcp.script import ACK, MSS, PEER_ISS, SYN, Script
from tests.tcp.test_loss import number_of, once, starts


@pytest.fixture
def script() -> Script:
    script = Script(TcpConfig(congestion="cubic"))
    script.accept(sack_permitted=True)
    return script


def blocks(segments: list[Segment]) -> list[tuple[int, int]]:
    """Returns the SACK blocks of the last segment, as positions."""
    return [(seq.position(PEER_ISS, first, 0), seq.position(PEER_ISS, last, 0)) for first, last in segments[-1].sacks]


class TestReceiving:
    def test_sack_is_used_if_the_peer_permits_it(self) -> None:
        for permitted in (True, False):
            script = Script()
            options = Options(mss=MSS, sack_permitted=permitted)
            script.host.listen(0, 80, 5, script.now)
            [reply] = script.receive(SYN, 0, 0, options=options)
            assert reply.options is not None
            assert reply.options.sack_permitted is permitted
        syn = Script()
        syn.connect()

    def test_the_latest_block_comes_first(self, script: Script) -> None:
        assert blocks(script.receive(ACK, 101, 1, bytes(100))) == [(101, 201)]
        assert blocks(script.receive(ACK, 301, 1, bytes(100))) == [(301, 401), (101, 201)]
        assert blocks(script.receive(ACK, 501, 1, bytes(100))) == [(501, 601), (301, 401), (101, 201)]
        assert blocks(script.receive(ACK, 201, 1, bytes(50))) == [(101, 251), (501, 601), (301, 401)]

    def test_four_blocks_at_most(self, script: Script) -> None:
        for number in range(8):
            sent = script.receive(ACK, 101 + 200 * number, 1, bytes(100))
        assert len(pack_options(Options(), None, sent[-1].sacks)) == 36
        assert blocks(sent)[0] == (1501, 1601)

    def test_an_island_that_grows_does_not_displace_others(self, script: Script) -> None:
        for start in (101, 301, 501, 601, 701, 801, 901):
            script.feed(ACK, start, 1, bytes(100))
        assert blocks(script.sent()) == [(501, 1001), (301, 401), (101, 201)]
        for start in (1001, 401, 1101, 1201, 1301):
            script.feed(ACK, start, 1, bytes(100))
        assert blocks(script.sent()) == [(301, 1401), (101, 201)]

    def test_a_gap_that_remains_is_reported_before_data_acknowledges_what_was_filled(self, script: Script) -> None:
        """Data has no SACK blocks: the peer would take for lost what it has sent before what was filled."""
        script.receive(ACK, 101, 1, bytes(100))
        script.receive(ACK, 301, 1, bytes(100))
        script.feed(ACK, 1, 1, bytes(100))
        script.connection.send(bytes(100))
        ack, data = script.sent()
        assert (seq.position(PEER_ISS, ack.ack, 0), blocks([ack]), len(ack.payload)) == (201, [(301, 401)], 0)
        assert (seq.position(PEER_ISS, data.ack, 0), len(data.payload)) == (201, 100)

    def test_one_ack_for_a_batch(self, script: Script) -> None:
        for number in range(20):
            script.feed(ACK, 101 + 200 * number, 1, bytes(100))
        assert len(script.sent()) == 1

    def test_no_blocks_when_the_gap_is_filled(self, script: Script) -> None:
        script.receive(ACK, 101, 1, bytes(100))
        [ack] = script.receive(ACK, 1, 1, bytes(100))
        assert (seq.position(PEER_ISS, ack.ack, 0), ack.sacks) == (201, ())

    def test_duplicate_data_is_the_first_block_and_reported_once(self, script: Script) -> None:
        script.receive(ACK, 1, 1, bytes(100))
        assert blocks(script.receive(ACK, 1, 1, bytes(100))) == [(1, 101)]
        assert blocks(script.receive(ACK, 201, 1, bytes(100))) == [(201, 301)]
        assert blocks(script.receive(ACK, 221, 1, bytes(20))) == [(221, 241), (201, 301)]

    def test_a_peer_without_sack_gets_duplicate_acks(self) -> None:
        script = Script()
        script.accept()
        for number in range(5):
            script.feed(ACK, 101 + 200 * number, 1, bytes(100))
        sent = script.sent()
        assert len(sent) == 5
        assert not any(segment.sacks for segment in sent)


def test_adjoining_blocks_merge_and_their_pieces_are_counted() -> None:
    reassembly = Reassembly(2)
    payload = memoryview(bytes(range(100)))
    assert [reassembly.keep(start, payload[:5]) for start in (60, 70, 80)] == [True, True, False]
    reassembly.clear()
    assert reassembly.keep(10, payload[10:20])
    assert reassembly.keep(30, payload[30:40])
    assert reassembly.keep(15, payload[15:35])
    assert reassembly.report() == [(10, 40)]
    assert len(reassembly.chunks()) == 1, "small ones that adjoin are one"
    assert reassembly.keep(12, payload[12:14])  # contains no new data
    assert (reassembly.has_repeated, reassembly.repeated_start, reassembly.repeated_end) == (True, 12, 14)
    assert taken(reassembly, 10) == bytes(range(10, 40))
    assert not reassembly.has_gap
    assert all(reassembly.keep(20 * n, payload[:10]) for n in range(3, 5))


def test_covered_pieces_are_released() -> None:
    reassembly, payload = Reassembly(3), memoryview(bytes(100))
    for _ in range(5):
        assert reassembly.keep(10, payload[10:20])
        assert reassembly.keep(30, payload[30:40])
        assert reassembly.keep(5, payload[5:50])
        assert taken(reassembly, 5) == bytes(45)
        assert not reassembly.has_gap


def test_blocks_leave_room_for_timestamps() -> None:
    """40 bytes are all that a TCP header has for options."""
    sacks = tuple((number, number + 1) for number in range(0, 12, 2))
    assert [len(pack_options(Options(), stamps, sacks)) for stamps in (None, (5, 6))] == [36, 36]
    assert unpack_sacks(pack_options(Options(), None, sacks)[2:34]) == sacks[:4]


def test_blocks_on_the_wire() -> None:
    sacks = ((1, 2), (2**32 - 5, 7), (100, 200))
    packed = pack_options(Options(), (5, 6), sacks)
    assert len(packed) == 36
    assert packed[10:12] == bytes([5, 26])
    assert unpack_sacks(packed[12:36]) == sacks


def flying(script: Script, frames: int) -> Connection:
    connection = script.connection
    flow(connection).srtt = 0.001
    flow(connection).cwnd = 1 << 20
    connection.send(bytes(frames * MSS))
    script.sent()
    script.now += 0.001
    return connection


def report(script: Script, *spans: tuple[int, int], ack: int = 1) -> list[int]:
    """Reports these ranges as received by the peer; returns the sequence numbers sent in response."""
    script.feed(ACK, 1, ack, sacks=spans)
    return starts(script, script.sent())


class TestSending:
    def test_all_holes_are_filled_at_once(self, script: Script) -> None:
        connection = flying(script, 20)
        again = report(script, (12_001, 20_001), (2001, 6001), (8001, 10_001))
        again += [start for _ in range(8) for start in starts(script, script.sent())]
        assert {1, 6001, 10_001} <= set(again)
        assert connection.info(script.now).retransmits == len(again)

    def test_reported_data_is_not_retransmitted(self, script: Script) -> None:
        flying(script, 10)
        assert report(script, (1001, 10_001)) == [1]
        assert starts(script, script.wait(0.25)) == [1]
        assert report(script, ack=10_001) == []

    def test_invalid_blocks_are_ignored(self, script: Script) -> None:
        connection = flying(script, 10)
        for span in ((20_001, 30_001), (5001, 4001), (5001, 5001), (9001, 10_002), (1, 3001)):
            assert report(script, span) == []
        assert flow(connection).scoreboard.sacked == 0

    def test_one_reduction_for_all_losses_of_a_window(self, script: Script) -> None:
        connection = flying(script, 20)
        report(script, (5001, 10_001))
        threshold = flow(connection).ssthresh
        report(script, (12_001, 20_001), (5001, 10_001))
        assert flow(connection).ssthresh == threshold
        assert script.host.counters.fast_retransmits == 1

    def test_two_duplicates_and_a_quarter_of_a_round_trip(self, script: Script) -> None:
        connection = flying(script, 10)
        assert report(script, (1001, 3001)) == []
        assert starts(script, script.wait(0.002)) == [1]
        assert script.host.counters.fast_retransmits == 1
        assert flow(connection).ssthresh == pytest.approx(0.7 * 10 * (MSS + 54), abs=2)
        assert flow(connection).cwnd < 10 * (MSS + 54)

    def test_after_a_timeout_segments_sent_before_an_arrival_are_lost(self, script: Script) -> None:
        """RFC 8985, section 6.2: else all but the first would wait for another timeout."""
        connection = flying(script, 1)
        flow(connection).rack_rtt = 0.05
        script.wait(flow(connection).rto - 0.01)
        connection.send(bytes(3 * MSS))
        script.sent()
        script.now = connection.rto_at
        assert starts(script, script.sent()) == [1]
        script.now += 0.05
        report(script, ack=1001)
        assert flow(connection).scoreboard.lost or connection.retransmits > 2

    def test_recovery_ends_with_the_reduced_window(self, script: Script) -> None:
        connection = flying(script, 20)
        connection.set_congestion("reno")
        connection.rack.multiplier, connection.rack.persist = 3, 1
        report(script, (2001, 5001))
        assert flow(connection).in_recovery
        assert flow(connection).cwnd < 20 * (MSS + 54)
        report(script, ack=20_001)
        assert flow(connection).recovery_is_over
        assert 0 <= flow(connection).cwnd - flow(connection).ssthresh <= MSS + 54
        assert connection.rack.multiplier == 1  # it was the last one for which that holds

    def test_reports_of_out_of_order_data_do_not_grow_the_window(self, script: Script) -> None:
        connection = flying(script, 10)
        flow(connection).cwnd = before = 10 * (MSS + 54)
        report(script, (1001, 2001))
        assert flow(connection).cwnd == before

    @pytest.mark.parametrize("spans", [((1, 1001),), ((5001, 6001), (4001, 8001))])
    def test_duplicate_reports_lengthen_the_reordering_window(
        self, script: Script, spans: tuple[tuple[int, int], ...]
    ) -> None:
        """Reported below what is acknowledged, or within what else has come (RFC 2883, section 4)."""
        connection = flying(script, 10)
        report(script, *spans, ack=1001)
        assert connection.rack.multiplier == 2

    def test_a_probe_is_sent_for_a_lost_tail(self, script: Script) -> None:
        flying(script, 10)
        probe = starts(script, script.wait(0.02))
        assert probe == [9001]
        assert script.host.counters.tail_loss_probes == 1
        script.now += 0.002
        again = report(script, (9001, 10_001))
        assert again + starts(script, script.wait(0.002)) == [1]
        assert script.host.counters.retransmission_timeouts == 0

    def test_one_probe_and_then_the_timer_from_there_on(self, script: Script) -> None:
        """RFC 8985, section 7.3: probes do not replace the timeout, and the timer restarts after a probe."""
        connection = flying(script, 10)
        rto, probed_at = flow(connection).rto, flow(connection).pto
        assert starts(script, script.wait(rto + 0.005)) == [9001]
        assert script.host.counters.tail_loss_probes == 1
        assert script.host.counters.retransmission_timeouts == 0
        assert connection.rto_at == pytest.approx(probed_at + rto)

    def test_no_probe_in_recovery(self, script: Script) -> None:
        connection = flying(script, 10)
        while not script.host.counters.retransmission_timeouts:
            script.wait(0.01)
        report(script, ack=1001)
        script.now = connection.rto_at - 0.01
        script.sent()
        assert script.host.counters.tail_loss_probes == 1

    @pytest.mark.parametrize(("twice", "reduced"), [(False, True), (True, False)])
    def test_a_loss_repaired_by_the_probe_reduces_the_window(self, script: Script, twice: bool, reduced: bool) -> None:
        """RFC 8985, section 7.4.2: the peer would report a duplicate if nothing had been lost."""
        connection = flying(script, 10)
        connection.set_congestion("reno")
        script.wait(0.02)
        report(script, *([(9001, 10_001)] if twice else []), ack=10_001)
        half = 5 * (MSS + 54)
        assert (flow(connection).ssthresh == half) is reduced
        assert (flow(connection).cwnd <= half + MSS + 54) is reduced

    def test_a_probe_carries_new_data_if_there_is_some(self, script: Script) -> None:
        connection = flying(script, 10)
        flow(connection).cwnd = flow(connection).scoreboard.pipe
        connection.send(bytes(3 * MSS))
        assert starts(script, script.wait(0.02)) == [10_001]

    def test_reneging(self, script: Script) -> None:
        flying(script, 10)
        report(script, (1001, 10_001))
        report(script, ack=1001)
        assert starts(script, script.wait(0.25)) == [1001]


@pytest.mark.parametrize(("age_s", "undone"), [(0.25, True), (0.0, False)])
def test_a_spurious_timeout_is_undone(age_s: float, undone: bool) -> None:
    """Acknowledgements were only late: the first one echoes a timestamp from before the retransmission (RFC 3522)."""
    script = Script()
    connection = script.accept(timestamps=(1, 0))
    flow(connection).cwnd = 40_000
    connection.send(bytes(10 * MSS))
    script.sent()
    before = flow(connection).congestion
    while not script.host.counters.retransmission_timeouts:
        script.wait(0.01)
    assert flow(connection).cwnd == before.smss
    echo = connection.timestamps.value(script.now - age_s)
    mss = flow(connection).mss
    sent = script.receive(ACK, 1, 1 + mss, timestamps=(2, echo))
    assert (flow(connection).cwnd >= 40_000) is undone
    assert (starts(script, sent) == []) is undone
    assert script.host.counters.spurious_retransmits == undone


def test_floats_are_retransmitted_in_whole_coding_blocks() -> None:
    """A peer that cuts blocks anywhere, as no NIC does."""
    script = Script()
    script.accept(sack_permitted=True)
    connection = script.connection
    connection.tag(Tag(TAGGED))
    flow(connection).cwnd = 1 << 20
    connection.send(bytes(64 * 200))
    script.sent()
    script.now += 0.001
    script.feed(ACK, 1, 1, sacks=((1 + 1000, 1 + 9000),))
    [again] = script.sent()
    assert (seq.position(script.iss, again.seq, 0), len(again.payload), again.block_offset) == (1, 1024, 0)
    assert all(record.start % 64 == 1 for record in flow(connection).scoreboard.ranges)


def lossy(loss: float, seed: int, *, delay_s: float = 0.001, reorder: float = 0.0) -> Lab:
    lab = Lab(Wire(delay_s=delay_s), seed=seed)
    client, server = lab.pair()
    lab.wire.loss, lab.wire.reorder = loss, reorder
    pump = Pump(client, server, bytes(1_000_000))
    assert lab.run(pump, limit_s=60)
    return lab


def test_a_hundredth_lost_needs_no_timeout() -> None:
    labs = [lossy(0.01, seed) for seed in range(5)]
    assert sum(lab.a.host.counters.retransmission_timeouts for lab in labs) == 0
    assert sum(lab.a.host.counters.fast_retransmits for lab in labs) > 10


def test_reordering_is_detected_and_its_reduction_undone() -> None:
    lab = lossy(0.0, 3, reorder=0.05)
    counters = lab.a.host.counters
    assert counters.retransmission_timeouts == 0
    assert counters.spurious_retransmits >= counters.fast_retransmits - 3


def test_a_lost_tail_costs_a_few_round_trips() -> None:
    lab = Lab(config=TcpConfig(ack_delay_s=0.001))
    client, server = lab.pair()
    start = lab.now
    lab.a.drop = once(number_of(client, 20_000))
    assert lab.run(Pump(client, server, bytes(20_000)), limit_s=1)
    assert lab.now - start < 0.05
    assert lab.a.host.counters.retransmission_timeouts == 0
