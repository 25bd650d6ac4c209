"""The NIC end to end: segments transmitted by one and received by another."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from softnic import codecs
from softnic.nic.counters import NicCounters
from softnic.nic.nic import Nic
from softnic.nic.offload import OffloadTable
from softnic.nic.segmenter import OFFLOADED_BYTES
from softnic.packet.frames import Frames
from softnic.packet.segment import Flags, Options, Segment, Transmitted

from .harness import (
    DATA,
    IP_A,
    IP_B,
    MAC_A,
    MAC_B,
    TOS,
    Pair,
    decode_payload,
    floats,
    receive,
    repaired,
    roundtrip,
    take_apart,
)


def counters(**expected: int) -> dict[str, int]:
    return {**asdict(NicCounters()), **expected}


def joined(segments: list[Segment], start: int = 1000) -> bytes:
    """Joins the payloads of segments that must be contiguous."""
    at = start
    for segment in segments:
        assert segment.seq == at % 2**32
        at += len(segment.payload)
    return b"".join(segment.payload for segment in segments)


# Untagged.


@pytest.mark.parametrize("size", [1, 1448, 1449, 100_000, 262_144])
def test_plain_bytes_cross_unaltered(size: int) -> None:
    pair = Pair().handshake()
    payload = random.Random(size).randbytes(size)
    sent = pair.a.transmit(pair.segment(payload, tos=0), MAC_B, 1000, 0.0)
    frames = -(-size // 1448)
    assert sent[:3] == (size, frames, size + frames * 66)
    [segment] = pair.received()
    assert segment == Segment(
        *(IP_A, IP_B, 4000, 80, 1000, 5000, DATA, 512, 0),
        timestamps=(5, 6),
        payload=memoryview(payload),
        frames=frames,
    )


def test_segments_without_payload_cross() -> None:
    pair = Pair().handshake()
    for flags in (Flags.ACK, Flags.ACK | Flags.FIN, Flags.RST, Flags.ACK | Flags.RST):
        for tos in (0, TOS):
            pair.a.transmit(pair.segment(b"", flags=flags, tos=tos), MAC_B, 1, 0.0)
            [segment] = pair.received()
            assert (segment.flags, len(segment.payload)) == (flags, 0)


@pytest.mark.parametrize("blocks", [(), ((7000, 8448),), ((7000, 8448), (2**32 - 100, 1348), (50, 60))])
def test_sack_blocks_cross(blocks: tuple[tuple[int, int], ...]) -> None:
    pair = Pair().handshake()
    for payload in (b"", b"data"):
        pair.a.transmit(pair.segment(payload, flags=Flags.ACK, tos=0, sacks=blocks), MAC_B, 1, 0.0)
        [segment] = pair.received()
        assert segment.sacks == blocks


def test_a_budget_takes_a_part() -> None:
    pair = Pair().handshake()
    payload = bytes(range(250)) * 40
    sent = pair.a.transmit(pair.segment(payload, tos=0), MAC_B, 3, 0.0)
    assert sent[:2] == (3 * 1448, 3)
    [segment] = pair.received()
    assert bytes(segment.payload) == payload[: 3 * 1448]
    assert segment.flags == Flags.ACK


def test_the_peers_mss_limits_frames() -> None:
    pair = Pair().handshake(mss=512)
    sent = pair.a.transmit(pair.segment(bytes(5000), tos=0), MAC_B, 1000, 0.0)
    assert (sent.consumed, sent.frames) == (5000, 10)


# Tagged.


@pytest.mark.parametrize("mode", ["fill", "packet"])
@pytest.mark.parametrize("codec", ["inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "mx:e2m1", "raw"])
@pytest.mark.parametrize("equal_sizes", [False, True])
@pytest.mark.parametrize("count", [1, 100, 60_000])
def test_tagged_floats_arrive_as_the_codec_leaves_them(mode: str, codec: str, equal_sizes: bool, count: int) -> None:
    pair = Pair(offloads={TOS: codec}, mode=mode, equal_sizes=equal_sizes).handshake()
    data = floats(count).tobytes() + b"end"
    sent = pair.a.transmit(pair.segment(data), MAC_B, 1000, 0.0)
    assert sent.consumed == len(data)
    assert joined(pair.received()) == roundtrip(codec, data)
    flow, other = pair.state(pair.a), pair.state(pair.b)
    assert flow.offload_original_bytes_sent == other.offload_original_bytes_received == len(data)
    assert flow.offload_encoded_bytes_sent == other.offload_encoded_bytes_received == sent.wire_bytes - sent.frames * 66
    assert flow.wire_bytes_sent == other.wire_bytes_received + 82  # the SYN, which came to b before its flow
    if count == 60_000 and codec != "raw":
        assert sent.wire_bytes < len(data) / ((3 if mode == "fill" else 2.5) if codec != "truncate:16" else 1.7)


def test_fill_mode_sends_fewer_packets_than_packet_mode() -> None:
    frames = {}
    for mode in ("fill", "packet"):
        pair = Pair(mode=mode).handshake()
        frames[mode] = pair.a.transmit(pair.segment(floats(60_000).tobytes()), MAC_B, 1000, 0.0).frames
    assert frames["packet"] == -(-240_000 // 1408)
    assert frames["fill"] < frames["packet"] / 3


def test_the_streams_codec_goes_before_the_tables() -> None:
    pair = Pair(offloads={TOS: "inceptionn:10"}).handshake()
    data = floats(1000).tobytes()
    pair.a.transmit(pair.segment(data, codec="bounded:4"), MAC_B, 1000, 0.0)
    assert joined(pair.received()) == roundtrip("bounded:4", data) != roundtrip("inceptionn:10", data)


def test_an_unknown_codec_is_a_local_mistake() -> None:
    pair = Pair().handshake()
    with pytest.raises(ValueError, match="unknown codec"):
        pair.a.transmit(pair.segment(bytes(8), codec="zip:9"), MAC_B, 1, 0.0)


def test_more_than_an_offloaded_segment_may_be_is_taken_in_part() -> None:
    pair = Pair().handshake()
    data = np.full(OFFLOADED_BYTES // 2, 1e9, np.float32).tobytes()
    sent = pair.a.transmit(pair.segment(data), MAC_B, 4000, 0.0)
    assert OFFLOADED_BYTES * 0.9 < sent.consumed < len(data)
    assert joined(pair.received()) == data[: sent.consumed]


def test_a_restart_anywhere_gives_the_same_bits() -> None:
    """Each piece is sent twice, the second time in other cuts, and only the second one arrives."""
    pair = Pair().handshake()
    rng = random.Random(3)
    data = floats(30_000).tobytes() + b"ab"
    at = 0
    received = b""
    while at < len(data):
        budget = rng.randrange(1, 6)
        for frames in (10, budget):
            again = pair.segment(data[at:], seq=1000 + at, block_offset=at % 64)
            sent = pair.a.transmit(again, MAC_B, frames, 0.0)
            segments = pair.received()
        received += joined(segments, 1000 + at)
        at += sent.consumed
    assert received == roundtrip("bounded:10", data)


# Peers without a softnic NIC, or with another version.


def settle(pair: Pair, at_b: int | None) -> None:
    """The handshake, with b's offer replaced: a's and b's NICs agree on what both would then have."""
    pair.handshake()
    for flow in pair.flows.values():
        flow.peer_codecs = at_b


def test_a_peer_without_the_option_gets_and_sends_plain_bytes() -> None:
    pair = Pair()
    settle(pair, None)
    data = floats(20_000).tobytes()
    pair.a.transmit(pair.segment(data), MAC_B, 1000, 0.0)
    segments = pair.received()
    assert joined(segments) == data
    assert all(segment.tos == TOS for segment in segments)


def test_plain_bytes_that_look_like_payload_headers_stay_bytes() -> None:
    """Neighbours that adjoin only if their bytes were payload headers are not put side by side."""
    pair = Pair()
    settle(pair, None)
    looks = bytes.fromhex("11020a00 000005a8 0000059c") + bytes(1436)
    for seq, payload in ((1000, looks), (1000 + 1448, b"real"), (1000 + 1448, b"next")):
        pair.a.transmit(pair.segment(payload, seq=seq, flags=Flags.ACK), MAC_B, 1, 0.0)
    frames = []
    while (batch := pair.link_b.receive(0.0)) is not None:
        frames += list(batch)
    pair.link_a.send(Frames.of(frames), 0.0)
    found = [(segment.seq, bytes(segment.payload)) for segment in pair.received()]
    assert found == [(1000, looks), (2448, b"real"), (2448, b"next")]


def test_a_codec_that_the_peer_lacks_goes_raw() -> None:
    pair = Pair()
    settle(pair, 0b011)
    data = floats(5000).tobytes()
    pair.a.transmit(pair.segment(data), MAC_B, 1000, 0.0)
    while (batch := pair.link_b.receive(0.0)) is not None:
        headers = [decode_payload(take_apart(frame).payload) for frame in batch]
        assert all((header.raw, header.codec, header.parameter) == (True, 0, 0) for header in headers)
        assert b"".join(header.original for header in headers) == data


def test_a_stray_segment_of_no_flow_goes_plain() -> None:
    pair = Pair()
    data = floats(1000).tobytes()
    pair.a.transmit(pair.segment(data), MAC_B, 1000, 0.0)
    assert joined(pair.received()) == data


# Drops: each counted once.


def resent(pair: Pair, change: Callable[[bytes], bytes]) -> None:
    """Replaces every frame queued at b by a changed one."""
    frames: list[bytes] = []
    while (batch := pair.link_b.receive(0.0)) is not None:
        frames += list(batch)
    pair.link_a.send(Frames.of([change(frame) for frame in frames]), 0.0)


def changed_counters(pair: Pair, before: dict[str, int]) -> dict[str, int]:
    after = asdict(pair.b.counters)
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


@pytest.mark.parametrize(
    ("counter", "change"),
    [
        ("rx_drop_frame", lambda frame: frame[:10]),
        ("rx_drop_mac", lambda frame: MAC_A[:5] + b"\x99" + frame[6:]),
        ("rx_drop_ip", lambda frame: frame[:14] + b"\x55" + frame[15:]),
        ("rx_drop_ip_checksum", lambda frame: frame[:22] + b"\x01" + frame[23:]),
        ("rx_drop_tcp_checksum", lambda frame: frame[:-1] + bytes([frame[-1] ^ 4])),
    ],
)
def test_a_bad_frame_is_one_drop(counter: str, change: Callable[[bytes], bytes]) -> None:
    pair = Pair().handshake()
    pair.a.transmit(pair.segment(b"payload", tos=0), MAC_B, 1, 0.0)
    resent(pair, change)
    before = asdict(pair.b.counters)
    size = pair.link_b.counters()["link_received_bytes"]
    assert pair.received() == []
    size = pair.link_b.counters()["link_received_bytes"] - size
    assert changed_counters(pair, before) == {"rx_frames": 1, "rx_wire_bytes": size, counter: 1}
    assert pair.b.counters.rx_dropped == 1


@pytest.mark.parametrize(("src", "dst"), [(IP_A, IP_A), (IP_A, 0x08080808), (IP_B, IP_B)])
def test_segments_to_others_or_from_oneself_are_dropped(src: int, dst: int) -> None:
    pair = Pair().handshake()
    pair.a.transmit(Segment(src, dst, 1, 2, 3, payload=memoryview(bytes(5000))), MAC_B, 10, 0.0)
    assert pair.received() == []
    assert pair.b.counters.rx_drop_ip_address == 4


@pytest.mark.parametrize("which", [0, 3, -1])
def test_a_malformed_payload_costs_only_its_own_frame(which: int) -> None:
    """Bodies that pass the checksum and are no encoding: from a broken or hostile peer."""
    pair = Pair().handshake()
    data = floats(20_000).tobytes()
    pair.a.transmit(pair.segment(data, flags=DATA | Flags.FIN), MAC_B, 1000, 0.0)
    batch = pair.link_b.receive(0.0)
    assert batch is not None
    frames = list(batch)
    spoiled = bytearray(frames[which])
    spoiled[66 + 12] ^= 0xFF  # which of eight bursts follow
    spoiled[50:52] = bytes(2)

    frames[which] = repaired(spoiled)
    pair.link_a.send(Frames.of(frames), 0.0)
    before = asdict(pair.b.counters)
    segments = pair.received()
    changes = changed_counters(pair, before)
    assert changes["rx_drop_offload"] == 1
    assert changes["rx_offload_frames"] == changes["rx_segments"] == len(frames) - 1 == len(segments)
    expected = roundtrip("bounded:10", data)
    for segment in segments:
        at = segment.seq - 1000
        assert bytes(segment.payload) == expected[at : at + len(segment.payload)]
    assert [bool(segment.flags & Flags.FIN) for segment in segments] == [False] * (len(segments) - 1) + [which != -1]


def test_frames_of_other_protocols_come_up_as_they_are() -> None:
    pair = Pair()
    arp = b"\xff" * 6 + MAC_A + b"\x08\x06" + bytes(28)
    pair.a.send_frame(arp, 0.0)
    assert receive(pair.b) == [arp]
    assert receive(pair.b) is None
    assert asdict(pair.a.counters) == counters(tx_other_frames=1, tx_frames=1, tx_wire_bytes=42)
    assert asdict(pair.b.counters) == counters(rx_other_frames=1, rx_frames=1, rx_wire_bytes=42)


@pytest.mark.parametrize("size", [13, 1515])
def test_a_frame_that_the_link_cannot_carry_is_dropped(size: int) -> None:
    pair = Pair()
    pair.a.send_frame(bytes(size), 0.0)
    assert asdict(pair.a.counters) == counters(tx_drop_length=1)


def test_counters_of_a_tagged_transfer() -> None:
    pair = Pair().handshake()
    before = (asdict(pair.a.counters), asdict(pair.b.counters))
    sent = pair.a.transmit(pair.segment(floats(10_000).tobytes()), MAC_B, 1000, 0.0)
    pair.received()
    encoded = sent.wire_bytes - 66 * sent.frames
    for which, way in ((0, "tx"), (1, "rx")):
        after = asdict((pair.a, pair.b)[which].counters)
        assert {name: after[name] - before[which][name] for name in after if after[name] != before[which][name]} == {
            f"{way}_segments": 1,
            f"{way}_bytes": 40_000,
            f"{way}_frames": sent.frames,
            f"{way}_wire_bytes": sent.wire_bytes,
            f"{way}_offload_frames": sent.frames,
            f"{way}_offload_original_bytes": 40_000,
            f"{way}_offload_encoded_bytes": encoded,
        }


@pytest.mark.parametrize("seed", range(20))
def test_garbage_never_raises(seed: int) -> None:
    """Frames with flipped bits and valid checksums, on a flow that decodes them."""

    rng = random.Random(seed)
    pair = Pair().handshake()
    pair.a.transmit(pair.segment(floats(20_000).tobytes()), MAC_B, 1000, 0.0)
    pair.a.transmit(Segment(IP_A, IP_B, 1, 80, 3, flags=Flags.SYN, options=Options(1460, 3, True)), MAC_B, 1, 0.0)

    def mangle(frame: bytes) -> bytes:
        copy = bytearray(frame)
        for _ in range(rng.randrange(3)):
            copy[rng.randrange(40, len(copy))] = rng.randrange(256)
        return repaired(copy)

    resent(pair, mangle)
    before = asdict(pair.b.counters)
    total = sum(segment.frames for segment in pair.received())
    changes = changed_counters(pair, before)
    drops = sum(value for name, value in changes.items() if name.startswith("rx_drop_"))
    assert total + drops == changes["rx_frames"]


# The offload table.


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({0: "bounded:10"}, "cannot select"),
        ({3: "bounded:10"}, "cannot select"),
        ({256: "bounded:10"}, "cannot select"),
        ({0x28: "bounded:10", 0x29: "raw"}, "twice"),
        ({0x28: "bounded"}, "is not a codec"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(table: dict[int, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OffloadTable(table)


def test_a_table_may_be_empty_or_long() -> None:
    assert not any(OffloadTable({}).selects(tos) for tos in range(256))
    table = OffloadTable({0x28: "bounded:10", 0xFC: "raw"})
    assert [tos for tos in range(256) if table.selects(tos)] == [0x28, 0x29, 0x2A, 0x2B, 0xFC, 0xFD, 0xFE, 0xFF]
    assert table.codec_of(0x2B, None)[:2] == (2, 10)
    assert table.codec_of(0x28, "inceptionn:7")[:2] == (1, 7)


def test_a_mode_that_does_not_exist_is_refused() -> None:
    wrong: Any = "stream"
    with pytest.raises(ValueError, match="not a mode"):
        Pair(mode=wrong)


def test_packet_ids_tell_segments_apart() -> None:
    pair = Pair().handshake()
    seen = []
    for _ in range(3):
        sent = pair.a.transmit(pair.segment(bytes(3000), tos=0), MAC_B, 10, 0.0)
        assert isinstance(sent, Transmitted)
        batch = pair.link_b.receive(0.0)
        assert batch is not None
        assert batch.packet_id == sent.packet_id > 0
        seen.append(sent.packet_id)
    assert len(set(seen)) == 3


def test_every_built_in_codec_is_announced() -> None:
    pair = Pair().handshake()
    assert isinstance(pair.a, Nic)
    assert [flow.peer_codecs for flow in pair.flows.values()] == [codecs.BUILT_IN] * 2
