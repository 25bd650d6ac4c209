"""Inline messages on one connection: the order in which they are written, credit, and data that arrives in parts."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from softnic.comm import messages
from softnic.comm.inbox import Inbox
from softnic.comm.outbox import CREDIT_BYTES, Outbox
from softnic.comm.zerocopy_channel import RecvOp, SendOp

SIZE = 300_000
"""More than a connection takes at a time."""


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, two = socket.socketpair()
    with one, two:
        one.setblocking(False)
        two.setblocking(False)
        yield one, two


def _message(number: int, size: int = SIZE) -> tuple[messages.Announce, memoryview]:
    return messages.Announce(number, size, "uint8"), memoryview(bytes([number % 251]) * size)


class Sender:
    """An outbox, and the messages that it has handed to the NIC."""

    def __init__(self, connection: socket.socket) -> None:
        self.requested: list[int] = []
        self.outbox = Outbox(connection.fileno(), lambda announce, _: self.requested.append(announce.tag))

    def send_all(self, other: socket.socket, sent: list[SendOp]) -> list[messages.Frame]:
        """Return the frames that the other end reads until everything is written."""
        reader = messages.Reader()
        frames: list[messages.Frame] = []
        while self.outbox:
            self.outbox.flush()
            frames += reader.feed(other.recv(1 << 20))
        assert reader.is_empty
        assert all(message.is_complete for message in sent if message.data is not None)
        return frames


def test_what_is_written_at_once_is_complete_at_once(ends: tuple[socket.socket, socket.socket]) -> None:
    sender = Sender(ends[0])
    assert sender.outbox.send(*_message(3, 1000)).is_complete
    assert not sender.outbox
    (frame,) = messages.Reader().feed(ends[1].recv(2000))
    assert frame == messages.Announce(3, 1000, "uint8", "", _message(3, 1000)[1])
    assert sender.outbox.credit == CREDIT_BYTES - 1000


def test_the_memory_of_a_message_is_in_use_until_it_is_written(ends: tuple[socket.socket, socket.socket]) -> None:
    sender = Sender(ends[0])
    message = sender.outbox.send(*_message(1))
    assert not message.is_complete
    assert sender.outbox
    assert not sender.outbox.frames
    (frame,) = sender.send_all(ends[1], [message])
    assert frame == messages.Announce(1, SIZE, "uint8", "", _message(1)[1])


def test_everything_leaves_in_order_with_and_without_credit(ends: tuple[socket.socket, socket.socket]) -> None:
    """Messages beyond the credit are undecided while others are written; some find credit that came meanwhile."""
    sender = Sender(ends[0])
    fit = CREDIT_BYTES // SIZE
    sent = [sender.outbox.send(*_message(number)) for number in range(fit + 4)]
    sender.outbox.post(messages.pack(messages.Taken(7)))
    sent.append(sender.outbox.send(*_message(fit + 4, 10)))
    assert not sender.requested
    sender.outbox.credit += 2 * SIZE
    frames = sender.send_all(ends[1], sent[: fit + 2])
    found = [frame.tag if isinstance(frame, messages.Announce) else -1 for frame in frames]
    assert found == [*range(fit + 4), -1, fit + 4]
    inline = [frame.tag for frame in frames if isinstance(frame, messages.Announce) and frame.data is not None]
    assert inline == [*range(fit + 2), fit + 4]
    assert sender.requested == [fit + 2, fit + 3]
    for frame in frames:
        if isinstance(frame, messages.Announce) and frame.data is not None:
            assert frame.data == _message(frame.tag, frame.size)[1]


def test_without_credit_and_with_room_the_nic_is_asked_at_once(ends: tuple[socket.socket, socket.socket]) -> None:
    sender = Sender(ends[0])
    sender.outbox.credit = 0
    assert not sender.outbox.send(*_message(5, 100)).is_complete
    assert sender.requested == [5]
    assert list(messages.Reader().feed(ends[1].recv(1000))) == [messages.Announce(5, 100, "uint8")]


def test_an_ended_connection_leaves_nothing_to_write(ends: tuple[socket.socket, socket.socket]) -> None:
    """The error is the reader's."""
    sender = Sender(ends[0])
    sender.outbox.send(*_message(1))
    ends[1].close()
    sender.outbox.flush()
    assert not sender.outbox


@pytest.mark.parametrize("step", [1000, 22_222, 150_000])
def test_data_that_arrives_in_parts_goes_to_its_memory(ends: tuple[socket.socket, socket.socket], step: int) -> None:
    sizes = [0, 100_000, 5, 70_000, 30_000, 70_000]
    stream = b"".join(
        messages.pack(messages.Announce(number, size, "uint8", "", _message(number, size)[1]))
        for number, size in enumerate(sizes)
    )
    inbox = Inbox()
    begun: dict[int, RecvOp] = {}
    whole: dict[int, bytes] = {}

    def begin(announce: messages.Announce) -> RecvOp:
        begun[announce.tag] = RecvOp(announce.size, data=memoryview(bytearray(announce.size)))
        return begun[announce.tag]

    for start in range(0, len(stream), step):
        left = memoryview(stream)[start : start + step]
        while left:
            left = left[ends[0].send(left) :]
            while True:
                try:
                    count = inbox.read(ends[1])
                except BlockingIOError:
                    break
                for frame in inbox.frames(count, begin):
                    assert isinstance(frame, messages.Announce)
                    assert frame.data is not None
                    whole[frame.tag] = bytes(frame.data)
    assert begun
    for number, size in enumerate(sizes):
        if number in begun:
            assert begun[number].is_complete
            whole[number] = bytes(begun[number].data or b"")
        assert whole[number] == bytes(_message(number, size)[1])
