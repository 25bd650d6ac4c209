from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon.nics import Nic, nothing_kept, running


@pytest.fixture(scope="package")
def nics() -> Iterator[list[Nic]]:
    """Two nodes on a plain wire, shared by the tests that leave them as they found them."""
    with running(2, "--offload", "0x28=bounded:10") as started:
        yield started


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    with nothing_kept():
        yield
