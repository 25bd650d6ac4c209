"""A single message, or a part of one, as the step that sends or receives it."""

from __future__ import annotations

from collections.abc import Callable

from softnic.collectives.peer_queue import PeerQueue
from softnic.collectives.steps import Block, CopyRecv, EngineOp, SendStep
from softnic.ipc.work_queue import RecvRequest, SendRequest


class MessageOp(EngineOp):
    """A SendRequest or RecvRequest in progress, over its memory."""

    __slots__ = ("_memory", "_request")

    def __init__(self, request: SendRequest | RecvRequest, memory: memoryview) -> None:
        super().__init__(request.number, request.call)
        self._request = request
        self._memory = memory
        self.pending = 1

    def start(self, queue: PeerQueue, on_done: Callable[[MessageOp], object]) -> None:
        """Queue the step. `on_done` is called when it is done."""
        self._on_done = on_done
        request = self._request
        block = Block(0, request.size, bool(request.codec))
        if not request.size:
            self.on_step_done()
        elif isinstance(request, SendRequest):
            queue.outgoing.append(SendStep(self, block, self._memory, request.codec or None, None))
        else:
            queue.incoming.append(CopyRecv(self, block, self._memory))
