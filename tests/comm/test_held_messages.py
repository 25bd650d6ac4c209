"""How much a rank holds of messages that it has not received, and what it reports to their senders: no NIC, no time."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from softnic.comm import matching, messages
from softnic.comm.arrivals import PendingRecv
from softnic.comm.matching import Matcher
from softnic.comm.outbox import CREDIT_BYTES
from softnic.comm.peer import Peer
from softnic.comm.progress import Progress
from softnic.comm.transport import Transport
from softnic.comm.zerocopy_channel import RecvOp

LIMIT = 100


class QuietTransport(Transport):
    def keep_alive(self, connection: socket.socket) -> None:
        """Set nothing."""


class Channel:
    """What was announced of the messages that NICs carry, in order."""

    def __init__(self) -> None:
        self.incoming: list[RecvOp] = []

    def receive(self, message: RecvOp) -> None:
        self.incoming.append(message)

    @property
    def is_blocked(self) -> bool:
        return any(message.data is None for message in self.incoming)

    def advance(self) -> None:
        """Nothing is posted: messages arrive when a test says so."""


class Receiver:
    """Rank 0 of three, and the other ends of its CONTROL connections."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        pairs = {rank: [socket.socketpair() for _ in range(5)] for rank in (1, 2)}
        for pair in (each for those in pairs.values() for each in those):
            stack.enter_context(pair[0])
            stack.enter_context(pair[1])
        self.progress = Progress(0, 3)
        for rank, those in pairs.items():
            self.progress.connect(rank, those[0][0])
        self.matcher = Matcher(self.progress)
        self.channels: dict[int, Channel] = {}
        self.controls = {rank: those[0][1] for rank, those in pairs.items()}
        for rank, peer in self.progress.peers.items():
            peer.channels = cast(Any, (Channel(), Channel()))
            self.channels[rank] = cast(Any, peer.channels[0])

    def peer(self, rank: int) -> Peer:
        return self.progress.peers[rank]

    def announce(self, *sizes: int, rank: int = 1, tag: int = 0) -> None:
        for size in sizes:
            self.matcher.announced(self.peer(rank), messages.Announce(tag, size, "uint8"))

    def held(self, rank: int = 1) -> list[bool]:
        """Whether each message has memory."""
        return [message.data is not None for message in self.channels[rank].incoming]

    def receive(self, rank: int = 1, tag: int = 0) -> bytes:
        """Receive the first message of a rank, all of which arrives now if it has not."""
        place: list[memoryview] = []

        def memory(arrival: Any) -> memoryview:
            place.append(memoryview(bytearray(arrival.announce.size)))
            return place[0]

        receive = PendingRecv(rank, tag, memory)
        self.matcher.begin_receive(receive)
        assert receive.message is not None
        receive.message.transfer.posted = receive.message.transfer.size
        assert self.matcher.arrived(receive)
        return bytes(place[0])


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(matching, "HELD_BYTES", LIMIT)
    with contextlib.ExitStack() as stack:
        made = Receiver(stack)
        yield made
        made.progress.close()


@pytest.mark.parametrize(
    ("sizes", "held"),
    [
        ([60, 40], [True, True]),
        ([60, 41], [True, False]),
        ([60, 40, 1], [True, True, False]),
        ([LIMIT], [True]),
        ([LIMIT + 50], [True]),  # one may be longer
        ([LIMIT + 50, 1], [True, False]),
        ([1, LIMIT + 50], [True, False]),
        ([60, 50, 1], [True, False, False]),  # in their order
        ([0, 0, LIMIT + 1], [True, True, True]),
    ],
)
def test_messages_are_held_up_to_the_limit(receiver: Receiver, sizes: list[int], held: list[bool]) -> None:
    receiver.announce(*sizes)
    assert receiver.held() == held


def test_what_is_received_makes_room_for_the_next(receiver: Receiver) -> None:
    receiver.announce(60, 50, 45, 6)
    receiver.receive()
    assert receiver.held() == [True, True, True, False]
    receiver.receive()
    assert receiver.held() == [True, True, True, True]


def test_a_message_that_is_not_held_goes_to_where_it_is_received(receiver: Receiver) -> None:
    """And so takes nothing of what may be held."""
    receiver.announce(90, 20)
    first = receiver.channels[1].incoming[0].data
    assert first is not None
    first[:] = b"a" * 90
    receiver.announce(50, tag=1)
    assert len(receiver.receive(tag=1)) == 50
    assert receiver.held() == [True, False, True]
    assert receiver.receive() == b"a" * 90
    assert receiver.held() == [True, True, True]


def test_each_rank_has_a_limit_of_its_own(receiver: Receiver) -> None:
    receiver.announce(90)
    receiver.announce(90, 20, rank=2)
    assert (receiver.held(1), receiver.held(2)) == ([True], [True, False])


@pytest.mark.parametrize(("behind", "more"), [(140, False), (141, True), (340, False), (341, True)])
def test_the_limit_doubles_for_what_is_waited_for_behind_it(receiver: Receiver, behind: int, more: bool) -> None:
    """As often as it takes, and for that rank alone. `more`: there is room for another byte then."""
    receiver.announce(60, behind)
    assert receiver.held() == [True, False]
    receiver.announce(90, 20, rank=2)
    assert not receiver.matcher.is_received(PendingRecv(1, 7, lambda _: memoryview(b"")))
    assert receiver.held() == [True, True]
    assert receiver.held(2) == [True, False]
    receiver.announce(1)
    assert receiver.held() == [True, True, more]


def test_an_inline_message_that_has_begun_counts(receiver: Receiver) -> None:
    transfer = receiver.matcher.started(receiver.peer(1), messages.Announce(3, 70, "uint8"))
    assert transfer.data is not None
    receiver.announce(30, 1)
    assert receiver.held() == [True, False]


def test_an_inline_message_that_has_arrived_counts_until_it_is_received(receiver: Receiver) -> None:
    receiver.matcher.announced(receiver.peer(1), messages.Announce(3, 70, "uint8", data=memoryview(b"b" * 70)))
    receiver.announce(30, 1)
    assert receiver.held() == [True, False]
    assert receiver.receive(tag=3) == b"b" * 70
    assert receiver.held() == [True, True]


@pytest.mark.parametrize("data", [b"", b"ab", b"abcd"])
def test_an_inline_message_of_another_length_than_it_says_is_refused(receiver: Receiver, data: bytes) -> None:
    with pytest.raises(ValueError, match=f"a message of 3 bytes with {len(data)} bytes of data"):
        receiver.matcher.announced(receiver.peer(1), messages.Announce(0, 3, "uint8", data=memoryview(data)))
    with pytest.raises(ValueError, match="a message of -1 bytes"):
        receiver.announce(-1)


def test_credit_is_returned_in_quarters_once_messages_are_received(receiver: Receiver) -> None:
    quarter = CREDIT_BYTES // 4
    control = receiver.controls[1]
    control.setblocking(False)

    def returned() -> list[messages.Frame]:
        try:
            return list(messages.Reader().feed(control.recv(1000)))
        except BlockingIOError:
            return []

    def arrive(size: int) -> None:
        receiver.matcher.announced(receiver.peer(1), messages.Announce(0, size, "uint8", data=memoryview(bytes(size))))

    arrive(quarter - 1)
    assert returned() == []
    receiver.receive()
    assert returned() == []
    arrive(1)
    receiver.receive()
    assert returned() == [messages.Credit(quarter)]
    arrive(quarter + 5)
    assert returned() == []
    receiver.receive()
    assert returned() == [messages.Credit(quarter + 5)]
    receiver.announce(quarter)  # not inline
    receiver.receive()
    assert returned() == []
