"""Which bytes of a stream are placed as they arrive: each byte once, and in order."""

from __future__ import annotations

import pytest

from tests.facades.tcp import PlacementCursor
from tests.tcp.lab import Lab


class Placements:
    """The cursor of a connected receiver that nothing has sent to."""

    def __init__(self) -> None:
        _, receiver = Lab().pair()
        self.rcv = receiver.rcv
        self.cursor = PlacementCursor(receiver)

    def offset(self, ahead: int, size: int) -> int | None:
        """The offset of `size` bytes, so far ahead of what has come."""
        return self.cursor.offset((self.rcv.irs + self.rcv.rcv_nxt + ahead) & 0xFFFFFFFF, size)


@pytest.fixture
def placements() -> Placements:
    return Placements()


def test_what_is_next_goes_to_its_place(placements: Placements) -> None:
    assert placements.offset(0, 100) == 0
    assert placements.offset(100, 100) == 100


def test_no_byte_is_given_twice(placements: Placements) -> None:
    assert placements.offset(0, 100) == 0
    assert placements.offset(0, 100) is None
    assert placements.offset(50, 100) is None
    assert placements.offset(200, 100) is None  # out of order
    assert placements.offset(100, 100) == 100
