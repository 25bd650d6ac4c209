"""Single messages to and from one rank, sent by the NIC out of registered memory, and received into it, without a copy.

A channel posts messages as work requests, in order. A message in registered memory is one request. Any other is staged
through scratch memory in chunks, several of which are in progress at a time, so that copying and sending overlap.
"""

from __future__ import annotations

from collections import deque
from functools import partial

import numpy as np

from softnic.comm.nic_memory import NicMemory
from softnic.comm.offload_queue import OffloadQueue
from softnic.comm.scratch import Allocation
from softnic.ipc.work_queue import RecvRequest, SendRequest

CHUNK_BYTES = 1 << 20
"""Staged at a time; a multiple of 64, so that only a message's last chunk is padded (FORMAT.md)."""
MAX_CHUNKS = 4
"""Chunks of a message in progress at a time."""


class MessageTransfer:
    """A message of `size` bytes in progress. `data` is its memory, None as long as there is none to receive it."""

    __slots__ = ("chunks", "codec", "data", "posted", "size")

    def __init__(self, data: memoryview | None, size: int, codec: str) -> None:
        self.data = data
        self.size = size
        self.codec = codec
        """Empty: the bytes are sent as they are."""
        self.posted = 0
        """Bytes handed to the NIC."""
        self.chunks: dict[int, Allocation | None] = {}
        """By offset, requests in progress, with their scratch memory."""

    @property
    def is_complete(self) -> bool:
        return self.posted == self.size and not self.chunks


class SendOp(MessageTransfer):
    """A message being sent. Its memory must not change until it is complete."""

    __slots__ = ("taken",)

    def __init__(self, data: memoryview, codec: str = "", size: int | None = None) -> None:
        super().__init__(data, data.nbytes if size is None else size, codec)
        self.taken = True
        """A receive has taken it, or it is not synchronous."""


class RecvOp(MessageTransfer):
    """A message being received. Without memory, it and those behind it wait at the sender."""

    __slots__ = ()

    def __init__(self, size: int, codec: str = "", data: memoryview | None = None) -> None:
        super().__init__(data, size, codec)


class ZeroCopyChannel:
    """The messages to and from rank `peer` over one pair of streams: plain or compressed."""

    def __init__(self, peer: int, queue: OffloadQueue, memory: NicMemory) -> None:
        self._peer = peer
        self._queue = queue
        self._memory = memory
        self._outgoing: deque[MessageTransfer] = deque()
        self._incoming: deque[MessageTransfer] = deque()
        self._receiving: deque[MessageTransfer] = deque()
        """Posted, and perhaps complete."""

    def send(self, message: SendOp) -> None:
        """Queue a message."""
        self._outgoing.append(message)

    def receive(self, message: RecvOp) -> None:
        """Queue a message that the peer has announced."""
        self._incoming.append(message)

    @property
    def is_blocked(self) -> bool:
        """Whether the message that arrives now has no memory."""
        while self._receiving and self._receiving[0].is_complete:
            self._receiving.popleft()
        return not self._receiving and bool(self._incoming) and self._incoming[0].data is None

    def advance(self) -> None:
        """Post what can be posted now. Raises CommError and OSError."""
        for messages in (self._outgoing, self._incoming):
            while messages and messages[0].data is not None and self._post(messages[0]):
                message = messages.popleft()
                if isinstance(message, RecvOp):
                    self._receiving.append(message)

    def _post(self, message: MessageTransfer) -> bool:
        """Post the next parts of a message; return whether all of it is posted."""
        assert message.data is not None
        while message.posted < message.size:
            data = message.data[message.posted : message.size]
            address = self._memory.address(data)
            if address is not None:
                self._post_part(message, data, address, None)
            elif len(message.chunks) < MAX_CHUNKS:
                data = data[:CHUNK_BYTES]
                allocation, address = self._memory.allocate(data.nbytes)
                if isinstance(message, SendOp):
                    allocation.bytes[:] = np.frombuffer(data, np.uint8)
                self._post_part(message, data, address, allocation)
            else:
                return False
        return True

    def _post_part(
        self, message: MessageTransfer, data: memoryview, address: tuple[int, int], allocation: Allocation | None
    ) -> None:
        kind, call = (SendRequest, "Send") if isinstance(message, SendOp) else (RecvRequest, "Recv")
        size, codec, offset = data.nbytes, message.codec, message.posted
        message.chunks[offset] = allocation
        message.posted += size
        self._queue.post_message(
            call,
            lambda number: kind(number, call, self._peer, address, size, codec),
            partial(self._finish, message, offset, data),
        )

    def _finish(self, message: MessageTransfer, offset: int, data: memoryview) -> None:
        """Put a completed part in place. May be called again if it was interrupted."""
        allocation = message.chunks.get(offset)
        if allocation is not None and isinstance(message, RecvOp):
            np.frombuffer(data, np.uint8)[:] = allocation.bytes
        message.chunks.pop(offset, None)
        if allocation is not None:
            self._memory.scratch.free(allocation)
