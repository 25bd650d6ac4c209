"""TCP options of a SYN, as the C checks them and the stack reads them.

What the parser of frames lets pass is read without an error, gives legal values only, and those are read again from
options that say them.
"""

from __future__ import annotations

from collections.abc import Iterator

from softnic._native import ffi, lib
from softnic.packet.headers import MAX_SCALE, pack_options, parse_options
from softnic.packet.segment import Flags, Options
from tests.fuzz.python._frames import repaired
from tests.nic.harness import MAC_B, header

_BARE = header(Flags.SYN, stamped=False)
_MOST = 40
_START, _LENGTH = ffi.new("uint32_t *", 0), ffi.new("uint32_t *")
_PIECE, _RUN = ffi.new("sn_payload_ref *"), ffi.new("sn_run *")
_PACKED = ("mss", "window_scale", "sack_permitted", "codecs")


def _let_pass(frame: bytes) -> bytes | None:
    """The options that the parser of frames finds in a SYN; None where it refuses it."""
    _LENGTH[0] = len(frame)
    found = lib.sn_parse(ffi.from_buffer(frame), len(frame), _START, _LENGTH, 1, MAC_B, 0, _PIECE, _RUN)
    assert (found, _RUN.first, _RUN.count) == (1, 0, 1)
    end = _RUN.options_offset + _RUN.options_length
    return None if _RUN.kind else frame[_RUN.options_offset : end]


def feed(data: bytes) -> None:
    packed = data[:_MOST]
    packed += bytes(-len(packed) % 4)
    words = (20 + len(packed)) // 4
    passed = _let_pass(repaired(_BARE[:46] + bytes([words << 4]) + _BARE[47:54] + packed))
    if passed is None:
        return
    assert passed == packed
    options = parse_options(passed)
    assert options.mss is None or 0 <= options.mss <= 0xFFFF
    assert options.window_scale is None or 0 <= options.window_scale <= MAX_SCALE
    assert options.codecs is None or 0 <= options.codecs <= 0xFFFF
    again = parse_options(pack_options(options, None))
    assert all(getattr(again, name) == getattr(options, name) for name in _PACKED)


def seeds() -> Iterator[bytes]:
    yield pack_options(Options(1460, 7, True, 0x1F), (1, 2))
    yield pack_options(Options(1460, 14, False, 0x1F), None)
    yield bytes.fromhex("0204 05b4 01 03 03 ff 00")
    yield bytes.fromhex("fe09 534e4943 02 ffff fe04 1234 05 0a 00000001 00000002")
