"""One emulated machine for all tests of this directory; without the tools for it they are skipped, but not in CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from softnic import codecs
from softnic.codecs.kernels import simd_select
from tests.aarch64.machine import COMPILER, EMULATOR, PACKAGES, Machine, build


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if not (shutil.which(COMPILER) and shutil.which(EMULATOR)):
        if os.environ.get("CI"):
            pytest.fail(f"{PACKAGES} have to be installed where CI runs")
        pytest.skip(f"{PACKAGES} are not installed")
    with Machine(build(tmp_path_factory.mktemp("aarch64"))) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def _reference() -> Iterator[None]:
    """Here the library itself is the reference."""
    before = codecs.simd()
    simd_select("scalar")
    yield
    simd_select(before)
