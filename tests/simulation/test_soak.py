"""A world that runs for hours, and that growth is noticed."""

from __future__ import annotations

import pytest

from softnic.tcp.stack import TcpStack
from tests.simulation.soak import IdleMemory, evaluate, soak

HOURS = 2


def rows(*sizes: int) -> list[IdleMemory]:
    return [IdleMemory(hour + 1, 100 * hour, 1000, size) for hour, size in enumerate(sizes)]


def test_growth_is_noticed() -> None:
    lines: list[str] = []
    assert evaluate(rows(50, 90, 100, 100, 99, 101, 100, 100), lines.append)
    assert not evaluate(rows(50, 90, 100, 110, 120, 130, 140, 150), lines.append)
    assert "nothing grows" in lines[0]
    assert "memory grows" in lines[1]


def test_after_hours_nothing_is_left() -> None:
    lines: list[str] = []
    assert soak(HOURS, report=lines.append), lines
    assert len(lines) == 1 + HOURS + 1


def test_connections_that_are_left_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TcpStack, "remove", lambda *_: None)
    lines: list[str] = []
    assert not soak(1, report=lines.append)
    assert "violated" in lines[-1]
