"""The payload header byte by byte, and payloads back to original bytes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import codecs
from softnic._native import ffi, lib
from softnic.codecs.payload import Payload, PayloadHeader, TagCounts, decode_payload, tag_counts
from tests.codecs import reference
from tests.codecs.cases import BURSTS, EVERY, NAMES, mixed_words, typical

BOUNDED = codecs.get("bounded:10")
HEADER = "11 02 0a 03 0000000b 0000000b"
"""RAW, bounded:10, three tail bytes, 11 bytes in all."""


def payload_of(codec: codecs.Codec, original: bytes, padding: int = 0, raw: bool = False) -> bytes:
    """What a NIC makes of these bytes."""
    count, tail = divmod(len(original), 4)
    words = np.frombuffer(original, np.float32, count)
    body = words.tobytes() if raw else codec.encode(words)
    encoded = body + original[len(original) - tail :]
    header = PayloadHeader(codec, len(original), len(encoded), raw=raw, padded=padding > 0)
    return header.pack() + encoded + b"\xee" * padding


def originals() -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda seed, count, tail: (mixed_words(np.random.default_rng(seed), count).tobytes() + tail) or b"!",
        st.integers(0, 2**32),
        st.integers(0, 200),
        st.binary(max_size=3),
    )


# Headers.


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (PayloadHeader(BOUNDED, 65536, 300), "10 02 0a 00 00010000 0000012c"),
        (PayloadHeader(BOUNDED, 11, 11, raw=True), HEADER),
        (PayloadHeader(codecs.get("inceptionn:23"), 9, 4, padded=True), "12 01 17 01 00000009 00000004"),
        (PayloadHeader(codecs.get("raw"), 5, 5, raw=True, padded=True), "13 00 00 01 00000005 00000005"),
        (PayloadHeader(BOUNDED, 2**32 - 1, 2**24 + 3), "10 02 0a 03 ffffffff 01000003"),
    ],
)
def test_header_bytes(header: PayloadHeader, data: str) -> None:
    assert header.pack() == bytes.fromhex(data)
    assert PayloadHeader.unpack(bytes.fromhex(data) + b"more") == header
    assert (header.words, header.tail) == divmod(header.original, 4)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HEADER[:-2], "11 bytes are not enough for a payload header of 12"),
        ("", "0 bytes are not enough"),
        ("01 02 0a 03 0000000b 0000000b", "version 0, not 1"),
        ("21 02 0a 03 0000000b 0000000b", "version 2, not 1"),
        ("15 02 0a 03 0000000b 0000000b", "unknown flags 0x5"),
        ("19 02 0a 03 0000000b 0000000b", "unknown flags 0x9"),
        ("11 0f 0a 03 0000000b 0000000b", "no codec number 15"),
        ("11 ff 0a 03 0000000b 0000000b", "no codec number 255"),
        ("11 02 00 03 0000000b 0000000b", "codec bounded does not accept parameter 0 (it accepts 1..23)"),
        ("11 02 18 03 0000000b 0000000b", "codec bounded does not accept parameter 24"),
        ("11 02 ff 03 0000000b 0000000b", "codec bounded does not accept parameter -1"),
        ("11 00 01 03 0000000b 0000000b", "codec raw does not accept parameter 1 (it accepts none)"),
        ("10 00 00 03 0000000b 0000000b", "codec raw without the RAW flag"),
        ("11 02 0a 00 00000000 00000000", "a non-empty segment"),
        ("11 02 0a 02 0000000b 0000000b", "a tail of 2 bytes does not fit an original length of 11"),
        ("11 02 0a 07 0000000b 0000000b", "a tail of 7 bytes"),
        ("11 02 0a 03 0000000b 0000000a", "a RAW body of 10 bytes cannot stand for 11"),
        ("10 02 0a 03 0000000b 00000003", "0 bytes of bounded:10 cannot stand for 2 words"),
        ("10 02 0a 03 0000000b 00000000", "-3 bytes of bounded:10 cannot stand for 2 words"),
        ("10 02 0a 00 fffffffc 00ffffff", "cannot stand for 1073741823 words"),
    ],
)
def test_malformed_headers(data: str, reason: str) -> None:
    with pytest.raises(codecs.DecodeError, match=re.escape(reason)):
        PayloadHeader.unpack(bytes.fromhex(data))


@pytest.mark.parametrize(("original", "encoded"), [(-4, 4), (0, 0), (4, -1), (1 << 32, 1 << 31), (4, 1 << 32)])
def test_a_header_holds_only_what_fits(original: int, encoded: int) -> None:
    with pytest.raises(codecs.DecodeError, match="32 bits"):
        PayloadHeader(BOUNDED, original, encoded)


# Payloads.


@given(original=originals(), codec=st.sampled_from(EVERY).map(codecs.get), padding=st.integers(0, 20))
def test_restore(original: bytes, codec: codecs.Codec, padding: int) -> None:
    words = np.frombuffer(original, np.uint32, len(original) // 4)
    expected = np.array(reference.roundtrip(codec.name, words.tolist(), codec.parameter), np.uint32).tobytes()
    payload = payload_of(codec, original, padding)
    assert decode_payload(payload) == expected + original[words.nbytes :]
    assert (
        decode_payload(np.frombuffer(payload, np.uint8))
        == decode_payload(bytearray(payload))
        == decode_payload(memoryview(payload))
    )


@given(original=originals(), name=st.sampled_from(["raw", "bounded:10"]), padding=st.integers(0, 20))
def test_raw_bodies_are_the_original_bytes(original: bytes, name: str, padding: int) -> None:
    payload = payload_of(codecs.get(name), original, padding, raw=True)
    assert decode_payload(payload) == original
    assert Payload.split(payload).tag_counts() == TagCounts(bits_32=len(original) // 4)


def test_lengths_that_disagree() -> None:
    original = np.full(50, 0.25, np.float32).tobytes() + b"xyz"
    payload = payload_of(BOUNDED, original)
    assert decode_payload(payload)[-3:] == b"xyz"
    for end in range(len(payload)):
        with pytest.raises(codecs.DecodeError):
            decode_payload(payload[:end])
    with pytest.raises(codecs.DecodeError, match="whose header says"):
        decode_payload(payload + b"\0")
    padded = payload_of(BOUNDED, original, padding=1)
    assert decode_payload(padded + b"any more") == decode_payload(padded) == decode_payload(payload)
    with pytest.raises(codecs.DecodeError, match="and padding"):
        decode_payload(padded[:-1])
    with pytest.raises(codecs.DecodeError, match="are not a bounded:10 encoding of 49 words"):
        decode_payload(PayloadHeader(BOUNDED, 199, len(payload) - 12).pack() + payload[12:])


@given(payload=st.binary(max_size=80))
def test_any_bytes(payload: bytes) -> None:
    """Almost always refused; never another error."""
    for data in (payload, bytes([0x10, 2, 10, 0, 0, 0, 0, 64]) + payload):
        try:
            restored = decode_payload(data)
        except codecs.DecodeError:
            continue
        assert len(restored) == PayloadHeader.unpack(data).original


def restore_in_c(payload: bytes) -> bytes | None:
    """As the NIC reads the payload of a frame."""
    original = int.from_bytes(payload[4:8], "big") if len(payload) >= 8 else 0
    room = min(original, 1 << 16)
    out, restored, raw = ffi.new("uint8_t[]", room + 1), ffi.new("uint64_t *"), ffi.new("uint32_t *")
    piece = ffi.new("sn_payload_ref *", {"offset": 0, "length": len(payload), "original": original})
    if lib.sn_decode_payloads(payload, len(payload), piece, 1, codecs.BUILT_IN, out, room, restored, raw) != 1:
        return None
    return bytes(ffi.buffer(out, restored[0])[:])


@given(original=originals(), name=st.sampled_from([*NAMES, "raw"]), raw=st.booleans(), data=st.data())
def test_the_nic_reads_payloads_by_the_same_rules(original: bytes, name: str, raw: bool, data: st.DataObject) -> None:
    codec = codecs.get("raw" if name == "raw" else typical(name))
    padding = data.draw(st.integers(0, 2))
    payload = bytearray(payload_of(codec, original, padding, raw=raw or name == "raw"))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, min(len(payload) - 1, 20)))
        payload[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x10, 0x11, 0x12, 0x13, payload[at] ^ 1, 0xFF]))
    del payload[len(payload) - data.draw(st.integers(0, 1)) :]
    try:
        expected = decode_payload(payload)
    except codecs.DecodeError:
        expected = None
    assert restore_in_c(bytes(payload)) == expected


# Tags.


@pytest.mark.parametrize("name", BURSTS)
def test_tag_counts(name: str) -> None:
    words = mixed_words(np.random.default_rng(7), 1003)
    codec = codecs.get(typical(name))
    tags = [reference.SPLIT[name](word, 10)[0] for word in words.tolist()]
    expected = TagCounts(*(tags.count(tag) for tag in range(4)))
    assert min(expected) > 5
    assert tag_counts(codec, codec.encode(words.view(np.float32)), words.size) == expected
    assert Payload.split(payload_of(codec, words.tobytes() + b"!")).tag_counts() == expected


def test_tag_counts_add_up() -> None:
    assert TagCounts(1, 2, 3, 4) + TagCounts(10, 20, 30, 40) == TagCounts(11, 22, 33, 44)
    assert sum([TagCounts(1), TagCounts(2)], TagCounts()) == TagCounts(3)
    assert TagCounts().__add__((1, 2, 3, 4)) is NotImplemented, "joining is not adding"
