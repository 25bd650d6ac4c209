"""Everything in this directory runs once for each implementation of the kernels that the machine has.

One of them are the engines of native/rtl in a simulator, where Verilator is installed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softnic import codecs
from softnic.codecs.kernels import RTL, simd_select
from softnic.rtl import verilator
from tests import needs

SIMULATED = pytest.param(RTL, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[*codecs.simd_available(), SIMULATED], autouse=True)
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the implementation in use. Of module scope, because hypothesis calls a test many times."""
    before, chosen = codecs.simd(), str(request.param)
    if chosen == RTL and (reason := verilator.missing()):
        needs.skip(reason)
    simd_select(chosen)
    yield chosen
    simd_select(before)
