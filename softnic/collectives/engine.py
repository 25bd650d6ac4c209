"""One rank's half of a group: requests under way, the peers that take part, and how all of it ends.

Requests are started as they are posted; per connection, everything goes in the order of requests and steps. A group
fails as a whole and for good. The first who notices tells all others by an Abort on WORDS; a rank that ends without
one is known by its connections. DATA connections that end before WORDS has said why are given a moment (DOUBT_S).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping

import numpy as np
import numpy.typing as npt

from softnic.collectives.collective_op import Request
from softnic.collectives.framing import MOST_TEXT
from softnic.collectives.messages import Abort, Head, Reader, pack
from softnic.collectives.peer_queue import Lane
from softnic.ipc.work_queue import MAX_POSTS, Completed, Failed, Post
from softnic.tcp.connection import Connection
from softnic.tcp.state import State

RECALL_BYTES = 1 << 20
"""If no more than this is lent at the end of a request, it is copied: completion waits for no acknowledgement."""
DOUBT_S = 1.0
"""For an Abort to arrive behind the end of a DATA connection."""

Places = MutableMapping[tuple[int, int, int], Callable[[int, int], "npt.NDArray[np.uint8] | None"]]
"""`softnic.nic.nic.Nic.places`."""


class GroupError(Exception):
    """The group cannot go on. `rank` is at fault, -1: no single one.

    Of two ranks that called different things it is the one that the other noticed first; the text has both calls.
    """

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(text)
        self.rank = rank
        self.text = text


class Peer:
    """Another rank: its WORDS and its lane."""

    __slots__ = ("doubt_at", "due", "heads", "lane", "left", "rank", "reader", "unsent", "words")

    def __init__(self, rank: int, words: Connection, lane: Lane) -> None:
        self.rank = rank
        self.words = words
        self.lane = lane
        self.reader = Reader()
        self.unsent = b""
        """Of words, what TCP had no space for."""
        self.heads: deque[Head] = deque()
        """That came before this rank's own Post."""
        self.due: deque[Request] = deque()
        """Requests whose Head has not come from this rank, in order."""
        self.left = False
        """It says nothing more; all that it took part in is complete there."""
        self.doubt_at: float | None = None
        """Its DATA has ended: for how long to wait for a reason."""

    def say(self, frame: bytes) -> None:
        self.unsent += frame
        self.flush()

    def flush(self) -> None:
        if self.unsent:
            self.unsent = self.unsent[self.words.send(self.unsent) :]


class Executor:
    """Rank `rank` of a group of `size`. `words` and `data` are connections to the other ranks, by rank, that nobody
    else reads or writes from now on; `places` is the NIC's.

    `replies` is what the process is to be told. `failure` says that the group is over.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        words: Mapping[int, Connection],
        data: Mapping[int, Connection],
        places: Places,
    ) -> None:
        # Every rank turns to another one first: if all sent to rank 0 first, its port would be the bottleneck of all.
        others = [(rank + step) % size for step in range(1, size)]
        if not 0 <= rank < size or set(words) != set(others) or set(data) != set(others):
            raise ValueError(f"rank {rank} of {size} needs connections to all others, and to no more")
        self.rank = rank
        self.size = size
        self.replies: deque[Completed | Failed] = deque()
        self.failure: Failed | None = None
        self.excuse = ""
        """Why it is this rank's own NIC where others are gone without a word now; empty: it is not."""
        self._lanes = {other: Lane(other, data[other]) for other in others}
        self._peers = {other: Peer(other, words[other], self._lanes[other]) for other in others}
        self._all_peers = tuple(self._peers.values())
        self._sources = self._all_peers[::-1]
        """As `direct` combines what comes from them: one behind the other goes in one pass."""
        self._places = places
        self._posted = 0
        self._active: dict[int, Request] = {}
        self._ending: list[Request] = []
        """Active ones that only wait for what they lent."""
        for peer in self._all_peers:
            lane = peer.lane
            peer.words.nodelay = lane.connection.nodelay = True
            lane.connection.set_blocks(True)
            places[_key(lane.connection)] = lane.claim

    # -- from the process ----------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Posts that it takes now."""
        return MAX_POSTS - len(self._active) - len(self.replies)

    @property
    def busy(self) -> bool:
        """Whether `advance` may have something to do, whatever becomes of the connections."""
        return bool(self._active) or any(peer.unsent or peer.doubt_at is not None for peer in self._all_peers)

    def post(self, post: Post, source: memoryview, result: memoryview) -> None:
        """Starts a request; `source` and `result` are the memory that the Post speaks of, and the executor's until it
        is over. Raises ValueError for what no process posts; then nothing is started."""
        if self.failure is not None:
            return
        if post.number != self._posted + 1:
            raise ValueError(f"request {post.number} was posted after request {self._posted}")
        request = Request(post, self.rank, self.size, source, result)
        self._posted = post.number
        self._active[post.number] = request
        frame = pack(request.head) if request.peers else b""
        request.start(self._lanes, self._ending.append)
        for rank in request.peers:
            peer = self._peers[rank]
            peer.due.append(request)
            peer.say(frame)

    def cancel(self, number: int, now: float) -> None:
        """Gives up a request, and with it the group; nothing, where all of it has come."""
        request = self._active.get(number)
        if request is not None and request.left:
            self.fail(now, self.rank, f"rank {self.rank} cancelled {request.head.call}")

    # -- moving --------------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Does all there is to do: after the node has received, before it sends."""
        if self.failure is not None:
            self._wind_up()
            return
        try:
            for peer in self._all_peers:
                if peer.words.received or peer.heads or peer.unsent:
                    self._hear(peer)
            if self._active:
                with np.errstate(all="ignore"):  # overflow gives infinity, as in MPI
                    self._move()
            for peer in self._all_peers:
                if peer.words.state is not _WHOLE or peer.lane.connection.state is not _WHOLE:
                    self._judge(peer, now)
        except GroupError as error:
            self.fail(now, error.rank, error.text)

    def next_time(self) -> float | None:
        """When `advance` wants to be called next, if nothing happens before."""
        return min((peer.doubt_at for peer in self._all_peers if peer.doubt_at is not None), default=None)

    def _move(self) -> None:
        moved = True
        while moved:  # what one lane brought may be what another waits for
            moved = False
            for peer in self._sources:
                lane = peer.lane
                if lane.incoming and lane.connection.rcv.unread and lane.take():
                    moved = True
        for peer in self._all_peers:
            if peer.lane.outgoing:
                peer.lane.give()
        if self._ending:
            self._complete()

    def _complete(self) -> None:
        ending, self._ending[:] = self._ending[:], ()
        for request in ending:
            if all(self._is_returned(lane, mark) for lane, mark in request.marks.items()):
                del self._active[request.number]
                self.replies.append(Completed(request.number))
            else:
                self._ending.append(request)

    def _is_returned(self, lane: Lane, mark: int) -> bool:
        if not lane.returned(mark) and mark - lane.connection.snd.buffer.zerocopy.completed_bytes <= RECALL_BYTES:
            lane.take_back(mark)
        return lane.returned(mark)

    # -- words ---------------------------------------------------------------------------------------------------------

    def _hear(self, peer: Peer) -> None:
        words = peer.words
        peer.flush()
        while words.received:
            view = words.received[0]
            try:
                for frame in peer.reader.feed(view):
                    if isinstance(frame, Abort):
                        raise self._told(frame)
                    peer.heads.append(frame)
            except ValueError as error:
                raise GroupError(peer.rank, f"rank {peer.rank} is no member of this group: {error}") from None
            words.consume(len(view))
            if len(peer.heads) > 2 * MAX_POSTS:
                raise GroupError(peer.rank, f"rank {peer.rank} is more than {MAX_POSTS} requests ahead")
        if peer.heads:
            self._meet(peer)

    def _told(self, abort: Abort) -> GroupError:
        if abort.rank == self.rank and self.excuse:
            return GroupError(self.rank, self.excuse)
        return GroupError(abort.rank if 0 <= abort.rank < self.size else -1, abort.text)

    def _meet(self, peer: Peer) -> None:
        """Compares what the peer does with what this rank does."""
        while peer.heads and peer.heads[0].number <= self._posted:
            theirs = peer.heads.popleft()
            request = peer.due.popleft() if peer.due else None
            if request is None or request.head != theirs:
                if request is None or request.number != theirs.number:
                    request = self._active.get(theirs.number)
                mine = "nothing that it takes part in" if request is None else request.head.describe()
                raise GroupError(peer.rank, f"rank {peer.rank} called {theirs.describe()}, rank {self.rank} {mine}")
            peer.lane.met = theirs.number
            request.moved()

    # -- the end -------------------------------------------------------------------------------------------------------

    def fail(self, now: float, rank: int, text: str) -> None:
        """Ends the group: tells the process and all peers, and lets go of all memory at once."""
        if self.failure is not None:
            return
        self.failure = Failed(rank, text[:MOST_TEXT])
        self.replies.append(self.failure)
        self._active.clear()
        self._ending.clear()
        last_words = pack(Abort(rank, text))
        for peer in self._all_peers:
            peer.due.clear()
            peer.doubt_at = None
            peer.say(last_words)
            self._drop_data(peer.lane, now)
        self._wind_up()

    def _drop_data(self, lane: Lane, now: float) -> None:
        lane.incoming.clear()
        lane.outgoing.clear()
        self._places.pop(_key(lane.connection), None)
        lane.connection.abort(now)
        lane.connection.consume(lane.connection.rcv.unread)

    def _wind_up(self) -> None:
        """Sees the last words off, and hears nothing any more."""
        for peer in self._all_peers:
            peer.words.consume(peer.words.rcv.unread)
            peer.flush()
            if not peer.unsent:
                peer.words.shutdown_write()

    def leave(self, now: float) -> None:
        """The process has let go of the group. What is complete here still reaches the others; if anything is not, the
        group fails."""
        if self._active:
            calls = ", ".join(dict.fromkeys(request.head.call for request in self._active.values()))
            self.fail(now, self.rank, f"rank {self.rank} is gone: its process left amid {calls}")
        for peer in self._all_peers:
            for connection in (peer.words, peer.lane.connection):
                connection.consume(connection.rcv.unread)
                connection.close(now)
            self._places.pop(_key(peer.lane.connection), None)
        self._peers.clear()
        self._lanes.clear()
        self._all_peers = self._sources = ()

    def _judge(self, peer: Peer, now: float) -> None:
        """A connection of this peer has ended, one way or the other: whether the group can do without."""
        words, data = peer.words, peer.lane.connection
        if _ended(words):
            if words.error and not peer.left:
                raise self._gone(peer, words)
            peer.left = True
        if peer.left and peer.due:
            raise GroupError(peer.rank, f"rank {peer.rank} has left, and takes no part in {peer.due[0].head.call}")
        if not _ended(data) or not peer.lane.lacks:
            peer.doubt_at = None
        elif peer.doubt_at is None:
            peer.doubt_at = now + DOUBT_S
        elif now >= peer.doubt_at:
            raise self._gone(peer, data)

    def _gone(self, peer: Peer, connection: Connection) -> GroupError:
        """Without a word: a NIC that stood still was given up, and could hear none."""
        if self.excuse:
            return GroupError(self.rank, self.excuse)
        return GroupError(peer.rank, f"rank {peer.rank} is gone: {_reason(connection)}")


def _key(connection: Connection) -> tuple[int, int, int]:
    return connection.peer[0], connection.peer[1], connection.local[1]


_WHOLE = State.ESTABLISHED
"""Both ways are open."""


def _ended(connection: Connection) -> bool:
    """Nothing more comes from it."""
    return connection.rcv.eof or connection.state is State.CLOSED


def _reason(connection: Connection) -> str:
    if connection.error_message:
        return connection.error_message
    return os.strerror(connection.error) if connection.error else "it closed its connection"
