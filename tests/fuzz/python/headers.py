"""Payload headers, read by the NIC's C and by the careful reader of captures.

Both must take the same payloads, and for the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from softnic import codecs
from softnic._native import ffi, lib
from softnic.codecs.payload import decode_payload
from tests.fuzz import seeds as native

_MOST = 1 << 20


def _by_c(payload: bytes, original: int) -> bytes | None:
    out = np.empty(original, np.uint8)
    piece = ffi.new("sn_payload_ref *", (0, len(payload), original))
    restored, raw = ffi.new("uint64_t *"), ffi.new("uint32_t *")
    target = (ffi.from_buffer("uint8_t[]", out), original, restored, raw)
    done = lib.sn_decode_payloads(ffi.from_buffer(payload), len(payload), piece, 1, codecs.BUILT_IN, *target)
    return out.tobytes() if done else None


def feed(data: bytes) -> None:
    original = struct.unpack_from("!I", data, 4)[0] if len(data) >= 8 else 0
    if original > _MOST:
        return
    try:
        careful: bytes | None = decode_payload(data)
    except codecs.DecodeError:
        careful = None
    assert _by_c(data, original) == careful


def seeds() -> Iterable[bytes]:
    return native.payloads()
