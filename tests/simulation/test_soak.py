"""Hours of a world, and that growth would be seen."""

from __future__ import annotations

import pytest

from tests.facades.tcp import TcpStack
from tests.simulation.soak import Kept, evaluate, soak

HOURS = 2


def rows(*sizes: int) -> list[Kept]:
    return [Kept(hour + 1, 100 * hour, 1000, size) for hour, size in enumerate(sizes)]


def test_growth_is_seen() -> None:
    told: list[str] = []
    assert evaluate(rows(50, 90, 100, 100, 99, 101, 100, 100), told.append)
    assert not evaluate(rows(50, 90, 100, 110, 120, 130, 140, 150), told.append)
    assert "nothing grows" in told[0]
    assert "it grows" in told[1]


def test_hours_go_by_and_nothing_is_left() -> None:
    told: list[str] = []
    assert soak(HOURS, tell=told.append), told
    assert len(told) == 1 + HOURS + 1


def test_what_is_left_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TcpStack, "remove", lambda *_: None)
    told: list[str] = []
    assert not soak(1, tell=told.append)
    assert "violated" in told[-1]
