"""Matching of messages with receives, and waiting for collectives.

Messages of one rank are matched in the order in which they were sent. Messages without a receive are held in memory, up
to HELD_BYTES per rank (one message may be longer), so that the sender proceeds; further ones stay with the sender,
unless this rank waits for something behind them. Waiting for something that can no longer come is an error at once.

A message travels behind its announcement on the same connection, as an inline message, while its sender has credit; the
receiver returns credit as messages are received. A sender without credit does not wait: the message takes the way of
those that are longer, compressed, or in registered memory, which NICs send and receive by requests.

A synchronous message has a number: its receiver reports when a receive takes it.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import msgspec

from softnic.comm import messages
from softnic.comm.arrivals import ANY, Arrival, PendingRecv, SourceNumbers
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.heartbeat import HEARTBEAT_INTERVAL_S
from softnic.comm.offload_queue import PostedRequest
from softnic.comm.outbox import CREDIT_BYTES
from softnic.comm.peer import Peer
from softnic.comm.progress import Progress
from softnic.comm.zerocopy_channel import RecvOp, SendOp
from softnic.ipc import regions

HELD_BYTES = 64 << 20
"""Of one rank's messages, at first; the limit doubles when this rank waits for something behind them."""
ANY_S = 2.0
"""How long a message of any rank is waited for from those that are connected alone."""
INLINE_BYTES = messages.MAX_INLINE
REGISTERED_BYTES = 128 << 10
"""Longest inline message out of registered memory. It needs no work request: longer ones cost less copying, and shorter
ones less waiting."""
_ARRIVED = RecvOp(0)
"""Of messages that arrived as a whole."""


class Matcher(SourceNumbers):
    """Sends and receives messages over a Progress, and waits for collectives."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        progress.listener = self
        self._receives: list[PendingRecv] = []
        """Receives whose message has not been announced, the oldest first."""
        self._order = 0
        self._synchronous = 0
        """Number of the last synchronous message."""
        self._untaken: dict[int, SendOp] = {}
        """Synchronous messages that no receive has taken, by number."""
        self._any_since: float | None = None
        """When a message of any rank was first waited for."""
        ranks = [*progress.peers, progress.rank]
        self._waiting: dict[int, deque[Arrival]] = {rank: deque() for rank in ranks}
        self._held = dict.fromkeys(ranks, 0)
        self._limits: dict[int, int] = {}
        """Raised limits of `_held`, by rank."""

    # Arrivals

    def announced(self, peer: Peer, announce: messages.Announce) -> None:
        if (data := announce.data) is not None:
            if data.nbytes != announce.size or (announce.codec and announce.compressed):
                raise ValueError(f"a message of {announce.size} bytes with {data.nbytes} bytes of data")
            self._deliver(peer.rank, announce, data, inline=True)
            return
        if announce.size < 0:
            raise ValueError(f"a message of {announce.size} bytes")
        compressed = announce.compressed
        message, receive = self._match(peer.rank, announce, RecvOp(announce.size, announce.codec if compressed else ""))
        if receive is not None:
            message.transfer.data = receive.memory(message)
        else:
            self._hold(peer.rank)
        peer.channel(compressed).receive(message.transfer)

    def started(self, peer: Peer, announce: messages.Announce) -> RecvOp:
        """Return where to put an inline message whose data arrives by and by."""
        message, receive = self._match(peer.rank, announce, RecvOp(announce.size))
        message.inline = True
        if receive is not None:
            message.transfer.data = receive.memory(message)
        else:
            self._held[peer.rank] += announce.size
            message.held = message.transfer.data = memoryview(bytearray(announce.size))
        return message.transfer

    def taken(self, number: int) -> None:
        transfer = self._untaken.pop(number, None)
        if transfer is None:
            raise ValueError(f"it received the synchronous message {number}, which was not sent")
        transfer.taken = True

    def _deliver(self, source: int, announce: messages.Announce, data: memoryview, *, inline: bool) -> None:
        """Put a message that has arrived as a whole in its place, or hold it."""
        message, receive = self._match(source, announce, _ARRIVED)
        message.inline = inline
        if receive is not None:
            receive.memory(message)[:] = data
            self._finish(receive)
        else:
            self._held[source] += announce.size
            message.held = memoryview(bytes(data))

    def _match(self, source: int, announce: messages.Announce, transfer: RecvOp) -> tuple[Arrival, PendingRecv | None]:
        """Give a message to the oldest receive that matches it; without one, it waits."""
        self._order += 1
        message = Arrival(source, announce, transfer, self._order, self)
        for index, receive in enumerate(self._receives):
            if receive.matches(source, announce):
                del self._receives[index]
                receive.message = message
                if announce.number:
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
        if not transfer.is_complete or (dest != self._progress.rank and self._progress.peers[dest].outbox):
            self._progress.run(lambda: self.sent(dest, transfer))

    def begin_send(
        self, dest: int, announce: messages.Announce, data: memoryview, *, synchronous: bool = False
    ) -> SendOp:
        """Start to send a message; it is done when `sent` returns True.

        A message to this rank itself is copied. A synchronous one is done when a receive has taken it, too.
        """
        peer = self._progress.peers.get(dest)
        if synchronous:
            self._synchronous += 1
            announce = msgspec.structs.replace(announce, number=self._synchronous)
        if peer is None:
            self._await_taken(announce, transfer := SendOp(data[:0]))
            self._deliver(dest, announce, data, inline=False)
            self._progress.notify()
            return transfer
        size, given = announce.size, None
        if synchronous:
            self._await_taken(announce, given := SendOp(data))
        if messages.is_inline(announce) and (size <= REGISTERED_BYTES or regions.find(data) is None):
            if size > peer.outbox.credit:
                self._progress.receive(peer)  # credit may have come
            transfer = peer.outbox.send(announce, data, given)
        else:
            transfer = peer.outbox.request(announce, data, given)
        self._progress.want(peer)
        if not transfer.is_complete:
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
            self._want_source(receive)
            return
        receive.message = message
        self._report_taken(message)
        if message.held is None:
            message.transfer.data = receive.memory(message)
            self._progress.advance_channels()

    def _want_source(self, receive: PendingRecv) -> None:
        """Begin to connect with a rank that a message is expected from."""
        if receive.source in self._progress.peers:
            self._progress.want(self._progress.peers[receive.source])

    def find(self, receive: PendingRecv) -> Arrival | None:
        """Return the first waiting message that matches."""
        if receive.source != ANY and not self._waiting[receive.source]:
            return None
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
        self._want_source(receive)
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
        peers = self._progress.peers
        if receive.source == ANY:
            if peers and all(peer.absent for peer in peers.values()):
                raise self._progress.missing(next(iter(peers.values())), "sending such a message")
        elif (peer := peers.get(receive.source)) is not None and peer.absent:
            raise self._progress.missing(peer, "sending such a message")
        return False

    def is_received(self, receive: PendingRecv) -> bool:
        """Return whether a message is in its place. Raises CommError if none can arrive before this rank does more."""
        return self.arrived(receive) or self._may_arrive(receive)

    def _finish(self, receive: PendingRecv) -> None:
        """Complete a receive: a message that was held is copied to its memory."""
        assert receive.message is not None
        message = receive.message
        receive.done = True
        if message.inline:
            self._return_credit(self._progress.peers[message.source], message.announce.size)
        if message.held is not None:
            receive.memory(message)[:] = message.held
            self._held[message.source] -= message.announce.size
            message.held = None
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
        if receive.source == ANY:
            self._want_all()
        sources = self._progress.peers if receive.source == ANY else (receive.source,)
        reasons = [self._why_silent(source) for source in sources]
        if all(reasons):
            rank = receive.source if len(reasons) == 1 else None
            raise CommError("; ".join(reasons), rank=rank)
        return False

    def _want_all(self) -> None:
        """Begin to connect with all ranks where a message of any was waited for in vain: they may all have left."""
        now = time.monotonic()
        self._any_since = now if self._any_since is None else self._any_since
        if now - self._any_since >= ANY_S:
            self._progress.want_ranks(self._progress.peers)

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
            for peer in self._progress.connected.values():
                self._unblock(peer)
            if not (notified or silent) and time.monotonic() - began >= HEARTBEAT_INTERVAL_S:
                notified = True
                self._post_all(messages.Waiting(request.number, call))
            return False

        self._progress.run(done)
        if notified:
            self._post_all(messages.Waiting(0, call))

    def _post_all(self, frame: messages.Waiting) -> None:
        for peer in list(self._progress.connected.values()):
            self._progress.post(peer, frame)


def other_threads() -> bool:
    """Return whether another thread of this process could make calls, too."""
    return threading.active_count() > 1
