"""Everything in this directory runs once for each implementation of the kernels that the machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softnic import codecs
from softnic.codecs.kernels import simd_select


@pytest.fixture(scope="module", params=codecs.simd_available(), autouse=True)
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the implementation in use. Of module scope, because hypothesis calls a test many times."""
    before, chosen = codecs.simd(), str(request.param)
    simd_select(chosen)
    yield chosen
    simd_select(before)
