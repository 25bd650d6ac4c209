"""A hundred million words through the engines of each codec, beside the fastest kernels of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from softnic import codecs
from softnic.codecs.kernels import RTL, simd_select
from softnic.rtl import verilator
from tests import needs
from tests.codecs.cases import anything, gradients

CHUNK = 1 << 20
WORDS = 10**8


@pytest.fixture
def fastest() -> Iterator[str]:
    if reason := verilator.missing():
        needs.skip(reason)
    before = codecs.simd()
    yield codecs.simd_available()[-1]
    simd_select(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inceptionn", "bounded"])
def test_the_same_bytes(name: str, fastest: str) -> None:
    """Gradients of all scales and any bits, with every parameter in turn."""
    rng = np.random.default_rng(39)
    for chunk in range(-(-WORDS // CHUNK)):
        codec = codecs.get(f"{name}:{chunk % 23 + 1}")
        make = anything if chunk % 5 == 4 else gradients
        floats = make(rng, CHUNK).view(np.float32)
        simd_select(fastest)
        body = codec.encode(floats)
        words = codec.decode(body, floats.size)
        simd_select(RTL)
        assert codec.encode(floats) == body
        assert codec.decode(body, floats.size).tobytes() == words.tobytes()
