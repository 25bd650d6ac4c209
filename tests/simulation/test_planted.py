"""Simulation finds what is wrong: faults planted in the stack are violations within a few seeds."""

from __future__ import annotations

import pytest

from tests.facades.collectives import ReduceRecv
from tests.facades.nic import Flows
from tests.facades.tcp import Connection, Receive, TcpStack, send_buffer, timers
from tests.facades.worlds import Violation, World, draw, failure_of, patience, try_seed

WITHIN = 40


def found(text: str) -> bool:
    """Whether one of the first seeds is violated so."""
    return any(text in try_seed(seed).error for seed in range(WITHIN))


def test_a_byte_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = Receive._deliver

    def flipped(self: Receive, payload: memoryview) -> None:
        data = bytearray(payload)
        if self.rcv_nxt > 1000 and data:
            data[0] ^= 1
        deliver(self, memoryview(data))

    monkeypatch.setattr(Receive, "_deliver", flipped)
    assert found("arrives wrong")


def test_floats_that_leave_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_buffer, "_WORD", 1)
    assert found("arrives wrong")


def test_a_peer_that_is_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(self: Connection, waited_s: float) -> None:
        del waited_s
        self.rto_at = self.keepalive_at = self.NEVER

    monkeypatch.setattr(Connection, "time_out", forgotten)
    assert found("has waited for")


def test_connections_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    forget = TcpStack.forget

    def forgetful(self: TcpStack, connection: Connection) -> None:
        if not connection.error:
            forget(self, connection)

    monkeypatch.setattr(TcpStack, "forget", forgetful)
    assert found("connections that nobody uses")


def test_flows_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flows, "__len__", lambda _: 10_000)
    assert found("flows of")


def test_ranks_with_different_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReduceRecv, "last", lambda *_: None)
    assert found("with different bits")


def test_a_crash_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(timers, "_on_retransmission_timeout", crash)
    assert found("ZeroDivisionError: planted")


def test_code_that_runs_in_a_circle() -> None:
    def circle() -> None:
        while True:
            pass

    with pytest.raises(Violation, match="stands still"), patience(0.2):
        circle()
    assert not failure_of(World(draw(0)))
