"""Matching of messages with receives, and waiting for collectives.

Messages of one rank are matched in the order in which they were sent. Messages without a receive are held in memory, up
to HELD_BYTES per rank (one message may be longer), so that the sender proceeds; further ones stay with the sender.
Waiting for something that can no longer come is an error at once.

A small message travels in its announcement, as an inline message, while its sender has credit; the receiver returns
credit as messages are received. A sender without credit does not wait: the message takes the way of longer ones.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from softnic.comm import messages
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.heartbeat import HEARTBEAT_INTERVAL_S
from softnic.comm.offload_queue import PostedRequest
from softnic.comm.peer import CREDIT_BYTES, Peer
from softnic.comm.progress import Progress
from softnic.comm.zerocopy_channel import RecvOp, SendOp

ANY = -1
"""Any source, any tag."""
OWN_TAGS = 1 << 31
"""First of the tags for internal messages, which ANY does not match."""
HELD_BYTES = 64 << 20
INLINE_BYTES = 128 << 10
"""Longest inline message. It needs no work request: longer ones cost less copying, and shorter ones less waiting."""


@dataclass(eq=False)
class Message:
    """A message announced to this rank."""

    source: int
    announce: messages.Announce
    transfer: RecvOp
    order: int
    """Order of arrival over all sources."""
    held: memoryview | None = None
    """Memory in which it is held until it is received."""


@dataclass(eq=False)
class PendingRecv:
    """A receive in progress. `place` returns the memory for a message, or raises ArgumentError if it does not fit."""

    source: int
    tag: int
    place: Callable[[Message], memoryview]
    message: Message | None = None
    misfit: ArgumentError | None = None
    """Why the message does not fit; it is received, and dropped."""

    def memory(self, message: Message) -> memoryview:
        """Return the memory for a message, memory of its own if it does not fit."""
        try:
            return self.place(message)
        except ArgumentError as error:
            self.misfit = error
            return memoryview(bytearray(message.announce.size))

    def matches(self, source: int, announce: messages.Announce) -> bool:
        return (
            self.message is None
            and self.source in (ANY, source)
            and (self.tag == announce.tag or (self.tag == ANY and announce.tag < OWN_TAGS))
        )


class Matcher:
    """Sends and receives messages over a Progress, and waits for collectives."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        progress.listener = self
        self._receives: list[PendingRecv] = []
        """Receives whose message has not been announced, the oldest first."""
        self._order = 0
        ranks = [*progress.peers, progress.rank]
        self._waiting: dict[int, deque[Message]] = {rank: deque() for rank in ranks}
        self._held = dict.fromkeys(ranks, 0)

    # Arrivals

    def announced(self, peer: Peer, announce: messages.Announce) -> None:
        if announce.size < 0:
            raise ValueError(f"a message of {announce.size} bytes")
        if announce.data is not None:
            if announce.compressed or announce.data.nbytes != announce.size:
                raise ValueError(f"a message of {announce.size} bytes with {announce.data.nbytes} bytes of data")
            self._deliver(peer.rank, announce, announce.data)
            return
        compressed = announce.compressed
        message, receive = self._match(peer.rank, announce, RecvOp(announce.size, announce.codec if compressed else ""))
        if receive is not None:
            message.transfer.data = receive.memory(message)
        else:
            self._hold(peer.rank)
        peer.channel(compressed).receive(message.transfer)

    def _deliver(self, source: int, announce: messages.Announce, data: memoryview) -> None:
        """Hold a message that has arrived as a whole, until `end_receive`."""
        message, _ = self._match(source, announce, RecvOp(0))
        message.held = data
        self._held[source] += announce.size

    def _match(self, source: int, announce: messages.Announce, transfer: RecvOp) -> tuple[Message, PendingRecv | None]:
        """Give a message to the oldest receive that matches it; without one, it waits."""
        self._order += 1
        message = Message(source, announce, transfer, self._order)
        receive = next((waiting for waiting in self._receives if waiting.matches(source, announce)), None)
        if receive is not None:
            self._receives.remove(receive)
            receive.message = message
        else:
            self._waiting[source].append(message)
        return message, receive

    def _hold(self, rank: int) -> None:
        """Provide memory for waiting messages, in their order, up to HELD_BYTES."""
        for message in self._waiting[rank]:
            if message.held is None:
                size = message.announce.size
                if self._held[rank] and self._held[rank] + size > HELD_BYTES:
                    return
                self._held[rank] += size
                message.held = message.transfer.data = memoryview(bytearray(size))

    # Messages

    def send(self, dest: int, announce: messages.Announce, data: memoryview) -> None:
        """Send a message; returns when its memory may be used again."""
        transfer = self.begin_send(dest, announce, data)
        if transfer is not None:
            self._progress.run(lambda: self.sent(dest, transfer))

    def begin_send(self, dest: int, announce: messages.Announce, data: memoryview) -> SendOp | None:
        """Start to send a message; it is done when `sent` returns True. None: this rank itself is the receiver, and the
        message is held."""
        if dest == self._progress.rank:
            self._deliver(dest, announce, memoryview(bytearray(data)))
            return None
        peer = self._progress.peers[dest]
        if announce.size <= min(INLINE_BYTES, peer.credit) and not (announce.compressed or peer.absent):
            peer.credit -= announce.size
            self._progress.post(peer, msgspec.structs.replace(announce, data=data))
            return SendOp(data[:0])
        self._progress.post(peer, announce)
        transfer = SendOp(data, announce.codec if announce.compressed else "")
        peer.channel(announce.compressed).send(transfer)
        return transfer

    def sent(self, dest: int, transfer: SendOp) -> bool:
        """Return whether the memory of a message may be used again. Raises CommError if the receiver has left."""
        peer = self._progress.peers[dest]
        if peer.absent and not transfer.is_complete:
            raise self._progress.missing(peer, "receiving this")
        return transfer.is_complete

    def receive(self, receive: PendingRecv) -> Message:
        """Receive a message into the memory that `receive.place` returns."""
        self.begin_receive(receive)
        try:
            self._progress.run(lambda: self._received(receive))
        finally:
            if receive in self._receives:
                self._receives.remove(receive)
        return self.end_receive(receive)

    def begin_receive(self, receive: PendingRecv) -> None:
        """Start to receive the first waiting message that matches, or the next one that does; see `arrived`."""
        waiting = self._waiting.values() if receive.source == ANY else [self._waiting[receive.source]]
        matching = [m for queue in waiting for m in queue if receive.matches(m.source, m.announce)]
        if matching:
            first = receive.message = min(matching, key=lambda message: message.order)
            self._waiting[first.source].remove(first)
            if first.held is None:
                first.transfer.data = receive.memory(first)
        else:
            self._receives.append(receive)

    def arrived(self, receive: PendingRecv) -> bool:
        """Return whether `end_receive` can be called. Raises CommError if no message can arrive any more."""
        if receive.message is not None:
            return receive.message.transfer.is_complete
        sources = list(self._progress.peers.values()) if receive.source == ANY else []
        if receive.source in self._progress.peers:
            sources = [self._progress.peers[receive.source]]
        if sources and all(peer.absent for peer in sources):
            raise self._progress.missing(sources[0], "sending such a message")
        return False

    def end_receive(self, receive: PendingRecv) -> Message:
        """Complete a receive: a message that was held is copied to the memory that `receive.place` returns.

        Raises ArgumentError if the message does not fit: it is dropped.
        """
        assert receive.message is not None
        message = receive.message
        if message.held is not None:
            receive.memory(message)[:] = message.held
            self._held[message.source] -= message.announce.size
        if message.announce.data is not None:
            self._return_credit(self._progress.peers[message.source], message.announce.size)
        self._hold(message.source)
        if receive.misfit is not None:
            raise receive.misfit
        return message

    def _return_credit(self, peer: Peer, size: int) -> None:
        peer.credit_due += size
        if peer.credit_due >= CREDIT_BYTES // 4:
            self._progress.post(peer, messages.Credit(peer.credit_due))
            peer.credit_due = 0

    def _received(self, receive: PendingRecv) -> bool:
        message = receive.message
        if message is not None:
            if not message.transfer.is_complete and message.source in self._progress.peers:
                peer = self._progress.peers[message.source]
                self._check_unblocked(peer)
            return message.transfer.is_complete
        if receive.source == self._progress.rank or not self._progress.peers:
            raise ArgumentError("this rank has sent itself no such message")
        sources = self._progress.peers if receive.source == ANY else (receive.source,)
        reasons = [self._why_silent(source) for source in sources]
        if all(reasons):
            rank = receive.source if len(reasons) == 1 else None
            raise CommError("; ".join(reasons), rank=rank)
        return False

    def _why_silent(self, source: int) -> str:
        """Return why no further message can arrive from a rank; empty if one can."""
        peer = self._progress.peers[source]
        if peer.absent:
            return str(self._progress.missing(peer, "sending such a message"))
        queue = self._progress.queue
        if peer.waiting is not None and queue is not None and peer.waiting.number > queue.posted:
            return f"rank {source} sends nothing before this rank joins its {peer.waiting.call}"
        return _why_blocked(peer)

    def _check_unblocked(self, peer: Peer) -> None:
        if reason := _why_blocked(peer):
            raise CommError(reason, rank=peer.rank)

    # Collectives

    def wait(self, request: PostedRequest, call: str) -> None:
        """Wait for a collective. Raises CommError.

        If that takes long, other ranks are notified: they may wait for messages of this rank.
        """
        began, notified = time.monotonic(), False

        def done() -> bool:
            nonlocal notified
            if request.settled:
                return request.failure is None
            for peer in self._progress.peers.values():
                self._check_unblocked(peer)
            if not notified and time.monotonic() - began >= HEARTBEAT_INTERVAL_S:
                notified = True
                self._post_all(messages.Waiting(request.number, call))
            return False

        self._progress.run(done)
        if notified:
            self._post_all(messages.Waiting(0, call))

    def _post_all(self, frame: messages.Waiting) -> None:
        for peer in self._progress.peers.values():
            self._progress.post(peer, frame)


def _why_blocked(peer: Peer) -> str:
    if any(channel.is_blocked for channel in peer.channels):
        return f"rank {peer.rank} has sent more than {HELD_BYTES >> 20} MiB that nobody receives"
    return ""
