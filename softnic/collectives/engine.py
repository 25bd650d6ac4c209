"""The collective engine of one rank: operations in progress, the peers that take part, and how all of it ends.

Operations are started as they are posted. On each stream, everything goes in the order of operations and steps. The
communicator's offloaded operations fail together and for good: the first engine that notices a failure sends an
EngineAbort to all others, and a rank that ends without one is noticed by its streams. Data streams that end before the
control stream has said why are given END_GRACE_S.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from softnic.collectives.collective_op import WHOLE, CollectiveOp, LanePart
from softnic.collectives.framing import MAX_TEXT, shortened
from softnic.collectives.header_queue import HeaderQueue
from softnic.collectives.message_op import MessageOp
from softnic.collectives.messages import CollectiveHeader, EngineAbort, mismatched, pack
from softnic.collectives.peer_queue import PeerQueue
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
        self.grace_until: float | None = None
        """A data stream has ended: until when to wait for a reason."""

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
        Streams to the other ranks, by rank. The engine alone reads and writes them from now on.
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
        # Every rank starts with another peer: if all sent to rank 0 first, its link would be everybody's bottleneck.
        others = [(rank + step) % size for step in range(1, size)]
        messages = messages or {}
        complete = set(control) == set(data) == set(others) and set(messages) in (set(), set(others))
        if not 0 <= rank < size or not complete:
            raise ValueError(f"rank {rank} of {size} needs connections to all others, and to no more")
        self.rank = rank
        self.size = size
        self.replies: deque[WorkCompletion | WorkFailed] = deque()
        self.failure: WorkFailed | None = None
        self.local_fault = ""
        """Why this rank's own NIC is to blame where peers are gone without a reason; empty: it is not."""
        self.steps = StepEngine()
        self._active = self.steps.active
        self._queues = {other: self.steps.queue(other, data[other]) for other in others}
        self._peers = {
            other: EnginePeer(
                other,
                control[other],
                self.steps.headers(control[other], self._queues[other], size),
                (self._queues[other], *(self.steps.queue(other, stream) for stream in messages.get(other, ()))),
            )
            for other in others
        }
        self._all_peers = tuple(self._peers.values())
        send_order = [queue for peer in self._all_peers for queue in peer.queues]
        # As `direct` combines what comes from them: successive receives of a block are handled in one pass.
        receive_order = [queue for peer in self._all_peers[::-1] for queue in peer.queues]
        self.steps.set_order([peer.headers for peer in self._all_peers], receive_order, send_order)
        controls = [peer.control for peer in self._all_peers]
        data_streams = [queue.stream for queue in send_order]
        self._look: Look = controls[0].watch(controls, data_streams) if controls else _nothing
        self._has_messages = False
        """Messages of peers may wait that were read, or messages to peers that were not sent."""
        self._has_ended = False
        """A stream was not open when `advance` looked at all of them."""
        self._posted = 0

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
        """Number of the last collective."""
        return self._posted

    @property
    def peers(self) -> Sequence[EnginePeer]:
        """The other ranks."""
        return self._all_peers

    @property
    def is_busy(self) -> bool:
        """Whether `advance` may have something to do without an event of a stream."""
        return bool(self._active) or any(peer.unsent or peer.grace_until is not None for peer in self._all_peers)

    @property
    def needs_python(self) -> bool:
        """Whether `advance` has to look at more than blocks: failures, the ends of streams, unsent messages."""
        return self.failure is not None or self._has_ended or any(peer.unsent for peer in self._all_peers)

    def post(self, request: WorkRequest, source: memoryview, result: memoryview, part: LanePart = WHOLE) -> None:
        """Start a collective, or a part of it; `source` and `result` are its memory, in use until it is complete.

        Raises ValueError for a request that no process makes; then nothing is started.
        """
        if self.failure is not None:
            return
        if request.number != self._posted + 1:
            raise ValueError(f"request {request.number} was posted after request {self._posted}")
        op = CollectiveOp(request, self.rank, self.size, source, result, part)
        self._posted = self.steps.c.posted = request.number
        self.steps.add(op)
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
        if peer is None or len(peer.queues) == 1:
            raise ValueError(f"there is no stream for messages to rank {request.peer}")
        if request.number >= 0 or request.number in self._active:
            raise ValueError(f"message {request.number} has no number of its own below 0")
        op = MessageOp(request, memory)
        self.steps.add(op)
        op.start(peer.queues[1 + bool(request.codec)])
        self.steps.count_done(op)

    def cancel(self, request: CancelRequest, now: float) -> None:
        """Give up an operation, and with it the communicator; ignored where all of it has arrived."""
        op = self._active.get(request.number)
        if op is not None and op.c.pending:
            self.give_up(request, op.call, now)

    def give_up(self, request: CancelRequest, call: str, now: float) -> None:
        """Fail for the reason of a cancel request, whose operation is this call."""
        if request.rank in self._peers:
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
                self.replies.extend(map(WorkCompletion, self.steps.move()))
            if self._has_ended:
                for peer in self._all_peers:
                    if not all([stream.is_open for stream in peer.streams]):
                        self._check_ended(peer, now)
        except EngineError as error:
            self.fail(now, error.rank, error.text)

    def next_time(self) -> float | None:
        """Return when `advance` has something to do, if nothing happens before."""
        if not self._has_ended:
            return None
        return min((peer.grace_until for peer in self._all_peers if peer.grace_until is not None), default=None)

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
        abort = pack(EngineAbort(rank, text))
        for peer in self._all_peers:
            peer.headers.clear()
            peer.grace_until = None
            peer.send(abort)
            for queue in peer.queues:
                queue.drop(now)
        self.steps.clear()
        self._shut_down()

    def _shut_down(self) -> None:
        """Send the last messages, and ignore those of peers."""
        for peer in self._all_peers:
            peer.headers.discard()
            peer.flush()
            if not peer.unsent:
                peer.control.shutdown_write()

    def leave(self, now: float) -> None:
        """Close all streams: the process has released the engine.

        Complete operations still reach the other ranks. If any is not complete, all ranks get an error.
        """
        if self._active:
            calls = ", ".join(dict.fromkeys(op.call for op in self._active.values()))
            self.fail(now, self.rank, f"rank {self.rank} is gone: its process left amid {calls}")
        for peer in self._all_peers:
            peer.headers.close()
            peer.control.close(now)
            for queue in peer.queues:
                queue.close(now)
        self._peers.clear()
        self._queues.clear()
        self._all_peers = ()
        self._look = _nothing
        self.steps.set_order((), (), ())

    def _check_ended(self, peer: EnginePeer, now: float) -> None:
        """Decide whether the operations can do without a stream of this peer that has ended."""
        control = peer.control
        if control.is_ended:
            if control.is_failed and not peer.left:
                raise self._lost(peer, control)
            peer.left = True
        op = self._active.get(peer.headers.expected)
        if peer.left and isinstance(op, CollectiveOp):
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
