"""The NIC of a kernel, with packets made by the test; test_kernels.py uses real kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from softnic import codecs
from softnic.capture.pcapng import Direction
from softnic.packet.frames import Frames
from softnic.packet.segment import Options, Segment
from softnic.tapnic.flows import MAX_UNANSWERED, TapFlowTable
from tests.nic.harness import checksum
from tests.tapnic.simulated import ACK, FIN, PSH, RST, SYN, TOS, Pair, codecs_offered

WORDS = np.random.default_rng(3).normal(0, 0.01, 15000).astype(np.float32)
DATA = WORDS.tobytes()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def pair(stack: ExitStack) -> Pair:
    return Pair(stack)


def rounded(words: np.ndarray[tuple[int], np.dtype[np.float32]]) -> bytes:
    codec = codecs.get("bounded:10")
    return codec.decode(codec.encode(words), len(words)).tobytes()


def forget(flows: TapFlowTable) -> None:
    """Forget all flows, as a NIC that was restarted."""
    for key, _ in flows.items():
        flows._forget(key)


class TestHandshake:
    def test_the_option_is_inserted_before_those_of_the_syn(self, pair: Pair) -> None:
        pair.left.send(pair.left.segment(99, SYN, options=Options(mss=1460, window_scale=7)))
        pair.pump()
        [frame] = pair.right.packets()
        assert codecs_offered(frame) == codecs.BUILT_IN

    def test_a_syn_without_room_is_unchanged_and_nothing_is_compressed(self) -> None:
        flows = TapFlowTable(codecs.BUILT_IN)
        options = Options(mss=1460)
        for bytes_taken, agreed in ((28, codecs.BUILT_IN), (32, None)):
            assert bool(flows.syn_option(Segment(1, 2, 80, bytes_taken, 9, 0, SYN), options, bytes_taken)) == bool(
                agreed
            )
            answer = Segment(2, 1, bytes_taken, 80, 5, 10, SYN | ACK)
            flows.received_syn(answer, Options(mss=1460, codecs=codecs.BUILT_IN))
            flow = flows.find(2, bytes_taken, 80, 1)
            assert flow is not None
            assert flow.codecs == agreed

    def test_a_flood_of_unanswered_handshakes_is_bounded(self) -> None:
        flows = TapFlowTable(codecs.BUILT_IN)
        for number in range(MAX_UNANSWERED + 100):
            segment = Segment(1, 2, 80, number, number, 0, SYN)
            flows.syn_option(segment, Options(mss=1460), 4)
        assert len(flows) == MAX_UNANSWERED


class TestSegments:
    def test_a_super_segment_crosses_in_frames_and_arrives_as_one(self, pair: Pair) -> None:
        pair.connect()
        pair.left.send(pair.left.segment(100, ACK | PSH, ack=500), DATA)
        pair.pump()
        assert pair.right.received() == [(100, ACK | PSH, DATA)]
        counters = pair.left.node.counters()
        assert (counters["tap_read"], counters["tx_frames"]) == (2, 1 + -(-len(DATA) // 1448))

    def test_tagged_words_are_encoded_and_arrive_rounded(self, pair: Pair) -> None:
        pair.connect()
        pair.left.send(pair.left.segment(100, ACK | PSH, ack=500, tos=TOS), DATA)
        pair.pump()
        assert pair.right.received() == [(100, ACK | PSH, rounded(WORDS))]
        counters = pair.left.node.counters()
        assert counters["tx_offload_original_bytes"] == len(DATA)
        assert counters["tx_offload_encoded_bytes"] < len(DATA) / 2

    def test_tagged_words_retransmitted_without_the_tag_are_the_same(self, pair: Pair) -> None:
        pair.connect()
        pair.left.send(pair.left.segment(100, ACK, ack=500, tos=TOS), DATA)
        pair.left.send(pair.left.segment(100 + 1446, ACK, ack=500), DATA[1446 : 2 * 1446])
        pair.pump()
        [_, (seq, _, again)] = pair.right.received()
        start = 1446 // 64 * 64
        assert seq == 100 + start
        assert again == rounded(WORDS)[start : start + len(again)]
        assert start + len(again) >= 2 * 1446

    def test_acknowledged_data_is_released_and_keepalive_probes_still_leave(self, pair: Pair) -> None:
        pair.connect()
        pair.left.send(pair.left.segment(100, ACK, ack=500, tos=TOS), DATA)
        pair.pump()
        flow = pair.left.node.flows.items()[0][1]
        assert flow.cached_bytes == len(DATA)
        pair.right.packets()
        pair.right.send(pair.right.segment(500, ACK, ack=100 + len(DATA)))
        pair.pump()
        assert flow.cached_bytes == 0
        pair.left.send(pair.left.segment(99 + len(DATA), ACK, ack=500, tos=TOS), DATA[-1:])
        pair.pump()
        assert pair.right.received() == [(99 + len(DATA), ACK, b"")]

    def test_parts_of_words_arrive_unaltered(self, pair: Pair) -> None:
        pair.connect()
        at = 0
        for size in (4, 3, 1, 61, 1448, 7):
            pair.left.send(pair.left.segment(100 + at, ACK, ack=500, tos=TOS), DATA[at : at + size])
            at += size
        pair.pump()
        whole, came = rounded(WORDS), b"".join(payload for _, _, payload in pair.right.received())
        exact = [*range(4, 8), *range(68, 72), *range(1516, 1520), *range(1524, at)]
        assert came == bytes((DATA if index in exact else whole)[index] for index in range(at))

    def test_fin_leaves_with_the_last_bytes(self, pair: Pair) -> None:
        pair.connect()
        pair.left.send(pair.left.segment(100, ACK | FIN, ack=500, tos=TOS), DATA[:1002])
        pair.pump()
        first, last = pair.right.received()
        assert (first[0], first[1], len(first[2])) == (100, ACK, 1000)
        assert last == (1100, ACK | FIN, DATA[1000:1002])

    def test_frames_that_are_not_tcp_pass_in_both_directions(self, pair: Pair) -> None:
        frame = pair.right.mac + pair.left.mac + b"\x86\xdd" + bytes(60)
        pair.left.send_frame(frame)
        pair.pump()
        assert pair.right.packets() == [frame]

    @pytest.mark.parametrize(("protocol", "arrives"), [(17, True), (1, True), (6, False)])
    def test_ip_fragments_pass_unless_they_are_tcp(self, pair: Pair, protocol: int, arrives: bool) -> None:
        """The NIC cannot parse a part of a TCP segment; other protocols it passes unparsed."""
        header = bytearray([0x45, 0, 0, 60, 0, 1, 0x20, 0, 64, protocol, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2])
        header[10:12] = checksum(bytes(header)).to_bytes(2, "big")
        frame = pair.right.mac + pair.left.mac + b"\x08\x00" + header + bytes(40)
        pair.left.node.link.send(Frames.of([frame]), 0.0)
        before = pair.right.node.counters()
        pair.pump()
        assert pair.right.packets() == [frame] * arrives
        after = pair.right.node.counters()
        assert after["rx_other_frames"] - before["rx_other_frames"] == arrives
        assert after["rx_drop_ip_fragment"] - before["rx_drop_ip_fragment"] == (not arrives)

    def test_a_flow_counts_original_and_wire_bytes(self, pair: Pair) -> None:
        pair.connect()
        pair.left.send(pair.left.segment(100, ACK, ack=500, tos=TOS), DATA)
        pair.left.send(pair.left.segment(100 + len(DATA), ACK, ack=500), b"plain")
        pair.pump()
        (_, sender), (_, receiver) = (kernel.node.flows.items()[0] for kernel in (pair.left, pair.right))
        assert sender.bytes_sent == receiver.bytes_received == len(DATA) + 5
        assert (sender.bytes_received, receiver.bytes_sent) == (0, 0)
        assert 0 < receiver.wire_bytes_received < sender.wire_bytes_sent < len(DATA) / 2  # it began with a SYN

    def test_a_capture_records_the_host_side_and_the_wire_side(self, stack: ExitStack) -> None:
        pair = Pair(stack)
        recording = pair.left.record()
        pair.connect()
        pair.left.send(pair.left.segment(100, ACK, ack=500, tos=TOS), DATA)
        pair.right.send(pair.right.segment(500, ACK, ack=100), b"answer")
        pair.left.send_frame(pair.right.mac + pair.left.mac + b"\x86\xdd" + bytes(60))
        pair.pump()
        capture = pair.left.recorded(recording)
        rows = list(zip(capture.interface.tolist(), capture.direction.tolist(), capture.length.tolist(), strict=True))
        outbound, inbound = Direction.OUTBOUND, Direction.INBOUND
        assert [row[1:] for row in rows if row[0] == 0] == [
            (outbound, 74),  # the SYN, without the option that the NIC adds
            (inbound, 74),
            (outbound, 66 + len(DATA)),
            (outbound, 74),
            (inbound, 72),
        ]
        [host] = [capture.packet(row) for row in range(len(rows)) if rows[row] == (0, outbound, 66 + len(DATA))]
        assert host[66:] == DATA
        numbers = [
            set(capture.packet_id[(capture.interface == side) & (capture.direction == outbound)].tolist()) - {0}
            for side in range(2)
        ]
        assert numbers[0] == numbers[1]
        assert len(numbers[0]) == 2


class TestUnknown:
    """Connections established before the NIC started."""

    def test_tagged_bytes_are_answered_by_a_reset(self, pair: Pair) -> None:
        pair.left.send(pair.left.segment(100, ACK, ack=500, tos=TOS), DATA)
        pair.pump()
        assert [segment[:2] for segment in pair.left.received()] == [(500, RST)]
        assert pair.right.packets() == []
        assert pair.left.node.counters()["tx_drop_unknown"] == 1

    def test_the_peer_is_reset_too(self, pair: Pair) -> None:
        pair.connect()
        forget(pair.right.node.flows)
        pair.left.send(pair.left.segment(100, ACK, ack=500, tos=TOS), DATA[:640])
        pair.pump()
        assert pair.right.packets() == []
        assert [segment[:2] for segment in pair.left.received()] == [(500, RST)]
        assert pair.right.node.counters()["rx_drop_unknown"] == 1

    def test_untagged_bytes_still_pass(self, pair: Pair) -> None:
        pair.left.send(pair.left.segment(100, ACK, ack=500), DATA)
        pair.pump()
        assert pair.right.received() == [(100, ACK, DATA)]
