"""Which message is for whom: receives of single messages, and collective calls entered together.

Messages of one rank are matched in the order in which they were sent. What nobody waits for yet is kept in memory,
up to HELD_BYTES a rank (one message may be longer), so that its sender gets on; beyond that it stays with the sender.

A collective call begins with a Head from every rank to every other. The data of a rank is touched only after its
Head was found to say the same call, and no rank leaves the call before it has all Heads: so either all ranks make
the same call, or none gets a result. Waiting for something that cannot come any more is an error at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from softnic.comm import messages
from softnic.comm.channel import Channel, Incoming, Outgoing, Peer
from softnic.comm.errors import CommError
from softnic.comm.progress import Progress

ANY = -1
"""Any source, any tag."""
OWN_TAGS = 1 << 31
"""From here on: of messages that are no user's. Any tag does not mean them."""
HELD_BYTES = 64 << 20


@dataclass(eq=False)
class Message:
    """A message that was announced to this rank."""

    source: int
    announce: messages.Announce
    incoming: Incoming
    order: int
    """Of arrival, over all sources."""
    held: memoryview | None = None
    """Where it is kept until somebody receives it."""


@dataclass(eq=False)
class Receive:
    """A receive in progress. `place` gives the memory for a message that fits, or raises CommError."""

    source: int
    tag: int
    place: Callable[[Message], memoryview]
    message: Message | None = None

    def fits(self, source: int, announce: messages.Announce) -> bool:
        return (
            self.message is None
            and self.source in (ANY, source)
            and (self.tag == announce.tag or (self.tag == ANY and announce.tag < OWN_TAGS))
        )


class Call:
    """A collective call in progress. `incoming` is what comes from each rank without further announcement."""

    def __init__(
        self,
        head: messages.Head,
        progress: Progress,
        incoming: Iterable[tuple[Channel, Incoming]] = (),
        outgoing: Iterable[Outgoing] = (),
    ) -> None:
        self.head = head
        self.unmet = dict(progress.peers)
        self._incoming = list(incoming)
        self._outgoing = list(outgoing)

    def meet(self, peer: Peer) -> None:
        """Takes the peer's next Head, if it is there. Raises CommError if it says another call."""
        if not peer.heads or peer.rank not in self.unmet:
            return
        theirs = peer.heads.popleft()
        if theirs != self.head:
            raise CommError(
                f"rank {peer.rank} called {theirs.describe()}, this rank {self.head.describe()}", rank=peer.rank
            )
        for channel, incoming in self._incoming:
            if channel.peer is peer:
                channel.incoming.append(incoming)
        del self.unmet[peer.rank]

    def moved(self) -> bool:
        return (
            not self.unmet
            and all(incoming.complete for _, incoming in self._incoming)
            and all(outgoing.complete for outgoing in self._outgoing)
        )


class Matcher:
    """Gives every frame of a Progress its meaning; sends, receives and makes collective calls over it."""

    def __init__(self, progress: Progress) -> None:
        self.number = 0
        """Collective calls entered."""
        self._progress = progress
        progress.listener = self
        self._call: Call | None = None
        self._receives: list[Receive] = []
        """Those whose message was not announced yet, the oldest first."""
        self._order = 0
        ranks = [*progress.peers, progress.rank]
        self._waiting: dict[int, deque[Message]] = {rank: deque() for rank in ranks}
        self._held = dict.fromkeys(ranks, 0)
        self._parts: dict[tuple[int, int], Message] = {}
        """Of calls, by source and the call's number."""

    # -- frames ----------------------------------------------------------------------------------------------------

    def head(self, peer: Peer) -> None:
        if self._call is not None:
            self._call.meet(peer)

    def announced(self, peer: Peer, announce: messages.Announce) -> None:
        if announce.size < 0:
            raise ValueError(f"a message of {announce.size} bytes")
        tagged = announce.tagged
        message = self._message(peer.rank, announce, Incoming(announce.size, messages.padding(announce.size) * tagged))
        receive = next((waiting for waiting in self._receives if waiting.fits(peer.rank, announce)), None)
        if announce.number:
            self._keep(message)
            self._parts[peer.rank, announce.number] = message
        elif receive is not None:
            self._receives.remove(receive)
            receive.message = message
            self._place(message, receive)
        else:
            self._waiting[peer.rank].append(message)
            self._make_room(peer.rank)
        peer.channel(tagged).incoming.append(message.incoming)

    def _message(self, source: int, announce: messages.Announce, incoming: Incoming) -> Message:
        self._order += 1
        return Message(source, announce, incoming, self._order)

    def _keep(self, message: Message) -> None:
        message.held = message.incoming.place = memoryview(bytearray(message.announce.size))

    def _make_room(self, rank: int) -> None:
        """Lets waiting messages come in, in their order, as far as there is memory for them."""
        for message in self._waiting[rank]:
            if message.held is None:
                size = message.announce.size
                if self._held[rank] and self._held[rank] + size > HELD_BYTES:
                    return
                self._held[rank] += size
                self._keep(message)

    # -- single messages -------------------------------------------------------------------------------------------

    def send(self, dest: int, announce: messages.Announce, data: memoryview) -> None:
        """Returns when the data is on its way (to this rank itself: kept)."""
        outgoing = self.begin_send(dest, announce, data)
        if outgoing is not None:
            self._progress.run(lambda: self.sent(dest, outgoing))

    def begin_send(self, dest: int, announce: messages.Announce, data: memoryview) -> Outgoing | None:
        """Queues a message, which is over when `sent` says so. None: it was for this rank itself, and is kept."""
        if dest != self._progress.rank:
            return self._queue(self._progress.peers[dest], announce, data)
        message = self._message(dest, announce, Incoming(0, 0))
        message.held = memoryview(bytearray(data))
        receive = next((waiting for waiting in self._receives if waiting.fits(dest, announce)), None)
        self._held[dest] += announce.size
        if receive is None:
            self._waiting[dest].append(message)
        else:
            self._receives.remove(receive)
            receive.message = message
        return None

    def sent(self, dest: int, outgoing: Outgoing) -> bool:
        """Whether the memory of a message is the caller's again. Raises CommError if it never will be."""
        peer = self._progress.peers[dest]
        if peer.absent and not outgoing.complete:
            raise self._progress.missing(peer, "receiving this")
        return outgoing.complete

    def _queue(self, peer: Peer, announce: messages.Announce, data: memoryview) -> Outgoing:
        tagged = announce.tagged
        if tagged:
            self._progress.use_codec(peer.channel(tagged), announce.codec)
        outgoing = Outgoing(data, messages.padding(data.nbytes) * tagged)
        channel = peer.channel(tagged)
        self._progress.use_registered(channel, data)
        self._progress.post(peer, announce)
        channel.send(outgoing)
        return outgoing

    def receive(self, receive: Receive) -> Message:
        """Returns the message when it is where `receive.place` said."""
        self.begin_receive(receive)
        try:
            self._progress.run(lambda: self._received(receive))
        finally:
            if receive in self._receives:
                self._receives.remove(receive)
        return self.end_receive(receive)

    def begin_receive(self, receive: Receive) -> None:
        """Takes a message that waits, or the next that fits. It is there when `arrived` says so."""
        waiting = self._waiting.values() if receive.source == ANY else [self._waiting[receive.source]]
        fitting = [m for queue in waiting for m in queue if receive.fits(m.source, m.announce)]
        if fitting:
            first = receive.message = min(fitting, key=lambda message: message.order)
            self._waiting[first.source].remove(first)
            if first.held is None:
                self._place(first, receive)
        else:
            self._receives.append(receive)

    def arrived(self, receive: Receive) -> bool:
        """Whether a message can be taken with `end_receive`. Raises CommError if none can come any more."""
        if receive.message is not None:
            return receive.message.incoming.complete
        sources = list(self._progress.peers.values()) if receive.source == ANY else []
        if receive.source in self._progress.peers:
            sources = [self._progress.peers[receive.source]]
        if sources and all(peer.absent for peer in sources):
            raise self._progress.missing(sources[0], "sending such a message")
        return False

    def end_receive(self, receive: Receive) -> Message:
        """Puts what was kept where `receive.place` says."""
        assert receive.message is not None
        message = receive.message
        if message.held is not None:
            receive.place(message)[:] = message.held
            self._held[message.source] -= message.announce.size
        self._make_room(message.source)
        return message

    def _place(self, message: Message, receive: Receive) -> None:
        """The message goes straight to where it is wanted."""
        place = message.incoming.place = receive.place(message)
        channel = self._progress.peers[message.source].channel(message.announce.tagged)
        self._progress.use_registered(channel, place)

    def _received(self, receive: Receive) -> bool:
        if receive.message is not None:
            if not receive.message.incoming.complete and receive.message.source in self._progress.peers:
                self._check_unblocked(self._progress.peers[receive.message.source])
            return receive.message.incoming.complete
        sources = self._progress.peers if receive.source == ANY else (receive.source,)
        reasons = [self._why_silent(source) for source in sources]
        if all(reasons):
            raise CommError(
                "; ".join(reasons) or "no other rank is there", rank=receive.source if len(reasons) == 1 else None
            )
        return False

    def _why_silent(self, source: int) -> str:
        """Why no further message can come from a rank; empty if one can."""
        if source == self._progress.rank:
            return "this rank has sent itself no such message"
        peer = self._progress.peers[source]
        if peer.absent:
            return str(self._progress.missing(peer, "sending such a message"))
        if peer.heads:
            return f"rank {source} sends nothing before this rank joins its {peer.heads[0].describe()}"
        return self._why_blocked(peer)

    def _why_blocked(self, peer: Peer) -> str:
        if any(channel.incoming and channel.incoming[0].place is None for channel in peer.channels):
            return f"rank {peer.rank} has sent more than {HELD_BYTES >> 20} MiB that nobody receives"
        return ""

    def _check_unblocked(self, peer: Peer) -> None:
        if reason := self._why_blocked(peer):
            raise CommError(reason, rank=peer.rank)

    # -- collective calls ------------------------------------------------------------------------------------------

    def enter(self, call: Call) -> None:
        """Makes a collective call whose data is in the queues of `call`; returns when all of it has moved."""
        self._begin(call)
        self._finish(call, ())

    def exchange(self, call: Call, objects: dict[int, bytes], sources: Iterable[int]) -> dict[int, memoryview]:
        """Makes a collective call in which `objects` go to other ranks; returns what came from `sources`."""
        self._begin(call)
        outgoing = []
        for rank, data in objects.items():
            announce = messages.Announce(0, len(data), "", number=self.number)
            outgoing.append(self._queue(self._progress.peers[rank], announce, memoryview(data)))
        keys = [(source, self.number) for source in sources]
        self._finish(call, keys, outgoing)
        return {key[0]: memoryview(self._parts.pop(key).held or b"") for key in keys}

    def _begin(self, call: Call) -> None:
        self._call = call
        for peer in self._progress.peers.values():
            self._progress.post(peer, call.head)
        for peer in self._progress.peers.values():
            call.meet(peer)

    def _finish(self, call: Call, keys: Iterable[tuple[int, int]], outgoing: Iterable[Outgoing] = ()) -> None:
        def done() -> bool:
            for peer in call.unmet.values():
                if peer.absent:
                    raise self._progress.missing(peer, call.head.describe())
                self._check_unblocked(peer)
            return (
                call.moved()
                and all(message.complete for message in outgoing)
                and all(key in self._parts and self._parts[key].incoming.complete for key in keys)
            )

        try:
            self._progress.run(done)
        finally:
            self._call = None
