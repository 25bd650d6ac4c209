"""Matching of messages with receives, and waiting for collectives.

Messages of one rank are matched in the order in which they were sent. Messages without a receive are held in memory, up
to HELD_BYTES per rank (one message may be longer), so that the sender proceeds; further ones stay with the sender,
unless this rank waits for something behind them. Waiting for something that can no longer come is an error at once.

A small message travels in its announcement, as an inline message, while its sender has credit; the receiver returns
credit as messages are received. A sender without credit does not wait: the message takes the way of longer ones.

A synchronous message has a number: its receiver reports when a receive takes it.
"""

from __future__ import annotations

import threading
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
"""Of one rank's messages, at first; the limit doubles when this rank waits for something behind them."""
INLINE_BYTES = 128 << 10
"""Longest inline message. It needs no work request: longer ones cost less copying, and shorter ones less waiting."""


@dataclass(eq=False)
class Arrival:
    """A message announced to this rank."""

    source: int
    announce: messages.Announce
    transfer: RecvOp
    order: int
    """Order of arrival over all sources."""
    matcher: Matcher
    held: memoryview | None = None
    """Memory in which it is held until it is received."""

    @property
    def sender(self) -> int:
        """The source as the program numbers it."""
        return self.source - self.matcher.first_source


@dataclass(eq=False)
class PendingRecv:
    """A receive in progress. `place` returns the memory for a message, or raises ArgumentError if it does not fit."""

    source: int
    tag: int
    place: Callable[[Arrival], memoryview]
    message: Arrival | None = None
    misfit: ArgumentError | None = None
    """Why the message does not fit; it is received, and dropped."""
    done: bool = False
    """The message is in its place."""

    def memory(self, message: Arrival) -> memoryview:
        """Return the memory for a message, memory of its own if it does not fit."""
        if self.misfit is None:
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
        self.first_source = 0
        """Rank that the program calls 0: the first of the other group, where there are two."""
        self._order = 0
        self._synchronous = 0
        """Number of the last synchronous message."""
        self._untaken: dict[int, SendOp] = {}
        """Synchronous messages that no receive has taken, by number."""
        ranks = [*progress.peers, progress.rank]
        self._waiting: dict[int, deque[Arrival]] = {rank: deque() for rank in ranks}
        self._held = dict.fromkeys(ranks, 0)
        self._limits: dict[int, int] = {}
        """Raised limits of `_held`, by rank."""

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

    def taken(self, number: int) -> None:
        transfer = self._untaken.pop(number, None)
        if transfer is None:
            raise ValueError(f"it received the synchronous message {number}, which was not sent")
        transfer.taken = True

    def _deliver(self, source: int, announce: messages.Announce, data: memoryview) -> None:
        """Put a message that has arrived as a whole in its place, or hold it."""
        message, receive = self._match(source, announce, RecvOp(0))
        self._held[source] += announce.size
        if receive is not None:
            message.held = data
            self._finish(receive)
        else:
            message.held = data if announce.data is not None else memoryview(bytes(data))

    def _match(self, source: int, announce: messages.Announce, transfer: RecvOp) -> tuple[Arrival, PendingRecv | None]:
        """Give a message to the oldest receive that matches it; without one, it waits."""
        self._order += 1
        message = Arrival(source, announce, transfer, self._order, self)
        for receive in self._receives:
            if receive.matches(source, announce):
                self._receives.remove(receive)
                receive.message = message
                self._report_taken(message)
                return message, receive
        self._waiting[source].append(message)
        return message, None

    def _report_taken(self, message: Arrival) -> None:
        if message.announce.number:
            if message.source == self._progress.rank:
                self.taken(message.announce.number)
            else:
                self._progress.post(self._progress.peers[message.source], messages.Taken(message.announce.number))

    def _hold(self, rank: int) -> None:
        """Provide memory for waiting messages, in their order, up to HELD_BYTES."""
        for message in self._waiting[rank]:
            if message.held is None:
                size = message.announce.size
                if self._held[rank] and self._held[rank] + size > self._limits.get(rank, HELD_BYTES):
                    return
                self._held[rank] += size
                message.held = message.transfer.data = memoryview(bytearray(size))

    # Messages

    def send(self, dest: int, announce: messages.Announce, data: memoryview) -> None:
        """Send a message; returns when its memory may be used again."""
        transfer = self.begin_send(dest, announce, data)
        if not transfer.is_complete or (dest != self._progress.rank and self._progress.peers[dest].unsent):
            self._progress.run(lambda: self.sent(dest, transfer))

    def begin_send(
        self, dest: int, announce: messages.Announce, data: memoryview, *, synchronous: bool = False
    ) -> SendOp:
        """Start to send a message; it is done when `sent` returns True.

        A message to this rank itself is copied. A synchronous one is done when a receive has taken it, too.
        """
        compressed = announce.compressed
        inline = SendOp(data[:0])
        transfer = inline
        if synchronous:
            self._synchronous += 1
            announce = msgspec.structs.replace(announce, number=self._synchronous)
        if dest == self._progress.rank:
            self._await_taken(announce, inline)
            self._deliver(dest, announce, data)
            self._progress.notify()
            return inline
        peer = self._progress.peers[dest]
        if announce.size <= min(INLINE_BYTES, peer.credit) and not (compressed or peer.absent):
            peer.credit -= announce.size
            self._await_taken(announce, inline)
            self._progress.post(peer, msgspec.structs.replace(announce, data=data))
            return inline
        transfer = SendOp(data, announce.codec if compressed else "")
        self._await_taken(announce, transfer)
        self._progress.post(peer, announce)
        peer.channel(compressed).send(transfer)
        self._progress.advance_channels()
        return transfer

    def _await_taken(self, announce: messages.Announce, transfer: SendOp) -> None:
        if announce.number:
            transfer.taken = False
            self._untaken[announce.number] = transfer

    def sent(self, dest: int, transfer: SendOp) -> bool:
        """Return whether the memory of a message may be used again. Raises CommError if the receiver has left."""
        done = transfer.is_complete and transfer.taken
        if not done and dest != self._progress.rank and (peer := self._progress.peers[dest]).absent:
            raise self._progress.missing(peer, "receiving this")
        return done

    def receive(self, receive: PendingRecv) -> Arrival:
        """Receive a message into the memory that `receive.place` returns. Raises ArgumentError if it does not fit."""
        self.begin_receive(receive)
        try:
            if not self.arrived(receive):
                self._progress.run(lambda: self.is_received(receive))
        finally:
            self.give_up(receive)
        assert receive.message is not None
        if receive.misfit is not None:
            raise receive.misfit
        return receive.message

    def begin_receive(self, receive: PendingRecv, message: Arrival | None = None) -> None:
        """Start to receive the first waiting message that matches, or the next one that does; see `arrived`.

        `message`, if given, is one that `take` has returned.
        """
        message = message or self.take(receive)
        if message is None:
            self._receives.append(receive)
            return
        receive.message = message
        self._report_taken(message)
        if message.held is None:
            message.transfer.data = receive.memory(message)
            self._progress.advance_channels()

    def find(self, receive: PendingRecv) -> Arrival | None:
        """Return the first waiting message that matches."""
        found: Arrival | None = None
        for queue in self._waiting.values() if receive.source == ANY else (self._waiting[receive.source],):
            for message in queue:
                if receive.matches(message.source, message.announce):
                    if found is None or message.order < found.order:
                        found = message
                    break
        return found

    def take(self, receive: PendingRecv) -> Arrival | None:
        """Return the first waiting message that matches, which then no other receive gets."""
        message = self.find(receive)
        if message is not None:
            self.take_this(message)
        return message

    def take_this(self, message: Arrival) -> None:
        """Have no other receive get a message that `find` has returned."""
        self._waiting[message.source].remove(message)

    def is_waiting(self, receive: PendingRecv) -> bool:
        """Return whether a message waits that matches. Raises CommError if none can arrive any more."""
        return self.find(receive) is not None or self.arrived(receive) or self._may_arrive(receive)

    def give_up(self, receive: PendingRecv) -> bool:
        """End a receive whose message has not been announced; return whether it was one."""
        if receive.message is not None or receive not in self._receives:
            return False
        self._receives.remove(receive)
        return True

    def arrived(self, receive: PendingRecv) -> bool:
        """Return whether a message is in its place. Raises CommError if none can arrive any more."""
        if receive.message is not None:
            if not receive.done and receive.message.transfer.is_complete:
                self._finish(receive)
            return receive.done
        sources = list(self._progress.peers.values()) if receive.source == ANY else []
        if receive.source in self._progress.peers:
            sources = [self._progress.peers[receive.source]]
        if sources and all(peer.absent for peer in sources):
            raise self._progress.missing(sources[0], "sending such a message")
        return False

    def is_received(self, receive: PendingRecv) -> bool:
        """Return whether a message is in its place. Raises CommError if none can arrive before this rank does more."""
        return self.arrived(receive) or self._may_arrive(receive)

    def _finish(self, receive: PendingRecv) -> None:
        """Complete a receive: a message that was held is copied to its memory."""
        assert receive.message is not None
        message = receive.message
        if message.held is not None:
            receive.memory(message)[:] = message.held
            self._held[message.source] -= message.announce.size
            message.held = None
        receive.done = True
        if message.announce.data is not None:
            self._return_credit(self._progress.peers[message.source], message.announce.size)
        self._hold(message.source)

    def _return_credit(self, peer: Peer, size: int) -> None:
        peer.credit_due += size
        if peer.credit_due >= CREDIT_BYTES // 4:
            self._progress.post(peer, messages.Credit(peer.credit_due))
            peer.credit_due = 0

    def _may_arrive(self, receive: PendingRecv) -> bool:
        """Return False. Raises CommError if the message waited for cannot arrive before this rank does something."""
        message = receive.message
        if message is not None:
            if message.source in self._progress.peers:
                self._unblock(self._progress.peers[message.source])
            return False
        if receive.source == self._progress.rank or not self._progress.peers:
            if other_threads():
                return False
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
        self._unblock(peer)
        return ""

    def _unblock(self, peer: Peer) -> None:
        """Hold more messages of a rank, if those that are held keep others from arriving."""
        while any(channel.is_blocked for channel in peer.channels):
            self._limits[peer.rank] = 2 * self._limits.get(peer.rank, HELD_BYTES)
            self._hold(peer.rank)
            self._progress.advance_channels()

    # Collectives

    def wait(self, request: PostedRequest, call: str) -> None:
        """Wait for a collective. Raises CommError.

        If that takes long, other ranks are notified: they may wait for messages of this rank. A rank with several
        threads may send them meanwhile.
        """
        began, notified, silent = time.monotonic(), False, other_threads()

        def done() -> bool:
            nonlocal notified
            if request.settled:
                return request.failure is None
            for peer in self._progress.peers.values():
                self._unblock(peer)
            if not (notified or silent) and time.monotonic() - began >= HEARTBEAT_INTERVAL_S:
                notified = True
                self._post_all(messages.Waiting(request.number, call))
            return False

        self._progress.run(done)
        if notified:
            self._post_all(messages.Waiting(0, call))

    def _post_all(self, frame: messages.Waiting) -> None:
        for peer in self._progress.peers.values():
            self._progress.post(peer, frame)


def other_threads() -> bool:
    """Return whether another thread of this process could make calls, too."""
    return threading.active_count() > 1
