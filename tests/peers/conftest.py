from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.sides import Sides, sides


@pytest.fixture(scope="package")
def joined() -> Iterator[Sides]:
    """A plain host and a NIC on an unimpaired link, shared by tests that leave both unchanged."""
    with sides("--offload", "0x28=bounded:10") as made:
        yield made
