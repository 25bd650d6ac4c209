"""Worlds find defects: faults planted in the stack are violations within a few seeds."""

from __future__ import annotations

import pytest

from tests.simulation import planted
from tests.simulation.invariants import Violation
from tests.simulation.scenario import draw
from tests.simulation.seeds import failure_of, real_time_limit, try_seed
from tests.simulation.world import World

WITHIN = 40
"""Seeds."""


def found(text: str, queues: int | None = None) -> bool:
    """Return whether one of the first seeds has a violation with this text."""
    return any(text in try_seed(seed, queues=queues).error for seed in range(WITHIN))


def test_an_altered_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.alter_received_bytes(monkeypatch, after=1000)
    assert found("arrives wrong")


def test_floats_that_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.cut_inside_words(monkeypatch)
    assert found("arrives wrong")


def test_a_connection_without_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.wait_for_ever(monkeypatch)
    assert found("has waited for")


def test_connections_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.keep_failed_connections(monkeypatch)
    assert found("connections that nobody uses")


def test_ranks_with_different_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.leave_out_the_last_operand(monkeypatch)
    assert found("with different bits")


def test_an_exception_in_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("planted")

    planted.crash_on_retransmission_timeout(monkeypatch, crash)
    assert found("ZeroDivisionError: planted")


def test_connections_in_other_queues_than_their_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.connect_from_any_port(monkeypatch)
    assert found("but hashes to", queues=2)


def test_an_endless_loop() -> None:
    def endless() -> None:
        while True:
            pass

    with pytest.raises(Violation, match="stands still"), real_time_limit(0.2):
        endless()
    assert not failure_of(World(draw(0)))
