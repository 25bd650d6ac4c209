"""The steps of one stream to another rank: sends and receives, each strictly in order. C executes them."""

from __future__ import annotations

from typing import Any, TypeAlias

from softnic._native import ffi, lib
from softnic.collectives.stream import PeerStream

Step: TypeAlias = Any
"""An `sn_step`."""


class PeerQueue:
    """The steps over one stream to rank `rank`, of the `sn_engine` at `engine`.

    Received bytes belong to the first receive, once the header that this rank sent for its operation matched.
    """

    __slots__ = ("_received", "c", "rank", "stream")

    def __init__(self, rank: int, stream: PeerStream, engine: Any) -> None:
        self.rank = rank
        self.stream = stream
        self._received = stream.received
        self.c = ffi.new("sn_step_queue *", {"flow": stream.flow, "engine": engine})
        stream.attach(self.c, ffi.NULL)
        stream.send_blocks()

    @property
    def matched(self) -> int:
        """Number of the last operation whose header matched."""
        return int(self.c.matched)

    @matched.setter
    def matched(self, number: int) -> None:
        self.c.matched = number

    def post(self, step: Step) -> None:
        """Append a step."""
        step.queue = self.c
        lib.sn_step_post(step)

    @property
    def is_waiting(self) -> bool:
        """Whether there are steps that received bytes may go to."""
        return self.stream.unread > 0 and bool(self.c.incoming)  # most streams have nothing

    def receive(self) -> bool:
        """Move received bytes to where they belong; return whether any moved."""
        used = lib.sn_step_queue_receive(self.c)
        self._check_memory()
        if used:
            self.stream.consumed(used)
        return bool(used)

    def send(self) -> None:
        """Hand the stream what may be sent."""
        while self.c.outgoing and (found := lib.sn_step_queue_send(self.c)):
            if found & lib.SN_QUEUE_WAKE:
                self.stream.wake()
            if not found & lib.SN_QUEUE_MEMORY:
                break
            self.stream.reserve()
        self._check_memory()

    def _check_memory(self) -> None:
        if self.c.no_memory:
            self.c.no_memory = False
            raise MemoryError("no memory for a block of a collective")

    @property
    def is_unfinished(self) -> bool:
        """Whether the steps need a stream that still takes or brings bytes."""
        return bool(lib.sn_step_queue_is_unfinished(self.c))

    def drop(self, now: float) -> None:
        """Forget all steps and reset the stream."""
        lib.sn_step_queue_clear(self.c)
        self.stream.abort(now)
        self.discard()

    def discard(self) -> None:
        """Drop the unread bytes."""
        lib.sn_receive_buffer_clear(self._received)
        self.stream.consumed(self.stream.unread)

    def close(self, now: float) -> None:
        """Close the stream, which nothing reads any more."""
        self.discard()
        self.stream.close(now)
        self.stream.attach(ffi.NULL, ffi.NULL)
