"""Receive: sn_parse, sn_gather and sn_decode_payloads on good frames, bad frames and garbage."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic import codecs
from softnic._native import ffi, lib
from softnic.packet.frames import Frames
from softnic.packet.segment import Flags

from .harness import MAC_A, TOS, cut, floats, header, parse, repaired, roundtrip, take_apart

TCP, OTHER = lib.SN_KIND_TCP, lib.SN_KIND_OTHER
BOUNDED = {"codec": 2, "parameter": 10}


def frames_of(
    payload: bytes, *, max_payload: int = 1000, codec: int = -1, parameter: int = 0, **head: Any
) -> list[bytes]:
    done = cut(header(**head), payload, max_payload=max_payload, codec=codec, parameter=parameter)
    assert done is not None
    return done[0]


def changed(at: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda frame: frame[:at] + value + frame[at + len(value) :]


# Good frames.


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 50_000])
def test_neighbours_of_one_flow_become_one_run(size: int) -> None:
    payload = random.Random(1).randbytes(size)
    frames = frames_of(payload, flags=Flags.ACK | Flags.PSH | Flags.FIN, seq=2**32 - 500)
    [run] = parse(Frames.of(frames))
    assert (run.kind, run.count, run.seq, run.payload_bytes, run.original_bytes) == (
        *(TCP, len(frames), 2**32 - 500),
        *(size, size),
    )
    assert run.flags == Flags.ACK | Flags.PSH | Flags.FIN
    assert run.timestamps == (5, 6)
    assert b"".join(run.payloads) == payload


def test_a_run_of_offloaded_frames_counts_original_bytes() -> None:
    data = floats(20_000).tobytes()
    frames = frames_of(data, **BOUNDED, tos=TOS)
    [run] = parse(Frames.of(frames))
    assert (run.count, run.original_bytes) == (len(frames), len(data))
    assert run.payload_bytes == sum(len(take_apart(frame).payload) for frame in frames)


def test_only_the_same_tos_without_its_ecn_bits_selects_an_offload() -> None:
    data = floats(2000).tobytes()
    for tos, offloaded in ((TOS, True), (TOS | 3, True), (TOS + 4, False), (0, False)):
        runs = parse(Frames.of(frames_of(data, **BOUNDED, tos=tos)))
        assert (sum(run.original_bytes for run in runs) == len(data)) == offloaded


def test_long_runs_end_so_that_memory_stays_bounded() -> None:
    data = bytes(4 * lib.SN_MAX_RUN)  # zeros: some 370 KB per frame
    runs = parse(Frames.of(frames_of(data, max_payload=1448, **BOUNDED, tos=TOS)))
    assert sum(run.original_bytes for run in runs) == len(data)
    assert len(runs) > 1
    assert max(run.original_bytes for run in runs) <= lib.SN_MAX_RUN


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("source", changed(29, b"\x09")),
        ("sport", changed(34, b"\x09")),
        ("dport", changed(36, b"\x09")),
        ("gap", changed(41, b"\x00")),
        ("ack", changed(45, b"\x01")),
        ("window", changed(49, b"\x01")),
        ("tos", changed(15, b"\x01")),
        ("timestamp", changed(61, b"\x01")),
        ("flags", changed(47, bytes([Flags.ACK | Flags.URG]))),
        ("reset", changed(47, bytes([Flags.ACK | Flags.RST]))),
    ],
)
def test_frames_that_differ_are_not_joined(name: str, edit: Callable[[bytes], bytes]) -> None:
    first, second, third = frames_of(bytes(3000), seq=0x01010101)
    runs = parse(Frames.of([first, repaired(edit(second)), third]))
    assert [run.count for run in runs] == [1, 1, 1], name
    assert [run.kind for run in runs] == [TCP] * 3


def test_a_push_ends_a_run() -> None:
    frames = frames_of(bytes(2000), seq=1) + frames_of(bytes(2000), seq=2001)
    assert [run.count for run in parse(Frames.of(frames))] == [2, 2]


def test_pure_acknowledgements_stay_single() -> None:
    """Pure ACKs are not merged: three duplicates mean a loss (RFC 5681)."""
    frames = frames_of(b"", flags=Flags.ACK) * 3
    assert [run.count for run in parse(Frames.of(frames))] == [1, 1, 1]


def test_padding_behind_the_packet_is_no_payload() -> None:
    [frame] = frames_of(b"abc", stamped=False)
    [run] = parse(Frames.of([frame + bytes(60 - len(frame))]))
    assert run.payloads == [b"abc"]


def test_options_are_found_in_any_order() -> None:
    [frame] = frames_of(b"abc")
    options = bytes([2, 4, 5, 180, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7, 0])
    frame = frame[:46] + bytes([0x90]) + frame[47:54] + options + frame[66:]
    frame = changed(16, (len(frame) - 14).to_bytes(2, "big"))(frame)
    [run] = parse(Frames.of([repaired(frame)]))
    assert (run.kind, run.timestamps, run.options, run.payloads) == (TCP, (9, 7), options, [b"abc"])


def test_group_frames_and_other_protocols_are_for_others() -> None:
    [frame] = frames_of(b"abc")
    arp = b"\xff" * 6 + MAC_A + b"\x08\x06" + bytes(28)
    icmp = repaired(changed(23, b"\x01")(frame))
    runs = parse(Frames.of([arp, icmp, frame]))
    assert [run.kind for run in runs] == [OTHER, OTHER, TCP]


# Bad frames: one reason each.


BAD: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "empty": (lib.SN_DROP_FRAME, lambda _: b""),
    "no Ethernet": (lib.SN_DROP_FRAME, lambda frame: frame[:13]),
    "another's": (lib.SN_DROP_ADDRESS, changed(5, b"\x77")),
    "no IPv4": (lib.SN_DROP_IP, lambda frame: frame[:33]),
    "version": (lib.SN_DROP_IP, changed(14, b"\x65")),
    "header length": (lib.SN_DROP_IP, changed(14, b"\x44")),
    "total length beyond the frame": (lib.SN_DROP_IP, changed(16, b"\xff\xff")),
    "total length within the header": (lib.SN_DROP_IP, changed(16, b"\x00\x13")),
    "IPv4 header longer than the packet": (lib.SN_DROP_IP, lambda f: changed(16, b"\x00\x28")(changed(14, b"\x4f")(f))),
    "truncated": (lib.SN_DROP_IP, lambda frame: frame[:-1]),
    "IPv4 checksum": (lib.SN_DROP_IP_CHECKSUM, changed(22, b"\x11")),
    "source 0": (lib.SN_DROP_IP, lambda frame: repaired(changed(26, bytes(4))(frame))),
    "source multicast": (lib.SN_DROP_IP, lambda frame: repaired(changed(26, b"\xe0\0\0\1")(frame))),
    "first fragment": (lib.SN_DROP_FRAGMENT, lambda frame: repaired(changed(20, b"\x20\x00")(frame))),
    "last fragment": (lib.SN_DROP_FRAGMENT, lambda frame: repaired(changed(20, b"\x00\x01")(frame))),
    "no TCP": (lib.SN_DROP_TCP, lambda frame: repaired(changed(16, (39).to_bytes(2, "big"))(frame))),
    "data offset short": (lib.SN_DROP_TCP, lambda frame: repaired(changed(46, b"\x40")(frame))),
    "data offset long": (lib.SN_DROP_TCP, lambda frame: repaired(changed(46, b"\xf0")(frame))),
    "TCP checksum": (lib.SN_DROP_TCP_CHECKSUM, changed(50, b"\x12\x34")),
    "payload bit": (lib.SN_DROP_TCP_CHECKSUM, lambda frame: frame[:-1] + bytes([frame[-1] ^ 1])),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_frame_is_dropped_for_one_reason(name: str) -> None:
    reason, spoil = BAD[name]
    [good] = frames_of(b"a payload")
    assert parse(Frames.of([good]))[0].kind == TCP
    runs = parse(Frames.of([good, spoil(good), good]))
    assert [run.kind for run in runs] == [TCP, reason, TCP]
    assert runs[1].payload_bytes == 0


@pytest.mark.parametrize(
    ("options", "timestamps", "sacks"),
    [
        ("0500080a0000000100000002", None, 0),  # length 0: nothing is read behind it
        ("050d080a0000000100000002", None, 0),  # longer than the options
        ("010101010101010101010105", None, 0),  # without a length
        ("010809000000010000000201", None, 0),  # timestamps of another length
        ("0508000000000000080a0000", None, 0),  # cut off
        ("0502080a0000000100000002", (1, 2), 0),  # SACK without blocks
        ("050a00000001000000020101", None, 1),
    ],
)
def test_broken_options_are_ignored(options: str, timestamps: tuple[int, int] | None, sacks: int) -> None:
    """As in Linux: the segment itself is good."""
    [good] = frames_of(b"a payload")
    [run] = parse(Frames.of([repaired(changed(54, bytes.fromhex(options))(good))]))
    assert (run.kind, run.timestamps, run.sack_blocks) == (TCP, timestamps, sacks)
    assert run.payloads == [b"a payload"]


def test_offsets_outside_the_buffer_are_dropped() -> None:
    [good] = frames_of(b"abc")
    frames = Frames.of([good] * 4)
    frames.offsets[1:] = [len(frames.data) - 5, len(frames.data) + 1, 0xFFFFFFFF]
    frames.lengths[3] = 0xFFFFFFFF
    assert [run.kind for run in parse(frames)] == [TCP] + [lib.SN_DROP_FRAME] * 3


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**32), repair=st.booleans())
def test_mangled_frames_never_reach_outside(seed: int, repair: bool) -> None:
    """Bits flipped, pieces cut out, checksums made right again: everything found lies within its own frame."""
    rng = random.Random(seed)
    data = floats(1500).tobytes()
    frames = frames_of(data, max_payload=400, **BOUNDED, tos=TOS) + frames_of(bytes(900), max_payload=300)
    mangled = []
    for frame in frames:
        copy = bytearray(frame)
        for _ in range(rng.randrange(4)):
            copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            copy = copy[: rng.randrange(len(copy))]
        mangled.append(repaired(copy) if repair and len(copy) >= 34 and copy[14] == 0x45 else bytes(copy))
    batch = Frames.of(mangled)
    for run in parse(batch):
        assert run.payload_bytes == sum(len(payload) for payload in run.payloads)
        for payload in run.payloads:
            assert payload == b"" or any(payload in frame for frame in mangled)


# Gathering and restoring.


def pieces_of(payloads: list[bytes], originals: list[int]) -> tuple[bytes, object]:
    places, at = [], 0
    for payload, original in zip(payloads, originals, strict=True):
        places.append((at, len(payload), original))
        at += len(payload)
    return b"".join(payloads), ffi.new("sn_payload_ref[]", places)


def restored(payloads: list[bytes], originals: list[int], known: int = codecs.BUILT_IN) -> tuple[int, bytes, int]:
    """Calls sn_decode_payloads; returns the number of payloads decoded, their bytes, and the number of RAW ones."""
    data, pieces = pieces_of(payloads, originals)
    capacity = sum(originals)
    out = np.full(capacity + 64, 0xA5, np.uint8)
    size, raw = ffi.new("uint64_t *"), ffi.new("uint32_t *")
    target = ffi.from_buffer("uint8_t[]", out)
    done = lib.sn_decode_payloads(data, len(data), pieces, len(payloads), known, target, capacity, size, raw)
    assert (out[capacity:] == 0xA5).all()
    return done, out[: size[0]].tobytes(), raw[0]


def test_gather_copies_and_refuses_what_does_not_fit() -> None:
    payloads = [b"one", b"", b"three"]
    data, pieces = pieces_of(payloads, [0, 0, 0])
    out = ffi.new("uint8_t[]", 8)
    assert lib.sn_gather(data, len(data), pieces, 3, out, 8) == 8
    assert bytes(ffi.buffer(out)) == b"onethree"
    assert lib.sn_gather(data, len(data), pieces, 3, out, 7) == -1
    assert lib.sn_gather(data, len(data) - 1, pieces, 3, out, 8) == -1


@pytest.mark.parametrize(
    "codec", ["raw", "inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "exact:16", "mx:e5m2"]
)
@pytest.mark.parametrize("equal_sizes", [0, 1])
def test_restore_undoes_the_cut(codec: str, equal_sizes: int) -> None:
    data = floats(10_000).tobytes() + b"xy"
    found = codecs.get(codec)
    plan = {"codec": found.number, "parameter": found.parameter, "equal_sizes": equal_sizes}
    done = cut(header(tos=TOS), data, max_payload=1448, **plan)
    assert done is not None
    [run] = parse(Frames.of(done[0]))
    originals = [int.from_bytes(payload[4:8], "big") for payload in run.payloads]
    assert restored(run.payloads, originals) == (run.count, roundtrip(codec, data), done[1].raw_frames)


HEAD = struct.Struct("!BBbBII")
WORDS = np.array([0.5, 0.0, -0.25, 0.01] * 4 + [0.125], np.float32)
BODY = codecs.get("bounded:10").encode(WORDS) + b"xyz"
GOOD = HEAD.pack(0x10, 2, 10, 3, 71, len(BODY)) + BODY

MALFORMED = {
    "empty": b"",
    "header cut off": GOOD[:11],
    "version 0": b"\x00" + GOOD[1:],
    "version 2": b"\x20" + GOOD[1:],
    "unknown flag": b"\x14" + GOOD[1:],
    "unknown codec": HEAD.pack(0x10, 9, 10, 3, 71, len(BODY)) + BODY,
    "codec beyond any bitmap": HEAD.pack(0x10, 200, 10, 3, 71, len(BODY)) + BODY,
    "parameter 0": HEAD.pack(0x10, 2, 0, 3, 71, len(BODY)) + BODY,
    "parameter negative": HEAD.pack(0x10, 2, -1, 3, 71, len(BODY)) + BODY,
    "tail that disagrees": HEAD.pack(0x10, 2, 10, 2, 71, len(BODY)) + BODY,
    "tail of a word": HEAD.pack(0x10, 2, 10, 4, 71, len(BODY)) + BODY,
    "original that disagrees": HEAD.pack(0x10, 2, 10, 3, 75, len(BODY)) + BODY,
    "nothing": HEAD.pack(0x10, 2, 10, 0, 0, 0),
    "encoded shorter than the tail": HEAD.pack(0x10, 2, 10, 3, 71, 2) + BODY[:2],
    "encoded longer than the payload": HEAD.pack(0x10, 2, 10, 3, 71, len(BODY) + 1) + BODY,
    "bytes behind without PADDED": GOOD + b"\0",
    "PADDED without bytes behind": b"\x12" + GOOD[1:],
    "body early": HEAD.pack(0x10, 2, 10, 3, 71, len(BODY) - 1) + BODY[:-4] + b"xyz",
    "body late": HEAD.pack(0x10, 2, 10, 3, 71, len(BODY) + 1) + BODY[:-3] + b"\0xyz",
    "RAW of another length": HEAD.pack(0x11, 2, 10, 3, 71, 70) + bytes(70),
    "raw without RAW": HEAD.pack(0x10, 0, 0, 3, 71, 71) + bytes(71),
    "raw with a parameter": HEAD.pack(0x11, 0, 1, 3, 71, 71) + bytes(71),
    "RAW of an unknown codec": HEAD.pack(0x11, 9, 1, 3, 71, 71) + bytes(71),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_payload_stops_the_restoring(name: str) -> None:
    expected = roundtrip("bounded:10", WORDS.tobytes() + b"xyz")
    assert restored([GOOD], [71]) == (1, expected, 0)
    assert restored([GOOD, MALFORMED[name], GOOD], [71, 71, 71]) == (1, expected, 0)


def test_good_variants() -> None:
    expected = roundtrip("bounded:10", WORDS.tobytes() + b"xyz")
    assert restored([b"\x12" + GOOD[1:] + bytes(9)], [71]) == (1, expected, 0)
    raw = bytes(range(71))
    assert restored([HEAD.pack(0x11, 2, 10, 3, 71, 71) + raw], [71]) == (1, raw, 1)
    assert restored([HEAD.pack(0x13, 0, 0, 3, 71, 71) + raw + b"\0"], [71]) == (1, raw, 1)
    assert restored([HEAD.pack(0x11, 0, 0, 2, 2, 2) + b"ab"], [2]) == (1, b"ab", 1)


def test_codecs_that_were_not_agreed_are_malformed() -> None:
    assert restored([GOOD], [71], known=0b100)[0] == 1
    assert restored([GOOD], [71], known=0b011)[0] == 0
    assert restored([HEAD.pack(0x11, 0, 0, 3, 71, 71) + bytes(71)], [71], known=0)[0] == 1


def test_a_claim_that_the_bytes_cannot_hold_is_not_believed() -> None:
    """A frame of 100 bytes cannot cause an allocation of 4 GB."""
    [frame] = frames_of(WORDS.tobytes(), **BOUNDED, tos=TOS)
    for flag in (0, lib.SN_FLAG_RAW):
        spoiled = changed(66, bytes([0x10 | flag]))(changed(70, b"\xff\xff\xff\xf0")(frame))
        [run] = parse(Frames.of([repaired(spoiled)]))
        assert run.original_bytes == run.payload_bytes
    [run] = parse(Frames.of([repaired(changed(67, b"\x0f")(changed(70, b"\x00\x01\x00\x00")(frame)))]))
    assert run.original_bytes == run.payload_bytes


@settings(deadline=None, max_examples=300)
@given(payload=st.binary(max_size=120), original=st.integers(0, 4000))
def test_garbage_restores_to_nothing_or_to_its_size(payload: bytes, original: int) -> None:
    done, data, _ = restored([payload], [original])
    assert (done, len(data)) in ((0, 0), (1, original))


@settings(deadline=None, max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_a_mangled_payload_never_writes_outside(seed: int) -> None:
    rng = random.Random(seed)
    payload = bytearray(GOOD)
    for _ in range(rng.randrange(1, 5)):
        payload[rng.randrange(len(payload))] = rng.randrange(256)
    done, data, _ = restored([bytes(payload)], [71])
    assert (done, len(data)) in ((0, 0), (1, 71))
