from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.sides import Sides, sides


@pytest.fixture(scope="package")
def joined() -> Iterator[Sides]:
    """A plain host and a NIC on a good cable, shared by the tests that leave them as they found them."""
    with sides("--offload", "0x28=bounded:10") as made:
        yield made
