"""A single message, or a part of one, as the step that sends or receives it."""

from __future__ import annotations

from softnic import codecs
from softnic.collectives.peer_queue import PeerQueue
from softnic.collectives.steps import Block, EngineOp
from softnic.ipc.work_queue import RecvRequest, SendRequest

COPY_AT_END = 64 << 10
"""Limit of what is copied at the end of a message instead of waiting for acknowledgements. The next message is sent
meanwhile: a copy would take its time."""


class MessageOp(EngineOp):
    """A SendRequest or RecvRequest in progress, over its memory."""

    __slots__ = ("_request", "_view")

    def __init__(self, request: SendRequest | RecvRequest, memory: memoryview) -> None:
        super().__init__(request.number, request.call, 1, 1, COPY_AT_END)
        self._request = request
        self._view = self.keep(memory)

    def start(self, queue: PeerQueue) -> None:
        """Queue the step. Its end, or for no bytes this call, is that of the message."""
        request = self._request
        block = Block(0, request.size, codecs.get(request.codec) if request.codec else None)
        if not request.size:
            return
        self.c.pending += 1
        if isinstance(request, SendRequest):
            self.send(queue, block, self._view, request.codec or None, None)
        else:
            self.copy(queue, block, self._view, None, [])
