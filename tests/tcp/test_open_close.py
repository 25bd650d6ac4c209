"""Both ends open, or close, at the same moment (RFC 9293, sections 3.5 and 3.6), on a network that loses frames."""

from __future__ import annotations

import pytest

from softnic.packet.segment import Segment
from softnic.tcp.connection import Connection, Established
from softnic.tcp.state import State
from tests.tcp.flows import flow
from tests.tcp.lab import Lab, Node, Wire
from tests.tcp.script import ACK, FIN, SYN, state_of


def losing(*numbers: int) -> tuple[list[Segment], object]:
    """Returns a filter that loses the frames with these numbers, counted over all nodes that share it."""
    seen: list[Segment] = []

    def lost(frame: Segment) -> bool:
        seen.append(frame)
        return len(seen) - 1 in numbers

    return seen, lost


def both_open(lab: Lab) -> tuple[Connection, Connection]:
    """Opens simultaneously: each end connects from the port that the other connects to."""
    for node, other in ((lab.a, lab.b), (lab.b, lab.a)):
        node.host.ping(other.ip, lab.now)
    lab.run(limit_s=1)
    a = lab.a.host.connect(lab.b.ip, 2000, lab.now, sport=1000)
    b = lab.b.host.connect(lab.a.ip, 1000, lab.now, sport=2000)
    return a, b


def kinds(node: Node) -> list[int]:
    return [frame.flags for frame in node.sent]


class TestSimultaneousOpen:
    def test_four_segments_make_one_connection(self) -> None:
        lab = Lab()
        a, b = both_open(lab)
        assert lab.run(lambda: a.state is b.state is State.ESTABLISHED, limit_s=1)
        assert kinds(lab.a) == kinds(lab.b) == [SYN, SYN | ACK]
        assert [event for event in lab.a.take_events() if isinstance(event, Established)] == [Established(a)]
        self.talk(lab, a, b)

    def talk(self, lab: Lab, a: Connection, b: Connection) -> None:
        a.send(b"from a")
        b.send(b"from b")
        lab.run(limit_s=5)
        assert (a.recv(10), b.recv(10)) == (b"from b", b"from a")

    @pytest.mark.parametrize("number", range(4))
    def test_any_lost_segment_is_retransmitted(self, number: int) -> None:
        lab = Lab()
        a, b = both_open(lab)
        _, lost = losing(number)
        lab.a.drop = lab.b.drop = lost  # type: ignore[assignment]
        assert lab.run(lambda: a.state is b.state is State.ESTABLISHED, limit_s=10)
        self.talk(lab, a, b)

    def test_over_a_bad_wire(self) -> None:
        for seed in range(30):
            lab = Lab(Wire(loss=0.2, duplicate=0.1, reorder=0.2), seed=seed)
            lab.wire.loss, loss = 0.0, lab.wire.loss
            a, b = both_open(lab)
            lab.wire.loss = loss
            assert lab.run(lambda a=a, b=b: a.state is b.state is State.ESTABLISHED, limit_s=60)  # type: ignore[misc]


class TestSimultaneousClose:
    def closing(self, lab: Lab) -> tuple[Connection, Connection]:
        a, b = lab.pair()
        a.send(b"last of a")
        b.send(b"last of b")
        a.shutdown_write()
        b.shutdown_write()
        return a, b

    def test_both_end_in_time_wait(self) -> None:
        lab = Lab()
        a, b = self.closing(lab)
        lab.run(lambda: a.state is b.state is State.CLOSING, limit_s=0.1)
        assert a.state is b.state is State.CLOSING
        lab.run(limit_s=1)
        assert state_of(a) is state_of(b) is State.TIME_WAIT
        assert (a.recv(10), b.recv(10)) == (b"last of b", b"last of a")
        lab.run(limit_s=61)
        assert lab.a.host.tcp.connections == lab.b.host.tcp.connections == []
        assert lab.next_time() is None

    @pytest.mark.parametrize("number", range(4))
    def test_any_lost_segment_is_retransmitted(self, number: int) -> None:
        lab = Lab()
        a, b = self.closing(lab)
        seen, lost = losing(number)
        lab.a.drop = lab.b.drop = lost  # type: ignore[assignment]
        lab.run(limit_s=20)
        assert {a.state, b.state} <= {State.TIME_WAIT, State.CLOSED}
        assert (a.error, b.error) == (0, 0)
        assert (a.recv(10), b.recv(10)) == (b"last of b", b"last of a")
        assert sum(bool(frame.flags & FIN) for frame in seen) >= 2

    def test_one_in_time_wait_ends_when_a_new_connection_follows(self) -> None:
        """The same ports again, at once: a client that was in TIME-WAIT itself (RFC 6191)."""
        lab = Lab()
        listener = lab.b.host.listen(0, 80, 5, lab.now)
        starts = []
        for turn in range(5):
            a = lab.a.host.connect(lab.b.ip, 80, lab.now, sport=1234)
            starts.append(flow(a).iss)
            assert lab.run(lambda: bool(listener.queue), limit_s=1)
            b = listener.accept()
            assert b is not None
            a.send(b"x" * (1 + turn))
            a.shutdown_write()
            b.shutdown_write()
            lab.run(limit_s=0.5)
            assert len(b.recv(100)) == 1 + turn
            assert a.state is State.TIME_WAIT
        assert len(set(starts)) == 5
