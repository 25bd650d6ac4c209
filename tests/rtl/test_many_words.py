"""Many words through the engines of each codec, beside the fastest kernels of this machine.

`python -m tests.rtl.test_many_words CODEC WORDS` compares as many as it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from softnic import codecs
from softnic.codecs.kernels import RTL, simd_select
from softnic.rtl import verilator
from tests import needs
from tests.codecs.cases import RANGES, Words, anything, gradients
from tests.rtl import test_bfp, test_rht

CHUNK = 1 << 14
PARAMETERS: dict[str, Sequence[int | str]] = {**RANGES, "rht": (4,)}
"""Those that engines take."""
KINDS: Sequence[Callable[[np.random.Generator, int], Words]] = (
    gradients,
    gradients,
    test_bfp.words_of,
    test_rht.words_of,
    anything,
)
WORDS = {"inceptionn": 2 * 10**6, "bounded": 2 * 10**6, "bfp": 2 * 10**6, "rht": 10**6}
"""In which each parameter meets each kind."""


@pytest.fixture
def kernels() -> Iterator[None]:
    if reason := verilator.missing():
        needs.skip(reason)
    before = codecs.simd()
    yield
    simd_select(before)


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.usefixtures("kernels")
def test_the_same_bytes(name: str) -> None:
    compare(name, WORDS[name])


def compare(name: str, words: int) -> None:
    """Gradients of all scales, blocks of all kinds and any bits, with every parameter in turn."""
    rng = np.random.default_rng(39)
    fastest = codecs.simd_available()[-1]
    for chunk in range(-(-words // CHUNK)):
        codec = codecs.get(f"{name}:{PARAMETERS[name][chunk % len(PARAMETERS[name])]}")
        floats = KINDS[chunk % len(KINDS)](rng, CHUNK).view(np.float32)
        simd_select(fastest)
        body = codec.encode(floats)
        back = codec.decode(body, floats.size)
        simd_select(RTL)
        assert codec.encode(floats) == body
        assert codec.decode(body, floats.size).tobytes() == back.tobytes()


if __name__ == "__main__":
    compare(sys.argv[1], int(sys.argv[2]))
