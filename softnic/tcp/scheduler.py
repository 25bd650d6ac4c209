"""Whose turn it is to send, and whose timers are due, among the flows of one node (native/tcp/schedule.h)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softnic._native import ffi, lib
from softnic.tcp.flow import NEVER, Flow

_LOOPBACK_BYTES: int = lib.SN_LOOPBACK_BYTES
"""Of frames that one flow to the node itself sends in one turn."""


class Scheduler:
    """`ip` is the node's address: flows to it have a ring of their own, because they wait for no link.

    `output(flow, now, frames)` sends what is most urgent for a flow and returns the wire bytes, as output.py's.
    """

    def __init__(self, ip: int, output: Callable[[Flow, float, int], int]) -> None:
        self.c = ffi.gc(ffi.new("sn_schedule *", {"ip": ip}), lib.sn_schedule_clear)
        self._by_address: dict[int, Flow] = {}
        self._output = output
        self._ready, self._loopback = ffi.addressof(self.c, "ready"), ffi.addressof(self.c, "loopback")

    def add(self, flow: Flow) -> None:
        """Adds a flow. Raises MemoryError."""
        if lib.sn_schedule_add(self.c, flow.c):
            raise MemoryError
        self._by_address[flow.memory.address] = flow

    def remove(self, flow: Flow) -> None:
        """Removes a flow that has ended."""
        lib.sn_schedule_remove(self.c, flow.c)
        self._by_address.pop(flow.memory.address, None)

    def flow_at(self, c: Any) -> Flow:
        """Returns the flow of an `sn_flow`."""
        return self._by_address[int(ffi.cast("uintptr_t", c))]

    # Sending

    def wake(self, flow: Flow) -> None:
        """Queues a flow that may have something to send."""
        lib.sn_schedule_wake(self.c, flow.c)

    @property
    def wants_output(self) -> bool:
        return bool(self.c.ready.first)

    @property
    def wants_output_loopback(self) -> bool:
        return bool(self.c.loopback.first)

    def output(self, now: float, tx_space: int) -> int:
        """Lets flows send by turns up to about `tx_space` bytes of frames. Returns the wire bytes."""
        left = tx_space
        while left > 0 and (flow := self.c.ready.first):
            left -= self._serve(self._ready, self.flow_at(flow), left, now)
        return tx_space - left

    def output_loopback(self, now: float) -> None:
        """Lets each flow to the node itself send one super-segment."""
        for _ in range(lib.sn_ready_count(self._loopback)):
            if flow := self.c.loopback.first:
                self._serve(self._loopback, self.flow_at(flow), _LOOPBACK_BYTES, now)

    def serve_first(self, ring: Any, tx_space: int, now: float) -> int:
        """Lets the first flow of an `sn_ready_ring` send. Returns the wire bytes."""
        return self._serve(ring, self.flow_at(ring.first), tx_space, now)

    def _serve(self, ring: Any, flow: Flow, tx_space: int, now: float) -> int:
        frames: int = lib.sn_schedule_frames(ring, tx_space)
        sent = self._output(flow, now, frames)  # which may end the flow; its memory lives as long as `flow` does
        lib.sn_schedule_sent(self.c, ring, flow.c, sent)
        return sent

    # Timers

    def schedule(self, flow: Flow) -> None:
        """Ensures that `due` returns the flow by its earliest deadline.

        A deadline that was postponed is rechecked when it expires.
        """
        lib.sn_schedule_timers(self.c, flow.c)

    def due(self, now: float) -> Flow | None:
        """Returns the next flow with timers that are due; pacing and delayed acknowledgements are done already."""
        c = lib.sn_schedule_run(self.c, now)
        return self.flow_at(c) if c else None

    def take(self, flow: Flow) -> None:
        """Takes a flow out of those with timers, until it is `schedule`d again."""
        lib.sn_schedule_take(self.c, flow.c)

    def next_time(self) -> float | None:
        """When `due` is to be called next; may be early, never late."""
        at: float = lib.sn_schedule_next(self.c)
        return None if at == NEVER else at
