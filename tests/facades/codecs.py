"""The inside of softnic.codecs: reductions, feedback, payload headers, the choice of kernels."""

from __future__ import annotations

from softnic.codecs import threads
from softnic.codecs.combine import (
    BFLOAT16,
    Operation,
    combine,
    combine_encode,
    combine_roundtrip,
    decode_combine,
    is_half,
    narrow,
    widen,
)
from softnic.codecs.feedback import leave, takes
from softnic.codecs.kernels import simd_select
from softnic.codecs.payload import Payload, PayloadHeader, TagCounts, restore, tag_counts
from softnic.codecs.registry import Floats

__all__ = [
    "BFLOAT16",
    "Floats",
    "Operation",
    "Payload",
    "PayloadHeader",
    "TagCounts",
    "combine",
    "combine_encode",
    "combine_roundtrip",
    "decode_combine",
    "is_half",
    "leave",
    "narrow",
    "restore",
    "simd_select",
    "tag_counts",
    "takes",
    "threads",
    "widen",
]
