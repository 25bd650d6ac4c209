"""The operations in progress on one rank, whose steps C executes (native/collectives/engine.h)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from softnic._native import ffi, lib
from softnic.collectives.header_queue import HeaderQueue
from softnic.collectives.peer_queue import PeerQueue
from softnic.collectives.steps import EngineOp
from softnic.collectives.stream import PeerStream


class StepEngine:
    """Operations, and the queues to other ranks in the order in which they are served."""

    def __init__(self) -> None:
        self.c = ffi.new("sn_engine *")
        """The same for the turn."""
        self.active: dict[int, EngineOp] = {}
        """Operations by number."""
        self.move_in_c: Callable[[Any], bool] = lambda _engine: True
        """Moves headers and blocks of an `sn_engine` whose streams C serves; returns whether Python has to go on."""
        self._receive_order: Sequence[PeerQueue] = ()
        self._send_order: Sequence[PeerQueue] = ()
        self._orders: tuple[Any, ...] = ()

    def queue(self, rank: int, stream: PeerStream) -> PeerQueue:
        """Return a queue for the steps over a stream."""
        return PeerQueue(rank, stream, self.c)

    def headers(self, stream: PeerStream, queue: PeerQueue, size: int) -> HeaderQueue:
        """Return what reads headers from a stream; their blocks are those of `queue`. `size`: number of ranks."""
        return HeaderQueue(stream, queue, self.c, size)

    def set_order(
        self, headers: Sequence[HeaderQueue], receive: Sequence[PeerQueue], send: Sequence[PeerQueue]
    ) -> None:
        """Serve these queues from now on; `receive` and `send` are the same in another order."""
        self._receive_order, self._send_order = receive, send
        self._orders = (
            ffi.new("sn_header_queue *[]", [queue.c for queue in headers]),
            *(ffi.new("sn_step_queue *[]", [queue.c for queue in order]) for order in (receive, send)),
        )
        self.c.headers, self.c.receive_order, self.c.send_order = self._orders
        self.c.header_count, self.c.queue_count = len(headers), len(send)

    def add(self, op: EngineOp) -> None:
        """Add an operation."""
        self.active[op.number] = op
        self.c.is_active = True

    def count_done(self, op: EngineOp) -> None:
        """Count a step or a header of an operation as done."""
        lib.sn_engine_count_done(self.c, op.c)

    def move(self) -> Iterator[int]:
        """Move all blocks as far as that is possible now. Yields the operations that are complete."""
        if self.move_in_c(self.c):
            self._move()
        while number := lib.sn_engine_take_completed(self.c):
            del self.active[number]
            yield number
        self.c.is_active = bool(self.active)

    def _move(self) -> None:
        moved = True
        while moved:  # bytes of one stream may be what a step of another waits for
            moved = False
            for queue in self._receive_order:
                if queue.is_waiting and queue.receive():
                    moved = True
        for queue in self._send_order:
            queue.send()

    def look_at_rate(self, now: float) -> None:
        """Measure the rate of this rank's link; for engines whose streams C does not serve."""
        lib.sn_engine_look_at_rate(self.c, now)

    def take_rate(self) -> float:
        """Return the rate measured since the last call, in wire bytes per second; 0: none was."""
        rate, self.c.meter.rate = float(self.c.meter.rate), 0.0
        return rate

    def clear(self) -> None:
        """Forget all operations: the queues have been dropped."""
        self.active.clear()
        self.c.is_active = False
