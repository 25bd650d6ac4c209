"""One emulated machine for all tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softnic import codecs
from softnic.codecs.kernels import simd_select
from tests import needs
from tests.aarch64.machine import COMPILER, EMULATOR, Machine, build


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if missing := needs.missing_tools(COMPILER, EMULATOR):
        needs.skip(missing)
    with Machine(build(tmp_path_factory.mktemp("aarch64"))) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def _reference() -> Iterator[None]:
    """Here the library itself is the reference."""
    before = codecs.simd()
    simd_select("scalar")
    yield
    simd_select(before)
