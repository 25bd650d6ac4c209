"""The generator of emulated links, beside numpy's."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from softnic._native import ffi, lib
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from tests.link.doubles import Recorder

BOUNDS = (2, 3, 8, 7 * 8, 1514 * 8, 70_000 * 8, 2**31, 3 * 2**30, 2**32 - 2)
"""Of numbers, most of which are not powers of two; with some, many draws are repeated."""


@pytest.mark.parametrize("seed", [0, 1, 7, 2**64 - 1, 2**200])
def test_its_numbers_are_those_of_numpy(seed: int) -> None:
    link = EmulatedLink(Recorder(), EmulationSpec(loss=0.5), seed=seed)
    generator, numpy = ffi.addressof(link.ring, "chance", "generator"), np.random.Generator(np.random.PCG64(seed))
    choose = Random(seed)
    for _ in range(5000):
        if choose.random() < 0.5:
            assert lib.sn_pcg64_fraction(generator) == numpy.random()
        else:
            bound = choose.choice(BOUNDS)
            assert lib.sn_pcg64_below(generator, bound) == numpy.integers(bound)
