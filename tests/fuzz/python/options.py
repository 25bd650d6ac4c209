"""TCP options of a SYN, as the C checks them and the stack reads them.

What the parser of frames lets pass is read without an error, gives legal values only, and those are read again from
options that say them.
"""

from __future__ import annotations

from collections.abc import Iterator

from softnic.stack.frames import Frames
from softnic.stack.headers import MAX_SCALE, pack_options, parse_options
from softnic.stack.segment import Flags, Options
from tests.fuzz.python._frames import repaired
from tests.nic.harness import header, parse

_BARE = header(Flags.SYN, stamped=False)
_MOST = 40
_PACKED = ("mss", "window_scale", "sack_permitted", "codecs")


def feed(data: bytes) -> None:
    packed = data[:_MOST]
    packed += bytes(-len(packed) % 4)
    words = (20 + len(packed)) // 4
    [run] = parse(Frames.of([repaired(_BARE[:46] + bytes([words << 4]) + _BARE[47:54] + packed)]))
    if run.kind:
        return
    assert run.options == packed
    options = parse_options(run.options)
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
