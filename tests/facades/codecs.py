"""The internals of softnic.codecs: reductions, feedback, payload headers, the choice of kernels."""

from __future__ import annotations

from softnic.codecs import threads
from softnic.codecs.combine import (
    BFLOAT16,
    ReduceOp,
    combine,
    combine_encode,
    combine_roundtrip,
    decode_combine,
    is_half,
    narrow,
    widen,
)
from softnic.codecs.feedback import quantize, round_parts, supported
from softnic.codecs.kernels import simd_select
from softnic.codecs.payload import Payload, PayloadHeader, TagCounts, decode_payload, tag_counts
from softnic.codecs.registry import Floats

__all__ = [
    "BFLOAT16",
    "Floats",
    "Payload",
    "PayloadHeader",
    "ReduceOp",
    "TagCounts",
    "combine",
    "combine_encode",
    "combine_roundtrip",
    "decode_combine",
    "decode_payload",
    "is_half",
    "narrow",
    "quantize",
    "round_parts",
    "simd_select",
    "supported",
    "tag_counts",
    "threads",
    "widen",
]
