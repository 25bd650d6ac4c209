"""Which bytes of a stream are placed as they arrive: each byte once, and in order."""

from __future__ import annotations

import pytest

from tests.facades.tcp import PlacementCursor
from tests.tcp.lab import Lab


class Placements:
    """The placement cursor of a connected receiver that has received nothing."""

    def __init__(self) -> None:
        _, receiver = Lab().pair()
        self.rcv = receiver.rcv
        self.cursor = PlacementCursor(receiver)

    def offset(self, ahead: int, size: int) -> int | None:
        """Return the placement of `size` bytes `ahead` of the received data."""
        return self.cursor.offset((self.rcv.irs + self.rcv.rcv_nxt + ahead) & 0xFFFFFFFF, size)


@pytest.fixture
def placements() -> Placements:
    return Placements()


def test_the_next_bytes_are_placed(placements: Placements) -> None:
    assert placements.offset(0, 100) == 0
    assert placements.offset(100, 100) == 100


def test_no_byte_is_placed_twice(placements: Placements) -> None:
    assert placements.offset(0, 100) == 0
    assert placements.offset(0, 100) is None
    assert placements.offset(50, 100) is None
    assert placements.offset(200, 100) is None  # out of order
    assert placements.offset(100, 100) == 100
