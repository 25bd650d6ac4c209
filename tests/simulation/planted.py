"""Faults planted in the code, for tests of the checks that must detect them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from softnic.collectives.steps import EngineOp
from softnic.packet.segment import Tag
from softnic.tcp import timers
from softnic.tcp.budget import Budget
from softnic.tcp.flow import NEVER, Flow
from softnic.tcp.rcv import ReceiveState
from softnic.tcp.send_buffer import Cuts, SendBuffer
from softnic.tcp.stack import TcpStack
from softnicd.queues import Queues


def crash_on_retransmission_timeout(monkeypatch: pytest.MonkeyPatch, crash: Callable[..., None]) -> None:
    """Call `crash` instead of what handles a retransmission timeout."""
    monkeypatch.setattr(timers, "_on_retransmission_timeout", crash)


def crash_on_close_timer(monkeypatch: pytest.MonkeyPatch, crash: Callable[..., None]) -> None:
    """Call `crash` instead of what handles the timer of closing connections."""
    monkeypatch.setattr(timers, "_on_close_time", crash)


def alter_received_bytes(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Flip a bit of each run of bytes that is received when more than `after` have been."""
    deliver = ReceiveState._deliver

    def flipped(self: ReceiveState, payload: memoryview) -> None:
        data = bytearray(payload)
        if self.rcv_nxt > after and data:
            data[0] ^= 1
        deliver(self, memoryview(data))

    monkeypatch.setattr(ReceiveState, "_deliver", flipped)


def cut_inside_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tagged ranges be cut at any byte."""
    tag = SendBuffer.tag

    def plain(self: SendBuffer, given: Tag, position: int, words: bool, cuts: Cuts) -> None:
        del words
        tag(self, given, position, False, cuts)

    monkeypatch.setattr(SendBuffer, "tag", plain)


def wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop all timers of a connection that should time out, and keep it."""

    def forgotten(flow: Flow, waited_s: float) -> None:
        del waited_s
        flow.rto_at = flow.keepalive_at = NEVER

    monkeypatch.setattr(timers, "time_out", forgotten)


def keep_failed_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep connections that ended in an error."""
    remove = TcpStack.remove

    def forgetful(self: TcpStack, flow: Flow) -> None:
        if not flow.error:
            remove(self, flow)

    monkeypatch.setattr(TcpStack, "remove", forgetful)


def leave_out_the_last_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip what a reduction does when its last operand has arrived."""
    monkeypatch.setattr(EngineOp, "round_by", lambda *_: None)


def connect_from_any_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Place connections in queues that are not those of their ports."""
    monkeypatch.setattr(Queues, "_candidates", lambda _self, _queue, _target, _lane, start, end: range(start, end))


def leak_buffer_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give nothing back to the budget of buffers."""
    monkeypatch.setattr(Budget, "give", lambda _self, _size: None)
