"""Nodes end to end under a virtual clock: TCP, NIC and link together."""

from __future__ import annotations

import random
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic.packet.ethernet import mac_of
from softnic.packet.segment import PLAIN, Tag
from softnic.sim.clock import VirtualClock
from softnic.tcp.events import EchoReply
from tests.tcp.flows import flow

from .harness import IP_A, IP_B, TOS, floats
from .nodes import Transfer, TxPart, expected, introduced, transfer, two_nodes

TAGGED = Tag(TOS)


def mixed_parts(size: int, *, seed: int = 1) -> list[TxPart]:
    data = floats(size // 8, seed=seed).tobytes()
    plain = random.Random(seed).randbytes(size // 2)
    return [(PLAIN, plain[: size // 3]), (TAGGED, data + b"tl"), (PLAIN, plain[size // 3 :])]


# Who is there.


def test_macs_follow_from_addresses() -> None:
    assert mac_of(0x0A4D0001).hex() == "02534e4d0001"


def test_a_ping_finds_the_neighbour_and_comes_back() -> None:
    a, b = two_nodes(1, link={"delay_s": 1e-3})
    sequence = a.host.ping(IP_B, 0.0)
    VirtualClock().run([a, b], lambda: bool(a.host.events))
    [reply] = a.host.events
    assert isinstance(reply, EchoReply)
    assert (reply.peer, reply.sequence) == (IP_B, sequence)
    assert reply.rtt_s == pytest.approx(4e-3, rel=0.2)  # a round trip of ARP and one of the echo


def test_an_idle_node_asks_for_nothing() -> None:
    a, b = two_nodes(1)
    a.advance(0.0)
    assert a.next_time() is None
    assert b.next_time() is None


def test_an_address_is_asked_for_again_as_soon_as_it_is_stale() -> None:
    """Data goes to the old one meanwhile."""
    a, b = two_nodes(1)
    clock = introduced(a, b)
    b.host.listen(0, 80, 5, clock.now)
    connection = a.host.connect(IP_B, 80, clock.now)
    clock.run_for([a, b], 1.0)
    stale_at = connection.nic.path_until
    for now, asked_at in ((stale_at - 1, None), (stale_at, stale_at)):
        connection.send(bytes(1000))
        a.advance(now)
        assert a.host.next_request() == asked_at
        b.advance(now)
        a.advance(now)
    assert flow(connection).snd_una == 2001


# Transfers.


@pytest.mark.parametrize("mode", ["fill", "packet"])
@pytest.mark.parametrize("mtu", [576, 1500, 9000])
def test_tagged_and_untagged_parts_of_one_stream(mode: str, mtu: int) -> None:
    parts = mixed_parts(1_000_000)
    a, b = two_nodes(1, mtu=mtu, mode=mode, link={"rate_bps": 1e9, "delay_s": 50e-6})
    program, _ = transfer(a, b, parts)
    assert program.got == expected(parts)
    sent, received = a.nic.counters, b.nic.counters
    assert sent.tx_frames == received.rx_frames
    assert sent.tx_wire_bytes == received.rx_wire_bytes
    assert sent.tx_bytes == received.rx_bytes == len(expected(parts))
    assert sent.tx_offload_original_bytes == received.rx_offload_original_bytes == 500_002
    assert sent.tx_offload_encoded_bytes < 500_000 / 2.5
    assert received.rx_dropped == 0
    assert program.connection.retransmits == 0


@pytest.mark.parametrize("codec", ["raw", "exact:32", "exact:16"])
@pytest.mark.parametrize("mode", ["fill", "packet"])
def test_every_byte_under_a_lossless_codec_arrives_at_once(mode: str, codec: str) -> None:
    """As TLS under a tag needs it: records of any length, each answered before the next one is sent."""
    rng = random.Random(7)
    link = {"delay_s": 1e-3, "loss": 0.05, "duplicate": 0.02, "jitter_s": 2e-3}
    a, b = two_nodes(3, mode=mode, link=link, offloads={TOS: codec})
    clock = introduced(a, b)
    records = [rng.randbytes(rng.choice((1, 2, 3, 5, 29, 250, 1463, 5000))) for _ in range(60)]
    program = Transfer(a, b, [], now=clock.now)
    program.connection.set_nodelay(True)
    program.connection.tag(TAGGED)
    written = b""
    for record in records:
        assert program.connection.send(record) == len(record)
        written += record
        clock.run([program, a, b], partial(lambda end: len(program.got) == end, len(written)), limit_s=60.0)
        assert bytes(program.got) == written
    assert b.nic.counters.rx_dropped == 0
    assert b.nic.counters.rx_offload_frames > len(records) // 2


@settings(deadline=None, max_examples=60)
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from([PLAIN, TAGGED, Tag(TOS, "inceptionn:10"), Tag(TOS, "raw"), Tag(0x10)]),
            st.integers(0, 3000) | st.integers(0, 70),
        ),
        min_size=1,
        max_size=12,
    ),
    seed=st.integers(0, 1000),
    loss=st.sampled_from([0.0, 0.1]),
)
def test_tags_change_exactly_where_they_were_set(parts: list[tuple[Tag, int]], seed: int, loss: float) -> None:
    rng = np.random.default_rng(seed)
    merged: list[TxPart] = []
    for tag, size in parts:
        data = (rng.standard_normal(size // 4 + 1) * 0.1).astype(np.float32).tobytes()[:size]
        if merged and merged[-1][0] == tag:  # the same tag again starts no new range
            data = merged.pop()[1] + data
        if data:
            merged.append((tag, data))
    a, b = two_nodes(seed, link={"delay_s": 1e-4, "loss": loss})
    program, _ = transfer(a, b, merged or [(PLAIN, b"x")], clock=introduced(a, b))
    assert program.got == expected(merged or [(PLAIN, b"x")])


def test_both_ways_at_once() -> None:
    a, b = two_nodes(5, link={"rate_bps": 1e8, "delay_s": 1e-4, "loss": 0.01})
    there, back = mixed_parts(400_000, seed=2), mixed_parts(400_000, seed=3)
    programs = [Transfer(a, b, there, port=80), Transfer(b, a, back, port=81)]
    VirtualClock().run([*programs, a, b], lambda: all(program.done for program in programs))
    assert [bytes(program.got) for program in programs] == [expected(there), expected(back)]


def test_many_connections_share_a_link() -> None:
    a, b = two_nodes(6, link={"rate_bps": 1e9, "delay_s": 1e-4})
    parts = [mixed_parts(50_000, seed=seed) for seed in range(20)]
    programs = [Transfer(a, b, mine, port=80 + index) for index, mine in enumerate(parts)]
    VirtualClock().run([*programs, a, b], lambda: all(program.done for program in programs))
    assert [bytes(program.got) for program in programs] == [expected(mine) for mine in parts]


def test_a_slow_link_holds_tcp_up_instead_of_losing_frames() -> None:
    a, b = two_nodes(7, link={"rate_bps": 1e7, "delay_s": 1e-3, "limit_bytes": 30_000})
    parts: list[TxPart] = [(PLAIN, random.Random(7).randbytes(1_000_000))]
    program, clock = transfer(a, b, parts)
    assert program.got == expected(parts)
    assert a.counters()["emulated_dropped_full"] == 0
    assert program.connection.retransmits == 0
    assert clock.now < 1.1 * 8 * a.nic.counters.tx_wire_bytes / 1e7


def test_compression_makes_a_slow_link_fast() -> None:
    took = {}
    for tag in (PLAIN, TAGGED):
        a, b = two_nodes(8, link={"rate_bps": 1e8, "delay_s": 50e-6})
        _, clock = transfer(a, b, [(tag, floats(500_000).tobytes())])
        took[tag] = clock.now
    assert took[TAGGED] < took[PLAIN] / 2.8


@pytest.mark.parametrize("seed", range(5))
def test_corrupted_frames_are_dropped_and_sent_again(seed: int) -> None:
    parts = mixed_parts(500_000, seed=seed)
    a, b = two_nodes(seed, link={"rate_bps": 1e9, "delay_s": 50e-6, "corrupt": 0.05})
    program, _ = transfer(a, b, parts)
    assert program.got == expected(parts)
    assert b.nic.counters.rx_dropped > 0


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        a, b = two_nodes(9, link={"rate_bps": 1e9, "delay_s": 50e-6, "jitter_s": 20e-6, "loss": 0.02, "reorder": 0.05})
        _, clock = transfer(a, b, mixed_parts(300_000))
        runs.append((clock.now, a.counters(), b.counters()))
    assert runs[0] == runs[1]


# Peers.


def test_a_peer_that_is_no_such_nic_gets_the_stream_uncompressed() -> None:
    a, b = two_nodes(10, link={"delay_s": 50e-6, "loss": 0.02})
    b.nic.codecs = None
    data = floats(30_000).tobytes() + b"abc"
    program, _ = transfer(a, b, [(TAGGED, data)])
    assert program.got == data
    assert a.nic.counters.tx_offload_frames == b.nic.counters.rx_offload_frames == 0


def test_odd_bytes_to_a_peer_that_is_no_such_nic_do_not_wait() -> None:
    """It knows no words, so it may well answer before the next word is complete."""
    a, b = two_nodes(10)
    b.nic.codecs = None
    program = Transfer(a, b, [])
    program.connection.tag(TAGGED)
    program.connection.send(b"12345")
    VirtualClock().run([program, a, b], lambda: program.got == b"12345")


def test_odd_bytes_wait_for_their_word() -> None:
    data = np.array([0.5, -0.25], np.float32).tobytes()
    a, b = two_nodes(10)
    program = Transfer(a, b, [])
    program.connection.tag(TAGGED)
    clock = VirtualClock()
    program.connection.send(data[:5])
    clock.run_for([program, a, b], 1.0)
    assert program.got == data[:4]
    program.connection.send(data[5:])
    clock.run_for([program, a, b], 1.0)
    assert program.got == data


def test_a_peer_without_the_codec_gets_it_raw() -> None:
    a, b = two_nodes(11)
    b.nic.codecs = 0b011
    data = floats(30_000).tobytes()
    program, _ = transfer(a, b, [(TAGGED, data), (Tag(TOS, "inceptionn:10"), data)])
    assert program.got == data + expected([(Tag(TOS, "inceptionn:10"), data)])
    assert a.nic.counters.tx_offload_raw_frames > 0


# Memory.


def test_connections_that_are_over_are_forgotten() -> None:
    a, b = two_nodes(12)
    clock = VirtualClock()
    listener = b.host.listen(0, 80, 4096, 0.0)
    for _ in range(6):
        connections = [a.host.connect(IP_B, 80, clock.now) for _ in range(100)]
        clock.run([a, b], lambda: len(listener.queue) == 100)
        assert all(connection.state.value == "ESTABLISHED" for connection in connections)
        for connection in [*connections, *listener.queue]:
            connection.abort(clock.now)
        listener.queue.clear()
        clock.run_for([a, b], 0.1)
    assert not a.host.tcp.connections
    assert not b.host.tcp.connections


# Counters.


def test_counters_of_a_node_are_those_of_its_parts() -> None:
    a, _ = two_nodes(14)
    names = a.counters()
    assert set(asdict(a.nic.counters)) | set(asdict(a.host.counters)) | set(a.link.counters()) == set(names)
    assert len(names) == len(asdict(a.nic.counters)) + len(asdict(a.host.counters)) + len(a.link.counters())
    assert a.nic.ip == IP_A


# Applications that write intermittently.


class Chatter:
    """Writes pieces with random pauses between them, or without one."""

    def __init__(self, transfer: Transfer, parts: list[TxPart], rng: random.Random) -> None:
        self._transfer = transfer
        self._parts = list(parts)
        self._rng = rng
        self._at = 0.0

    def advance(self, now: float) -> None:
        if self._parts and now >= self._at:
            tag, data = self._parts.pop(0)
            self._transfer.connection.tag(tag)
            assert self._transfer.connection.send(data) == len(data)
            self._at = now + self._rng.choice([0.0, 1e-5, 1e-3, 0.1])

    def next_time(self) -> float | None:
        return self._at if self._parts else None


@pytest.mark.parametrize("nodelay", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_pieces_written_now_and_then(seed: int, nodelay: bool) -> None:
    """Open ranges, odd bytes, and tag changes without data in flight all arrive, without a FIN."""
    rng = random.Random(seed)
    data = floats(50_000, seed=seed, sigma=0.3).tobytes()
    parts: list[TxPart] = []
    at = 0
    for _ in range(rng.randrange(5, 60)):
        size = rng.choice([1, 3, 4, 5, 60, 64, 100, 1448, 5000])
        parts.append((rng.choice([PLAIN, TAGGED, Tag(TOS, "inceptionn:10")]), data[at : at + size]))
        at += size
    parts.append((PLAIN, b"end"))
    merged: list[TxPart] = []
    for tag, piece in parts:
        merged.append((tag, merged.pop()[1] + piece if merged and merged[-1][0] == tag else piece))
    a, b = two_nodes(seed, link={"rate_bps": 1e8, "delay_s": 1e-4, "loss": rng.choice([0.0, 0.05]), "reorder": 0.05})
    clock = introduced(a, b)
    program = Transfer(a, b, [], now=clock.now)
    program.connection.set_nodelay(nodelay)
    chatter = Chatter(program, parts, rng)
    want = expected(merged)
    clock.run([chatter, program, a, b], lambda: len(program.got) >= len(want))
    assert program.got == want
