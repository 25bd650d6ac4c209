"""Memory that an application changes while it is sent yields well-formed frames of unspecified content."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import codecs
from softnic._native import ffi, lib
from softnic.packet.frames import Frames
from tests.changing import WORDS, changing
from tests.nic.harness import TOS, header, parse
from tests.nic.test_parse import restored

ROUNDS = 1000


@pytest.mark.parametrize(
    "codec", ["", "raw", "inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "exact:32", "mx:e2m1"]
)
def test_every_frame_is_whole_and_says_how_long_it_is(codec: str) -> None:
    """Checksums too are of what was sent. Rooms are so small that a part makes several frames."""
    rng, capacity = np.random.default_rng(91), 1 << 14
    out = np.empty(capacity, np.uint8)
    offsets, lengths = np.zeros(100, np.uint32), np.zeros(100, np.uint32)
    arrays = [ffi.from_buffer("uint32_t[]", array) for array in (offsets, lengths)]
    head = header(tos=TOS if codec else 0)
    with changing() as memory:
        source, result = ffi.from_buffer("uint8_t[]", memory), ffi.new("sn_cut_result *")
        for _ in range(ROUNDS):
            size = 4 * WORDS - int(rng.integers(0, 8))
            plan = {
                "header_length": len(head),
                "max_frames": 100,
                "max_payload": int(rng.integers(160, 300)),
                "codec": -1,
            }
            if codec:
                found = codecs.get(codec)
                plan |= {
                    "codec": found.number,
                    "parameter": found.parameter,
                    "block_offset": 4 * int(rng.integers(0, 16)),
                }
            given = ffi.new("sn_cut_plan *", plan)
            assert (
                lib.sn_cut(given, head, source, size, ffi.from_buffer("uint8_t[]", out), capacity, *arrays, result) == 0
            )
            assert result.consumed == size
            sent = slice(result.frames)
            runs = parse(Frames.of(Frames(out, offsets[sent], lengths[sent])))
            payloads = [payload for run in runs for payload in run.payloads]
            assert sum(run.count for run in runs) == result.frames
            if not codec:
                assert sum(map(len, payloads)) == size
                continue
            originals = [int.from_bytes(payload[4:8], "big") for payload in payloads]
            assert sum(originals) == size
            assert restored(payloads, originals)[0] == result.frames
