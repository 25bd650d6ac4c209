"""Connections of ranks of which one is probed for a dead peer in place of two, in virtual time."""

from __future__ import annotations

import errno

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from softnic.comm.transport import KEEPALIVE_S, USER_TIMEOUT_MS
from softnic.packet.segment import Flags, Segment
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.state import State
from softnicd.relieved_connection import RelievedConnection
from tests.tcp.lab import Lab

IN_TIME_S, MARGIN_S = 5.0, 0.7
"""The documented bound, and what is reserved for delays of a loaded host."""


class Pair:
    """The connections of two ranks: of the processes, and of their engines, at node a the first ends."""

    def __init__(self, peer_timeout_s: float | None = None) -> None:
        self.net = Lab(config=TcpConfig(peer_timeout_s=peer_timeout_s))
        self.process, self.engine = self.net.pair(), self.net.pair(port=5001)
        for end in (*self.process, *self.engine):
            end.set_user_timeout(USER_TIMEOUT_MS / 1000)
            end.set_keepalive(KEEPALIVE_S, self.net.now)
        self.relieved = [
            RelievedConnection(process, engine, self.net.now)
            for process, engine in zip(self.process, self.engine, strict=True)
        ]

    def run(self, limit_s: float) -> None:
        """Pass time, as daemons do: each looks after its connections whenever something has happened."""

        def attend() -> bool:
            for each in [each for each in self.relieved if each.is_due]:
                self.relieved.remove(each)
                each.end_relief(self.net.now)
            return False

        self.net.run(attend, limit_s)

    def probed(self, seconds: float) -> list[int]:
        """Return the numbers of segments that both nodes send meanwhile, of the processes' connection and the other."""
        for node in self.net.nodes:
            node.sent.clear()
        self.run(seconds)
        sent = [segment for node in self.net.nodes for segment in node.sent]
        return [sum(port in (each.sport, each.dport) for each in sent) for port in (5000, 5001)]


def test_one_of_two_is_probed_while_both_are_idle() -> None:
    pair = Pair()
    of_process, of_engine = pair.probed(100.0)
    assert of_process == 0
    assert 350 <= of_engine <= 404  # probes of both ends, and answers
    assert {each.state for each in (*pair.process, *pair.engine)} == {State.ESTABLISHED}


MOMENTS = st.lists(st.integers(0, 9000).map(lambda ms: ms / 1000), max_size=6)


@settings(max_examples=200, deadline=None)
@given(MOMENTS, MOMENTS, MOMENTS, MOMENTS, st.integers(0, 3000).map(lambda ms: ms / 1000), st.sampled_from([None, 4.0]))
@example([], [], [], [], 0.0, None)
@example([], [2.999], [], [], 3.0, None)  # the process's is heard last of all
@example([3.5], [], [], [2.9], 3.0, 60.0)
def test_a_lost_peer_ends_both_in_time(
    said: list[float],
    heard: list[float],
    engine_said: list[float],
    engine_heard: list[float],
    dies: float,
    peer_timeout_s: float | None,
) -> None:
    """Whenever both ends have written before, and the surviving one afterwards."""
    pair = Pair(peer_timeout_s)
    began = pair.net.now
    writers: list[tuple[Connection, list[float]]] = [
        (pair.process[1], said),
        (pair.process[0], [at for at in heard if at < dies]),
        (pair.engine[1], engine_said),
        (pair.engine[0], [at for at in engine_heard if at < dies]),
    ]
    happens = [(at, number) for number, (_, times) in enumerate(writers) for at in times]
    for at, number in sorted([*happens, (dies, -1)]):
        pair.run(began + at - pair.net.now)
        if number < 0:
            pair.net.nodes.pop(0)
        elif writers[number][0].state is State.ESTABLISHED:
            writers[number][0].send(bytes(1000))
    pair.run(max(0.0, began + dies + IN_TIME_S - MARGIN_S - pair.net.now))
    assert pair.process[1].error == pair.engine[1].error == errno.ETIMEDOUT
    assert " did not answer for " in pair.process[1].error_message or "is lost" in pair.process[1].error_message


@pytest.mark.parametrize("how", ["reset", "closed"])
def test_a_reset_that_is_lost_is_found_out_when_the_other_ends(how: str) -> None:
    """A process ends with bytes that it has not read. Its NIC resets one connection, and closes the other."""
    pair = Pair()
    (ours, theirs), (engine, their_engine) = pair.process, pair.engine
    pair.run(10.0)
    pair.net.b.drop = lambda segment: bool(segment.flags & Flags.RST)
    theirs.abort(pair.net.now)
    if how == "reset":
        their_engine.abort(pair.net.now)
    else:
        their_engine.close(pair.net.now)
    pair.run(0.1)
    pair.net.b.drop = None
    assert ours.state is State.ESTABLISHED
    pair.run(2.5)
    assert (ours.error, engine.error) == (errno.ECONNRESET, errno.ECONNRESET if how == "reset" else 0)


def test_one_that_speaks_is_only_probed_when_the_other_times_out() -> None:
    pair = Pair()

    def of_engine(segment: Segment) -> bool:
        return 5001 in (segment.sport, segment.dport)

    pair.net.a.drop = pair.net.b.drop = of_engine
    for _ in range(10):
        pair.process[0].send(b"x")
        pair.run(0.5)
    assert {each.error for each in pair.engine} == {errno.ETIMEDOUT}
    assert [each.state for each in pair.process] == [State.ESTABLISHED] * 2
    assert [each.keepalive for each in pair.process] == [KEEPALIVE_S] * 2
    assert pair.probed(10.0)[0] >= 15


def test_one_that_has_ended_stays_as_it_is() -> None:
    pair = Pair()
    pair.process[0].close(pair.net.now)
    pair.process[1].close(pair.net.now)
    pair.run(30.0)
    pair.net.nodes.pop(0)
    pair.run(5.0)
    assert pair.engine[1].error == errno.ETIMEDOUT
    assert (pair.process[1].state, pair.process[1].error) == (State.TIME_WAIT, 0)
