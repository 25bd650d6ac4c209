"""The steps of one stream to another rank: sends and receives, each strictly in order. C executes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from softnic._native import ffi, lib
from softnic.collectives.stream import PeerStream

Step: TypeAlias = Any
"""An `sn_step`."""


class PeerQueue:
    """The steps over one stream to rank `rank`, of the `sn_engine` at `engine`.

    Received bytes belong to the first receive, once the header that this rank sent for its operation matched.
    `combine` combines what C cannot: it is given the step and its bytes.
    """

    __slots__ = ("_combine", "_port", "c", "rank", "stream")

    def __init__(
        self, rank: int, stream: PeerStream, engine: Any, combine: Callable[[Step, memoryview], object]
    ) -> None:
        self.rank = rank
        self.stream = stream
        self._combine = combine
        self._port = stream.port
        self.c = ffi.new("sn_step_queue *", {"flow": stream.flow, "port": self._port, "engine": engine})
        self._port.steps = self.c
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
        """Move received bytes, which the port keeps, to where they belong; return whether any moved."""
        used = lib.sn_step_queue_receive(self.c)
        while (step := lib.sn_step_queue_python_step(self.c)) != ffi.NULL and (count := self._combine_next(step)):
            used += count + lib.sn_step_queue_receive(self.c)
        self._check_memory()
        if used:
            self.stream.consumed(used)
        return bool(used)

    def _combine_next(self, step: Step) -> int:
        """Have Python combine what is there for a step. Returns how many bytes."""
        size: int = min(self._port.kept, lib.sn_step_writable_end(step) - step.done)
        size -= size % step.item
        if size <= 0:
            return 0
        if lib.sn_step_release(step, step.done + size):
            raise MemoryError("no memory for a copy of zero-copy bytes")
        data = bytearray(size)
        lib.sn_port_read(self._port, ffi.from_buffer(data), size)
        self._combine(step, memoryview(data))
        return size

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
        self.stream.keep_received()
        lib.sn_port_clear(self._port)
        self.stream.consumed(self.stream.unread)

    def close(self, now: float) -> None:
        """Close the stream, which nothing reads any more."""
        self.discard()
        self.stream.close(now)
        self._port.steps = ffi.NULL
