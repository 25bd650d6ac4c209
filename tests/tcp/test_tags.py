"""Tagged ranges on their way to the NIC: what a segment may hold, however it is cut, lost or sent again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic.packet.segment import PLAIN, Segment, Tag
from softnic.tcp import seq
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from tests.tcp.flows import flow
from tests.tcp.lab import TAGGED, Lab, Node, Pump, Wire
from tests.tcp.script import ACK, Script

FLOATS = Tag(TAGGED)
CODEC = Tag(TAGGED, "bounded:12")


def spans(connection: Connection, segments: list[Segment]) -> list[tuple[int, int, int]]:
    """Returns (offset of the first byte, length, ToS) of each segment."""
    return [(seq.position(flow(connection).iss, s.seq, 0) - 1, len(s.payload), s.tos) for s in segments if s.payload]


def test_the_bits_of_ecn_stay_zero(script: Script) -> None:
    """Only an ECN-capable sender may set ECT (RFC 3168, section 6.1.1)."""
    connection = script.established()
    connection.send(bytes(8))
    connection.tag(Tag(TAGGED | 2))
    connection.send(bytes(400))
    connection.tag(Tag(1))
    connection.send(bytes(5))
    assert spans(connection, script.sent()) == [(0, 8, 0), (8, 400, TAGGED), (408, 5, 0)]


def test_a_tag_holds_for_what_is_written_after_it(script: Script) -> None:
    connection = script.established()
    connection.send(bytes(100))
    connection.tag(CODEC)
    connection.send(bytes(400))
    connection.tag(PLAIN)
    connection.send(bytes(50))
    connection.shutdown_write()
    sent = script.sent()
    assert spans(connection, sent) == [(0, 100, 0), (100, 400, TAGGED), (500, 50, 0)]
    assert [s.codec for s in sent] == [None, "bounded:12", None]


def test_a_tag_set_ahead_waits_for_its_byte(script: Script) -> None:
    connection = script.established()
    connection.set_nodelay(True)
    connection.tag(FLOATS, 10)
    connection.send(bytes(30))
    assert spans(connection, script.sent()) == [(0, 10, 0), (10, 20, TAGGED)]


def test_other_services_are_plain_bytes(script: Script) -> None:
    connection = script.established()
    connection.tag(Tag(0x10))
    connection.send(bytes(7))
    assert spans(connection, script.sent()) == [(0, 7, 0x10)]


def test_an_incomplete_float_waits_for_its_rest(script: Script) -> None:
    connection = script.established()
    connection.set_nodelay(True)
    connection.tag(FLOATS)
    connection.send(bytes(10))
    assert spans(connection, script.sent()) == [(0, 8, TAGGED)]
    assert script.wait(1) != []  # the retransmission of what was sent, and no more
    script.receive(ACK, 1, 9)
    assert script.wait(10) == []
    connection.send(bytes(2))
    [segment] = script.sent()
    assert spans(connection, [segment]) == [(8, 4, TAGGED)]
    assert segment.block_offset == 8


def test_an_incomplete_float_of_a_lossless_codec_leaves_at_once_and_a_range_begins_behind_it(script: Script) -> None:
    connection = script.established()
    connection.set_nodelay(True)
    connection.tag(Tag(TAGGED, "raw"))
    sent = []
    for length in (10, 4, 70, 8):
        connection.send(bytes(length))
        sent += script.sent()
    assert spans(connection, sent) == [(0, 10, TAGGED), (10, 4, TAGGED), (14, 70, TAGGED), (84, 8, TAGGED)]
    assert [segment.block_offset for segment in sent] == [0, 0, 4, 0]
    script.receive(ACK, 1, 1 + 12)
    again = script.wait(1)
    assert spans(connection, again)[0] in spans(connection, sent)
    connection.set_blocks(True)
    connection.send(bytes(2))
    assert spans(connection, script.sent()) == []


def test_an_incomplete_stretch_waits_where_blocks_are_to_be_whole(script: Script) -> None:
    connection = script.established()
    connection.set_nodelay(True)
    connection.send(bytes(3))
    connection.tag(FLOATS)
    connection.set_blocks(True)
    connection.send(bytes(100))
    assert spans(connection, script.sent()) == [(0, 3, 0), (3, 64, TAGGED)]
    connection.send(bytes(28))
    assert spans(connection, script.sent()) == [(67, 64, TAGGED)]
    connection.send(bytes(20))
    assert script.sent() == []
    connection.set_blocks(False)
    assert spans(connection, script.sent()) == [(131, 20, TAGGED)]
    connection.set_blocks(True)
    connection.send(bytes(50))
    [segment] = script.sent()
    assert (spans(connection, [segment]), segment.block_offset) == ([(151, 44, TAGGED)], 148)
    connection.tag(PLAIN)
    assert spans(connection, script.sent()) == [(195, 6, TAGGED)]


@pytest.mark.parametrize("how", ["tag", "shutdown", "close"])
def test_an_incomplete_float_goes_when_its_range_ends(script: Script, how: str) -> None:
    connection = script.established()
    connection.set_nodelay(True)
    connection.tag(FLOATS)
    connection.send(bytes(10))
    script.sent()
    script.receive(ACK, 1, 9)
    if how == "tag":
        connection.tag(PLAIN)
    elif how == "shutdown":
        connection.shutdown_write()
    else:
        connection.close(script.now)
    assert spans(connection, script.sent()) == [(8, 2, TAGGED)]


def test_a_peer_without_a_nic_gets_every_byte(script: Script) -> None:
    connection = script.established(codecs=None)
    connection.set_nodelay(True)
    connection.tag(FLOATS)
    connection.send(bytes(10))
    assert spans(connection, script.sent()) == [(0, 10, TAGGED)]


def test_a_window_cuts_at_64(script: Script) -> None:
    connection = script.established()
    script.receive(ACK, 1, 1, window=1500)
    connection.send(bytes(8))
    connection.tag(FLOATS)
    connection.send(bytes(4000))
    assert spans(connection, script.sent()) == [(0, 8, 0), (8, 1472, TAGGED)]


def test_the_phase_counts_from_the_start_of_the_range(script: Script) -> None:
    connection = script.established()
    connection.set_nodelay(True)
    connection.send(bytes(3))
    connection.tag(FLOATS)
    phases = []
    for length in (4, 60, 100, 28):
        connection.send(bytes(length))
        phases += [s.block_offset for s in script.sent() if s.tos]
    assert phases == [0, 4, 64, 164]


def test_a_retransmission_is_cut_where_the_first_sending_was(script: Script) -> None:
    connection = script.established()
    connection.set_nodelay(True)
    connection.tag(FLOATS)
    for length in (100, 200, 300):
        connection.send(bytes(length))
        script.sent()
    assert spans(connection, script.wait(0.25)) == [(0, 100, TAGGED), (100, 200, TAGGED), (300, 300, TAGGED)]


def test_an_ack_inside_a_stretch_sends_the_stretch_again(script: Script) -> None:
    connection = script.established()
    connection.tag(FLOATS)
    connection.send(bytes(1024))
    script.sent()
    script.receive(ACK, 1, 101)
    assert spans(connection, script.wait(0.25))[0][0] == 64


tags = st.sampled_from([PLAIN, FLOATS, CODEC])
steps = st.lists(st.tuples(tags, st.integers(1, 3000)), min_size=1, max_size=12)


class Recorder:
    """Records a node's segments and compares them with the tagged ranges."""

    def __init__(self, node: Node, connection: Connection, ranges: list[tuple[int, int, Tag]]) -> None:
        self.ranges = ranges
        self.connection = connection
        node.drop = self.look

    def look(self, frame: Segment) -> bool:
        if frame.payload:
            start = seq.position(flow(self.connection).iss, frame.seq, flow(self.connection).snd_una) - 1
            end = start + len(frame.payload)
            [(first, last, tag)] = [r for r in self.ranges if r[0] <= start < r[1]]
            assert end <= last
            assert (frame.tos, frame.codec) == tag
            if tag.tos:
                # an odd start may follow an odd cut, never in the middle of a word
                assert (start - first) % 4 == 0
                assert (end - first) % 4 == 0 or end == last
        return False


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.3]), st.booleans())
def test_ranges_hold_on_any_wire(steps: list[tuple[Tag, int]], seed: int, loss: float, nodelay: bool) -> None:
    lab = Lab(Wire(ratio=5, room=3000), seed=seed, config=TcpConfig(user_timeout_s=3600.0))
    client, server = lab.pair()
    lab.wire.loss = loss
    client.set_nodelay(nodelay)
    ranges: list[tuple[int, int, Tag]] = []
    for tag, length in steps:
        start = client.bytes_written
        client.tag(tag)
        client.send(lab.rng.randbytes(length))
        if ranges and ranges[-1][2] == tag:
            start = ranges.pop()[0]
        ranges.append((start, client.bytes_written, tag))
        lab.run(limit_s=lab.rng.random() * 0.005)
        if len(ranges) == 1:
            Recorder(lab.a, client, ranges)
    Recorder(lab.a, client, ranges)
    pump = Pump(client, server, b"")
    total = client.bytes_written
    assert lab.run(lambda: bool(pump()) or len(pump.got) == total, limit_s=3600)
    assert len(pump.got) == total
