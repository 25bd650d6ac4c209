"""The collective engine of one rank: operations in progress, the peers that take part, and how all of it ends.

Operations are started in the order in which they are posted, each when the ranks that it exchanges blocks with are
connected. On each stream, everything goes in the order of operations and steps. The communicator's offloaded operations
fail together and for good: the first engine that notices a failure sends an EngineAbort to all that are connected to
it, and these do the same; a rank that ends without one is noticed by its streams. Data streams that end before the
control stream has said why are given END_GRACE_S.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from softnic.collectives.collective_op import WHOLE, CollectiveOp, LanePart
from softnic.collectives.framing import MAX_TEXT, shortened
from softnic.collectives.header_queue import HeaderQueue
from softnic.collectives.message_op import MessageOp
from softnic.collectives.messages import CollectiveHeader, EngineAbort, EngineLeave, mismatched, pack
from softnic.collectives.peer_queue import PeerQueue
from softnic.collectives.schedule.paths import LARGE_BYTES
from softnic.collectives.step_engine import StepEngine
from softnic.collectives.steps import EngineOp
from softnic.collectives.stream import Look, PeerStream
from softnic.ipc.work_queue import (
    MAX_WORK_REQUESTS,
    CancelRequest,
    RecvRequest,
    SendRequest,
    StagedPart,
    WorkCompletion,
    WorkFailed,
    WorkRequest,
)
from softnic.terminal import printable

END_GRACE_S = 1.0
"""For an EngineAbort to arrive after the end of a data stream."""
GONE_S = 2.0
"""How long operations may go on when a rank has ended without a word, where not every rank notices it by itself."""


class EngineError(Exception):
    """The communicator's offloaded operations cannot go on. `rank` is at fault, -1: not a single one.

    If two ranks called different things, it is the one that the other noticed first; the text has both calls.
    """

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(text)
        self.rank = rank
        self.text = text


class EnginePeer:
    """Another rank: its control stream, and the queues to it. `queues` begins with that of collectives."""

    def __init__(self, rank: int, control: PeerStream, headers: HeaderQueue, queues: tuple[PeerQueue, ...]) -> None:
        self.rank = rank
        self.control = control
        self.headers = headers
        self.data = queues[0]
        self.queues = queues
        self.streams = (control, *(queue.stream for queue in queues))
        self.unsent = b""
        """Messages that the control stream had no space for."""
        self.left = False
        """It sends no more messages; everything it took part in is complete there."""
        self.has_said_so = False
        """Its process leaves in good order."""
        self.gone_at: float | None = None
        """When all ranks are told that its process has ended by itself; None: it has not."""
        self.grace_until: float | None = None
        """A data stream has ended: until when to wait for a reason."""

    @property
    def is_busy(self) -> bool:
        """Whether something is to be done without an event of a stream."""
        return bool(self.unsent) or self.grace_until is not None or self.gone_at is not None

    def send(self, message: bytes) -> None:
        self.unsent += message
        self.flush()

    def flush(self) -> None:
        if self.unsent:
            self.unsent = self.unsent[self.control.send(self.unsent) :]


class CollectiveEngine:
    """The engine of rank `rank` of `size`.

    Parameters
    ----------
    rank, size
        This rank, and the number of ranks.
    control, data
        Streams to other ranks, by rank. The engine alone reads and writes them from now on. Further ranks are connected
        later (`connect`); what needs them waits until then.
    messages
        By rank, the streams of single messages: as they are, and compressed. Empty where there are none.

    `replies` holds what is to be sent to the process. `failure` is set when the engine has failed.
    """

    mismatched = False
    """Another rank made another call than this one."""

    def __init__(
        self,
        rank: int,
        size: int,
        control: Mapping[int, PeerStream],
        data: Mapping[int, PeerStream],
        messages: Mapping[int, tuple[PeerStream, PeerStream]] | None = None,
    ) -> None:
        messages = messages or {}
        fits = set(control) == set(data) <= set(range(size)) - {rank} and set(messages) in (set(), set(control))
        if not 0 <= rank < size or not fits:
            raise ValueError(f"rank {rank} of {size} has connections to other ranks, the same of each kind")
        self.rank = rank
        self.size = size
        self.replies: deque[WorkCompletion | WorkFailed] = deque()
        self.failure: WorkFailed | None = None
        self.local_fault = ""
        """Why this rank's own NIC is to blame where peers are gone without a reason; empty: it is not."""
        self.steps = StepEngine()
        self._active = self.steps.active
        self._queues: dict[int, PeerQueue] = {}
        self._peers: dict[int, EnginePeer] = {}
        """Connected ranks."""
        self._all_peers: tuple[EnginePeer, ...] = ()
        """The same, in the order in which they are served."""
        self._look: Look = _nothing
        self._held: deque[CollectiveOp] = deque()
        """Collectives that wait for connections, and those behind them."""
        self._held_messages: dict[int, deque[tuple[MessageOp, bool]]] = {}
        """Messages that do, by rank; whether they are compressed."""
        for other in control:
            self._add(other, control[other], data[other], messages.get(other, ()))
        self._serve_all()
        self._abort_message = b""
        """The EngineAbort of the failure, for the other ranks."""
        self._has_messages = False
        """Messages of peers may wait that were read, or messages to peers that were not sent."""
        self._has_ended = False
        """A stream was not open when `advance` looked at all of them."""
        self._posted = 0
        """Number of the last collective that was started."""
        self._requested = 0
        """Number of the last one that the process has posted."""
        self.large_sum: CollectiveHeader | None = None
        """The last large all-reduce, whose blocks tell how the ranks' links differ."""

    # Connections

    def connect(
        self, now: float, rank: int, control: PeerStream, data: PeerStream, messages: Sequence[PeerStream] = ()
    ) -> None:
        """Use streams to one more rank, and start what has waited for them. Raises ValueError for unfit ones."""
        if not 0 <= rank < self.size or rank == self.rank or rank in self._peers or len(messages) not in (0, 2):
            raise ValueError(f"rank {self.rank} of {self.size} takes no connections to rank {rank}")
        self._add(rank, control, data, messages)
        self._serve_all()
        self._has_messages = True
        if self.failure is not None:
            self._abort(self._peers[rank], now)
            return
        for op, compressed in self._held_messages.pop(rank, ()):
            self._start_message(op, rank, compressed)
        self._start_held()

    def _add(self, rank: int, control: PeerStream, data: PeerStream, messages: Sequence[PeerStream]) -> None:
        queue = self._queues[rank] = self.steps.queue(rank, data)
        headers = self.steps.headers(control, queue, self.size)
        queues = (queue, *(self.steps.queue(rank, stream) for stream in messages))
        self._peers[rank] = EnginePeer(rank, control, headers, queues)

    def _serve_all(self) -> None:
        # Every rank starts with another peer: if all sent to rank 0 first, its link would be everybody's bottleneck.
        peers = self._all_peers = tuple(self._peers[rank] for rank in sorted(self._peers, key=self._distance))
        send_order = [queue for peer in peers for queue in peer.queues]
        # As `direct` combines what comes from them: successive receives of a block are handled in one pass.
        receive_order = [queue for peer in peers[::-1] for queue in peer.queues]
        self.steps.set_order([peer.headers for peer in peers], receive_order, send_order)
        controls = [peer.control for peer in peers]
        self._look = controls[0].watch(controls, [queue.stream for queue in send_order]) if controls else _nothing

    def _distance(self, rank: int) -> int:
        return (rank - self.rank) % self.size

    # Requests of the process

    @property
    def space(self) -> int:
        """Number of requests that it takes now."""
        return MAX_WORK_REQUESTS - len(self._active) - len(self.replies)

    @property
    def operations(self) -> Iterable[EngineOp]:
        """The operations in progress."""
        return self._active.values()

    @property
    def posted(self) -> int:
        """Number of the last collective that the process has posted."""
        return self._requested

    @property
    def peers(self) -> Sequence[EnginePeer]:
        """The ranks that are connected."""
        return self._all_peers

    @property
    def is_busy(self) -> bool:
        """Whether `advance` may have something to do without an event of a stream."""
        return bool(self._active) or any(peer.is_busy for peer in self._all_peers)

    @property
    def needs_python(self) -> bool:
        """Whether `advance` has to look at more than blocks: failures, the ends of streams, unsent messages."""
        return self.failure is not None or self._has_ended or any(peer.unsent for peer in self._all_peers)

    def post(self, request: WorkRequest, source: memoryview, result: memoryview, part: LanePart = WHOLE) -> None:
        """Start a collective, or a part of it; `source` and `result` are its memory, in use until it is complete.

        It starts when all ranks that it exchanges blocks with are connected, and those before it have been started.

        Raises ValueError for a request that no process makes; then nothing is started.
        """
        if self.failure is not None:
            return
        if request.number != self._requested + 1:
            raise ValueError(f"request {request.number} was posted after request {self._requested}")
        op = CollectiveOp(request, self.rank, self.size, source, result, part)
        self._requested = request.number
        if request.collective == "allreduce" and len(source) >= LARGE_BYTES:
            self.large_sum = op.header
        self.steps.add(op)
        self._held.append(op)
        self._start_held()

    def _start_held(self) -> None:
        while self._held and self._peers.keys() >= set(self._held[0].peers):
            self._start(self._held.popleft())

    def _start(self, op: CollectiveOp) -> None:
        self._posted = self.steps.c.posted = op.number
        op.start(self._queues)
        self.steps.count_done(op)
        self._has_messages = True
        messages = op.messages()
        headers = op.expected_headers([expected for _, expected in messages])
        for index, (rank, (message, _)) in enumerate(zip(op.peers, messages, strict=True)):
            peer = self._peers[rank]
            peer.headers.expect(headers + index)
            peer.send(message)

    def stage(self, part: StagedPart) -> None:
        """Note that a part of a collective's contribution is there. Raises ValueError for what no process posts."""
        op = self._active.get(part.number)
        if self.failure is not None:
            return
        if not isinstance(op, CollectiveOp):
            raise ValueError(f"there is no collective {part.number} to be staged")
        op.stage(part.block, part.size)

    def post_message(self, request: SendRequest | RecvRequest, memory: memoryview) -> None:
        """Start to send or receive a message, or a part of one, in its turn on the stream to its peer.

        Raises ValueError for a request that no process makes; then nothing is started.
        """
        if self.failure is not None:
            return
        peer = self._peers.get(request.peer)
        if not 0 <= request.peer < self.size or request.peer == self.rank or (peer and len(peer.queues) == 1):
            raise ValueError(f"there is no stream for messages to rank {request.peer}")
        if request.number >= 0 or request.number in self._active:
            raise ValueError(f"message {request.number} has no number of its own below 0")
        op, compressed = MessageOp(request, memory), bool(request.codec)
        self.steps.add(op)
        if peer is None:
            self._held_messages.setdefault(request.peer, deque()).append((op, compressed))
        else:
            self._start_message(op, request.peer, compressed)

    def _start_message(self, op: MessageOp, rank: int, compressed: bool) -> None:
        op.start(self._peers[rank].queues[1 + compressed])
        self.steps.count_done(op)

    def cancel(self, request: CancelRequest, now: float) -> None:
        """Give up an operation, and with it the communicator; ignored where all of it has arrived."""
        op = self._active.get(request.number)
        if op is not None and op.c.pending:
            self.give_up(request, op.call, now)

    def give_up(self, request: CancelRequest, call: str, now: float) -> None:
        """Fail for the reason of a cancel request, whose operation is this call."""
        if request.rank is not None and 0 <= request.rank < self.size and request.text:
            self.fail(now, request.rank, shortened(request.text))
        else:
            self.fail(now, self.rank, f"rank {self.rank} cancelled {call}")

    # Progress

    def advance(self, now: float) -> None:
        """Do all that can be done, between what the node receives and what it sends."""
        if self.failure is not None:
            self._shut_down()
            return
        try:
            unread, self._has_ended = self._look()
            if unread or self._has_messages:
                self._exchange_messages()
            if self._active:
                self.replies.extend(WorkCompletion(number, self.steps.take_rate()) for number in self.steps.move())
                self.steps.look_at_rate(now)
            if self._has_ended:
                for peer in self._all_peers:
                    if not all([stream.is_open for stream in peer.streams]):
                        self._check_ended(peer, now)
        except EngineError as error:
            self.fail(now, error.rank, error.text)

    def next_time(self) -> float | None:
        """Return when `advance` has something to do, if nothing happens before."""
        if not self._has_ended or self.failure is not None:
            return None
        times = [time for peer in self._all_peers for time in (peer.grace_until, peer.gone_at) if time is not None]
        return min(times, default=None)

    # Messages of peers

    def _exchange_messages(self) -> None:
        self._has_messages = False
        for peer in self._all_peers:
            if peer.headers.early or peer.unsent or peer.control.unread:
                self._read_messages(peer)
                if peer.headers.early or peer.unsent:
                    self._has_messages = True

    def _read_messages(self, peer: EnginePeer) -> None:
        peer.flush()
        while self._read_headers(peer):
            pass

    def _read_headers(self, peer: EnginePeer) -> bool:
        """Read what may be held of a peer's messages; return whether room was made for more."""
        headers = peer.headers
        try:
            for message in headers.receive():
                if isinstance(message, EngineAbort):
                    raise self._reported(message)
                if isinstance(message, EngineLeave):
                    peer.has_said_so = True
                else:
                    headers.early.append(message)
        except ValueError as error:
            raise EngineError(peer.rank, f"rank {peer.rank} sent what is not a message: {error}") from None
        if len(headers.early) > 2 * MAX_WORK_REQUESTS:
            raise EngineError(peer.rank, f"rank {peer.rank} is more than {MAX_WORK_REQUESTS} requests ahead")
        held = bool(headers.early)
        self._match_headers(peer)
        headers.settle()
        return held and not headers.early

    def _reported(self, abort: EngineAbort) -> EngineError:
        if abort.rank == self.rank and self.local_fault:
            return EngineError(self.rank, self.local_fault)
        return EngineError(abort.rank if 0 <= abort.rank < self.size else -1, printable(abort.text, keep="\n"))

    def _match_headers(self, peer: EnginePeer) -> None:
        """Compare a peer's operations with this rank's, where C has not."""
        early = peer.headers.early
        while early and early[0].number <= self._posted:
            theirs = early.popleft()
            op = self._active.get(peer.headers.expected)
            if not isinstance(op, CollectiveOp) or op.headers_of(peer.rank)[1] != theirs:
                raise self._mismatch(peer, theirs, op)
            peer.headers.match()

    def _mismatch(self, peer: EnginePeer, theirs: CollectiveHeader, op: EngineOp | None) -> EngineError:
        self.mismatched = True
        if op is None or op.number != theirs.number:
            op = self._active.get(theirs.number)
        mine = "nothing that it takes part in"
        if isinstance(op, CollectiveOp):
            mine = op.headers_of(peer.rank)[0].describe()
        return EngineError(peer.rank, mismatched({peer.rank: printable(theirs.describe()), self.rank: mine}))

    # The end

    def fail(self, now: float, rank: int, text: str) -> None:
        """End all operations: report it to the process and all peers, and release all memory at once."""
        if self.failure is not None:
            return
        self.failure = WorkFailed(rank, text[:MAX_TEXT])
        self.replies.append(self.failure)
        self._abort_message = pack(EngineAbort(rank, text))
        for peer in self._all_peers:
            self._abort(peer, now)
        self._held.clear()
        self._held_messages.clear()
        self.steps.clear()
        self._shut_down()

    def _abort(self, peer: EnginePeer, now: float) -> None:
        peer.headers.clear()
        peer.grace_until = peer.gone_at = None
        peer.send(self._abort_message)
        for queue in peer.queues:
            queue.drop(now)

    def _shut_down(self) -> None:
        """Send the last messages, and ignore those of peers."""
        for peer in self._all_peers:
            peer.headers.discard()
            peer.flush()
            if not peer.unsent:
                peer.control.shutdown_write()

    def leave(self, now: float, *, has_said_so: bool = True) -> None:
        """Close all streams: the process has released the engine. `has_said_so`: in good order.

        Complete operations still reach the other ranks. If any is not complete, all ranks get an error.
        """
        if self._active:
            calls = ", ".join(dict.fromkeys(op.call for op in self._active.values()))
            self.fail(now, self.rank, f"rank {self.rank} is gone: its process left amid {calls}")
        for peer in self._all_peers:
            if has_said_so and self.failure is None:
                peer.send(pack(EngineLeave()))
            peer.headers.close()
            peer.control.close(now)
            for queue in peer.queues:
                queue.close(now)
        self._peers.clear()
        self._queues.clear()
        self._held.clear()
        self._held_messages.clear()
        self._all_peers = ()
        self._look = _nothing
        self.steps.set_order((), (), ())

    def _check_ended(self, peer: EnginePeer, now: float) -> None:
        """Decide whether the operations can do without a stream of this peer that has ended."""
        control = peer.control
        if control.is_ended:
            if control.is_failed and not peer.left:
                raise self._lost(peer, control)
            if not peer.left and not peer.has_said_so and len(self._all_peers) < self.size - 1:
                peer.gone_at = now + GONE_S
            peer.left = True
        if peer.gone_at is not None and now >= peer.gone_at:
            raise self._lost(peer, control)
        op = self._active.get(peer.headers.expected)
        if peer.left and isinstance(op, CollectiveOp):
            if not peer.has_said_so:
                raise self._lost(peer, control)
            call = op.header.describe()
            why = "" if peer.data.matched else ": it made no collective call"
            raise EngineError(peer.rank, f"rank {peer.rank} has left without {call}{why}")
        ended = next((queue for queue in peer.queues if queue.stream.is_ended and queue.is_unfinished), None)
        if ended is None:
            peer.grace_until = None
        elif peer.grace_until is None:
            peer.grace_until = now + END_GRACE_S
        elif now >= peer.grace_until:
            raise self._lost(peer, ended.stream)

    def _lost(self, peer: EnginePeer, stream: PeerStream) -> EngineError:
        """Return the error for a stream that ended without a reason: a NIC that stalled could hear none."""
        if self.local_fault:
            return EngineError(self.rank, self.local_fault)
        return EngineError(peer.rank, f"rank {peer.rank} is gone: {stream.end_reason}")


def _nothing() -> tuple[bool, bool]:
    """Look at no streams."""
    return False, False
