"""Segmentation: the frames of sn_cut, compared with FORMAT.md through a simple reference parser."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic import codecs
from softnic._native import ffi, lib
from softnic.packet.frames import HEADROOM
from softnic.packet.segment import Flags

from .harness import checksum, cut, decode_payload, floats, header, roundtrip, take_apart

CODECS = [
    "raw",
    "inceptionn:10",
    "bounded:10",
    "bounded:1",
    "inceptionn:23",
    "bfp:7",
    "bfp:12",
    "truncate:16",
    "truncate:13",
    "rht:4",
    "rht:6",
    "exact:32",
    "mx:e2m3",
    "mx:e2m1",
]
LEAST_MAX_PAYLOAD: int = lib.SN_LEAST_MAX_PAYLOAD


def plan_of(codec: str) -> dict[str, Any]:
    found = codecs.get(codec)
    return {"codec": found.number, "parameter": found.parameter}


def mixed(count: int, seed: int) -> bytes:
    """Returns words of every kind: runs of zeros, gradients, large and special values, and noise."""
    rng = np.random.default_rng(seed)
    scales = np.repeat(rng.choice([0.0, 1e-6, 0.01, 0.5, 100.0, 1e30], size=count // 50 + 1), 50)[:count]
    words = (rng.standard_normal(count) * scales).astype(np.float32)
    words[rng.random(count) < 0.02] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 1.0], np.float32))
    return bytes(words.tobytes())


# Checksums.


@given(st.binary(max_size=300), st.integers(0, 0xFFFFFFFF))
def test_checksum_equals_the_slow_one(data: bytes, initial: int) -> None:
    expected = checksum(initial.to_bytes(4, "big") + data)
    found = lib.sn_checksum(data, len(data), initial)
    assert found % 0xFFFF == expected % 0xFFFF  # +0 and -0 are one number in ones' complement


def test_checksum_of_long_data_carries_all_the_way() -> None:
    data = b"\xff" * 70_001
    assert lib.sn_checksum(data, len(data), 0) == checksum(data)


# Plain payloads.


@settings(deadline=None)
@given(
    size=st.integers(0, 6000),
    max_payload=st.integers(1, 1460),
    seq=st.integers(0, 2**32 - 1),
    identification=st.integers(0, 65535),
    stamped=st.booleans(),
    flags=st.sampled_from([Flags.ACK, Flags.ACK | Flags.PSH, Flags.ACK | Flags.FIN, Flags.ACK | Flags.PSH | Flags.FIN]),
)
def test_plain_payload_is_cut_to_room(
    size: int, max_payload: int, seq: int, identification: int, stamped: bool, flags: int
) -> None:
    payload = random.Random(size).randbytes(size)
    head = header(flags, seq=seq, stamped=stamped, identification=identification)
    done = cut(head, payload, max_payload=max_payload, codec=-1, max_frames=6000)
    assert done is not None
    frames, result = done
    assert result.consumed == size
    assert result.payload_bytes == size
    assert len(frames) == max(1, -(-size // max_payload))
    at = 0
    for index, frame in enumerate(frames):
        packet = take_apart(frame)
        last = index == len(frames) - 1
        assert packet.identification == (identification + index) % 2**16
        assert packet.seq == (seq + at) % 2**32
        assert packet.flags == (flags if last else Flags.ACK)
        assert packet.payload == payload[at : at + max_payload]
        at += max_payload


def test_a_frame_budget_ends_the_cut_without_push_or_fin() -> None:
    payload = bytes(5000)
    done = cut(header(Flags.ACK | Flags.PSH | Flags.FIN), payload, max_payload=1000, codec=-1, max_frames=3)
    assert done is not None
    frames, result = done
    assert (len(frames), result.consumed) == (3, 3000)
    assert [take_apart(frame).flags for frame in frames] == [Flags.ACK] * 3


@pytest.mark.parametrize("codec", ["plain", *CODECS])
def test_capacity_ends_the_cut(codec: str) -> None:
    payload = np.random.default_rng(3).bytes(10_000)
    plan = {"codec": -1} if codec == "plain" else plan_of(codec)
    taken = -1
    for capacity in range(0, 4000, 37):
        done = cut(header(), payload, max_payload=1000, capacity=capacity, **plan)
        if done is None:
            assert capacity < 8 + 66 + 1000
            continue
        assert done[1].consumed >= max(taken, 1)
        taken = done[1].consumed
    assert taken >= 2000


# Plans that are not legal.


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_payload": 0},
        {"max_payload": 65535},
        {"codec": -2},
        {"codec": 5},
        {"codec": 2, "parameter": 0},
        {"codec": 2, "parameter": 24},
        {"codec": 3, "parameter": 16},
        {"codec": 4, "parameter": 7},
        {"codec": 0, "parameter": 1},
        {"codec": 2, "max_payload": LEAST_MAX_PAYLOAD - 1},
        {"codec": 2, "block_offset": 512},
        {"codec": 2, "block_offset": 2},
        {"max_frames": 0},
    ],
)
def test_an_illegal_plan_is_refused(wrong: dict[str, int]) -> None:
    plan = {"max_payload": 1448, "codec": -1, "parameter": 10 if wrong.get("codec", 0) > 0 else 0, **wrong}
    assert cut(header(), bytes(100), **plan) is None


def test_raw_payloads_begin_inside_words_too() -> None:
    """A kernel's tagged range may continue there, with the rest of a word that was written in parts."""
    data = bytes(range(200))
    done = cut(header(), data, max_payload=LEAST_MAX_PAYLOAD, codec=0, parameter=0, block_offset=2)
    assert done is not None
    payloads = [decode_payload(take_apart(frame).payload) for frame in done[0]]
    assert b"".join(payload.original for payload in payloads) == data
    assert [len(payload.original) for payload in payloads] == [62, 64, 74]


@pytest.mark.parametrize("broken", ["short", "long", "version", "offset"])
def test_an_illegal_header_is_refused(broken: str) -> None:
    head = bytearray(header())
    if broken == "short":
        head = head[:53]
    elif broken == "long":
        head += bytes(100)
    elif broken == "version":
        head[14] = 0x46
    else:
        head[46] = 0x50
    assert cut(bytes(head), bytes(100), max_payload=1000, codec=-1) is None


# Offloaded payloads.


def check_frames(frames: list[bytes], data: bytes, codec: str, block_offset: int, *, seq: int = 1000) -> list[int]:
    """Every frame decodes alone, starts and ends where the rules say, and all together give the round trip.

    Returns the original bytes of each.
    """
    block = codecs.get(codec).block_bytes
    start = -block_offset % block if codec.startswith(("bfp", "rht", "exact", "mx")) else 0
    first = data[:start] if codec.startswith(("rht", "mx")) else roundtrip(codec, data[:start])
    expected = first + roundtrip(codec, data[start:])
    at, sizes = 0, []
    for frame in frames:
        packet = take_apart(frame)
        payload = decode_payload(packet.payload)
        assert packet.seq == (seq + at) % 2**32
        assert (payload.codec, payload.parameter) == tuple(plan_of(codec).values())
        if payload.codec == 0:
            assert payload.raw
        end = at + len(payload.original)
        whole = (block_offset + at) % block == 0 and ((block_offset + end) % block == 0 or end == len(data))
        unrounded = block > 64 and payload.raw and not whole  # a part of a block that no frame can hold
        assert payload.original == (data if unrounded else expected)[at:end]
        assert payload.raw or payload.encoded < len(payload.original)
        at += len(payload.original)
        sizes.append(len(payload.original))
        assert (block_offset + at) % (64 if unrounded else block) == 0 or at == len(data)
    return sizes


@settings(deadline=None, max_examples=150)
@given(
    codec=st.sampled_from(CODECS),
    count=st.integers(0, 4000),
    tail=st.integers(0, 3),
    max_payload=st.integers(LEAST_MAX_PAYLOAD, 1460),
    block_offset=st.integers(0, 127).map(lambda words: 4 * words),
    seed=st.integers(0, 2**16),
    packet_mode=st.booleans(),
    equal_sizes=st.booleans(),
)
def test_offloaded_payload_follows_the_format(
    codec: str,
    count: int,
    tail: int,
    max_payload: int,
    block_offset: int,
    seed: int,
    packet_mode: bool,
    equal_sizes: bool,
) -> None:
    data = mixed(count, seed) + bytes(range(1, tail + 1))
    done = cut(
        *(header(), data),
        **{
            "max_payload": max_payload,
            "block_offset": block_offset,
            "packet_mode": packet_mode,
            "equal_sizes": equal_sizes,
            **plan_of(codec),
        },
    )
    assert done is not None
    frames, result = done
    assert result.consumed == len(data)
    if not data:
        assert [take_apart(frame).payload for frame in frames] == [b""]
        return
    check_frames(frames, data, codec, block_offset)
    payloads = [take_apart(frame).payload for frame in frames]
    assert all(len(payload) <= max_payload for payload in payloads)
    assert result.payload_bytes == sum(len(payload) for payload in payloads)
    assert result.raw_frames == sum(decode_payload(payload).raw for payload in payloads)
    if equal_sizes and not packet_mode:
        assert {len(payload) for payload in payloads[:-1]} <= {max_payload}
        assert not decode_payload(payloads[-1]).padded
    else:
        assert not any(decode_payload(payload).padded for payload in payloads)


@settings(deadline=None, max_examples=150)
@given(
    codec=st.sampled_from(CODECS),
    size=st.integers(1, 3000),
    max_payload=st.integers(LEAST_MAX_PAYLOAD, 1460),
    block_offset=st.integers(0, 127).map(lambda words: 4 * words),
    spare=st.integers(0, 3 * (8 + 66 + 1460)),
    max_frames=st.integers(1, 5),
    packet_mode=st.booleans(),
)
def test_frames_of_equal_sizes_stay_within_any_capacity(
    codec: str, size: int, max_payload: int, block_offset: int, spare: int, max_frames: int, packet_mode: bool
) -> None:
    """`cut` checks that nothing is written past the capacity, which begins at the smallest that holds a frame."""
    plan = {
        "max_payload": max_payload,
        "block_offset": block_offset,
        "packet_mode": packet_mode,
        "equal_sizes": True,
        **plan_of(codec),
    }
    head, data = header(), mixed(size // 4 + 1, size)[:size]
    smallest = HEADROOM + len(head) + min(size + 12, max_payload)
    assert cut(head, data, capacity=smallest - 1, max_frames=max_frames, **plan) is None
    done = cut(head, data, capacity=smallest + spare, max_frames=max_frames, **plan)
    assert done is not None
    frames, result = done
    assert 0 < result.consumed <= size
    payloads = [take_apart(frame).payload for frame in frames]
    assert sum(check_frames(frames, data, codec, block_offset)) == result.consumed
    assert not decode_payload(payloads[-1]).padded


@pytest.mark.parametrize("codec", ["bfp:7", "bfp:12"])
def test_a_short_first_block_is_not_padded_beyond_a_tight_capacity(codec: str) -> None:
    """All that is left is smaller than a frame, but a block that began earlier ends first: two frames are needed."""
    data, head, max_payload = floats(100).tobytes(), header(), 1460
    plan = {"max_payload": max_payload, "block_offset": 60, "equal_sizes": True, **plan_of(codec)}
    done = cut(head, data, capacity=HEADROOM + len(head) + 12 + len(data), **plan)
    assert done is not None
    (frame, *more), result = done
    assert (more, result.consumed) == ([], 4)
    assert len(take_apart(frame).payload) == 12 + 4


@pytest.mark.parametrize("codec", CODECS)
def test_packet_mode_sends_as_many_packets_as_raw(codec: str) -> None:
    data = floats(20_000).tobytes()
    counts = []
    for name in (codec, "raw"):
        done = cut(header(), data, max_payload=1448, packet_mode=1, **plan_of(name))
        assert done is not None
        block = codecs.get(name).block_bytes
        assert set(check_frames(done[0], data, name, 0)[:-1]) == {(1448 - 12) // block * block}
        counts.append(len(done[0]))
    assert counts[0] == counts[1] or codecs.get(codec).block_bytes == 512, "long blocks fill a packet less"


def test_fill_mode_sends_full_frames() -> None:
    data = floats(100_000).tobytes()
    done = cut(header(), data, max_payload=1448, **plan_of("bounded:10"))
    assert done is not None
    sizes = [len(take_apart(frame).payload) for frame in done[0]]
    assert min(sizes[:-1]) > 1448 - 69  # a coding block of 64 bytes more would not have fitted
    assert len(sizes) < len(data) / 1448 / 3


def test_what_would_not_shrink_goes_raw_but_rounded() -> None:
    """An RAW body holds decode(encode(x)), so that the bits do not depend on where the stream was cut."""
    words = np.full(3000, 1e9, np.float32)
    words[::16] = 0.3
    data = words.tobytes()
    assert roundtrip("bounded:10", data) != data
    done = cut(header(), data, max_payload=1448, **plan_of("bounded:10"))
    assert done is not None
    assert done[1].raw_frames == len(done[0])
    check_frames(done[0], data, "bounded:10", 0)


@pytest.mark.parametrize("packet_mode", [0, 1])
@pytest.mark.parametrize("codec", ["inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "mx:e2m1", "raw"])
def test_any_recutting_decodes_to_the_same_bits(codec: str, packet_mode: int) -> None:
    """Retransmissions start at any cut of the first transmission, with another max_payload and budget."""
    rng = random.Random(7)
    data, block = mixed(5000, 11) + b"xyz", codecs.get(codec).block_bytes
    least = max(LEAST_MAX_PAYLOAD, block + 12)  # parts of blocks are not rounded where a frame cannot hold one
    for _ in range(40):
        start = rng.randrange(0, len(data) // block) * block
        max_payload, budget = rng.randrange(least, 1461), rng.randrange(1, 9)
        plan = {"max_payload": max_payload, "packet_mode": packet_mode, "max_frames": budget, **plan_of(codec)}
        done = cut(header(seq=start), data[start:], **plan)
        assert done is not None
        whole = roundtrip(codec, data)
        at = start
        for frame in done[0]:
            restored = decode_payload(take_apart(frame).payload).original
            assert restored == whole[at : at + len(restored)]
            at += len(restored)
        assert at == start + done[1].consumed


@pytest.mark.parametrize("codec", ["bounded:10", "bfp:7", "truncate:16"])
def test_an_open_range_goes_on_at_its_phase(codec: str) -> None:
    """Whole words that went as a last cut leave the next segment in the middle of a coding block."""
    data = floats(3000).tobytes()
    first, second = data[: 64 * 20 + 24], data[64 * 20 + 24 :]
    done = cut(header(seq=len(first)), second, max_payload=500, block_offset=24, **plan_of(codec))
    assert done is not None
    sizes = check_frames(done[0], second, codec, 24, seq=len(first))
    assert (sizes[0] == 40) == (codec == "bfp:7"), "a block does not lie across coding blocks"


def test_a_tail_that_does_not_fit_costs_a_stretch() -> None:
    """Encoded words may fill a frame to the last byte; the tail then goes into the next one, with words or alone."""
    for count in range(330, 400):
        data = np.full(count, 0.9, np.float32).tobytes() + b"abc"
        done = cut(header(), data, max_payload=LEAST_MAX_PAYLOAD + 300, **plan_of("bounded:15"))
        assert done is not None
        check_frames(done[0], data, "bounded:15", 0)


def test_payload_may_lie_anywhere() -> None:
    """Neither words nor frames need to be aligned."""
    data = floats(500).tobytes()
    for shift in range(1, 5):
        shifted = memoryview(bytes(shift) + data)[shift:]
        plan = ffi.new(
            "sn_cut_plan *", {"header_length": 66, "max_payload": 1001, "codec": 2, "parameter": 10, "max_frames": 9}
        )
        out, places, result = ffi.new("uint8_t[]", 9000), ffi.new("uint32_t[]", 18), ffi.new("sn_cut_result *")
        source = ffi.from_buffer("uint8_t[]", shifted)
        assert lib.sn_cut(plan, header(), source, len(data), out + shift, 8000, places, places + 9, result) == 0
        at = places[0] + shift
        assert decode_payload(take_apart(bytes(ffi.buffer(out)[at : at + places[9]])).payload).original in roundtrip(
            "bounded:10", data
        )
