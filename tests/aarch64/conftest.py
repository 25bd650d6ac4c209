"""One emulated machine for all tests of this directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic import codecs
from softnic.codecs.kernels import simd_select
from tests import needs
from tests.aarch64.machine import COMPILER, EMULATOR, Machine, build


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if missing := needs.missing_tools(COMPILER, EMULATOR):
        needs.skip(missing)
    with Machine(built(tmp_path_factory.getbasetemp())) as running:
        yield running


def built(directory: Path) -> Path:
    """Return the program, which one of xdist's workers builds for all: their directories have one parent."""
    shared = directory.parent if "PYTEST_XDIST_WORKER" in os.environ else directory
    folder = shared / "aarch64"
    folder.mkdir(exist_ok=True)
    program = folder / "kernels"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return program if program.exists() else build(folder)


@pytest.fixture(scope="module", autouse=True)
def _reference() -> Iterator[None]:
    """Here the library itself is the reference."""
    before = codecs.simd()
    simd_select("scalar")
    yield
    simd_select(before)
