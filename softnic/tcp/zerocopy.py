"""Zero-copy sends: bytes of a stream that stay in the writer's memory until they are acknowledged.

A send buffer is a sequence of runs: finished ones, each contiguous in its own memory, and behind them the bytes copied
into the buffer. No segment crosses from one run into another, because it is a view of one memory. Copied bytes that
zero-copy bytes follow become a run as well. The runs are kept in C (native/tcp/send_buffer.c).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from softnic._fields import Memory, SendBufferFields
from softnic._native import ffi, lib


def address_of(memory: Any) -> int:
    """Returns the address of contiguous memory. It is valid as long as the memory exists."""
    return int(ffi.cast("uintptr_t", ffi.from_buffer(memory)))


class ZeroCopyRuns(SendBufferFields):
    """Finished runs of a send buffer, whose memory it shares. Positions as in seq.py."""

    __slots__ = ("_c", "_lent")

    zerocopy_end: int
    """Position behind the last run, where the buffer's own bytes begin."""
    outstanding: int
    """Zero-copy bytes not acknowledged."""
    completed_bytes: int
    """Zero-copy bytes whose memory the writer may reuse."""
    copied_out: int
    """Of them, those that were copied before they were acknowledged."""
    runs_count: int

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self._c = ffi.cast("sn_send_buffer *", self.address)
        self._lent: deque[tuple[int, memoryview]] = deque()
        """Memory, which stays alive until `completed_bytes` is this. C's own sends have it kept by the engine."""
        self.zerocopy_end = 1

    def __bool__(self) -> bool:
        return self.runs_count > 0

    def send_zerocopy(self, memory: memoryview, offset: int, size: int) -> None:
        """Appends bytes of `memory` from `offset` on."""
        while self._lent and self._lent[0][0] <= self.completed_bytes:
            self._lent.popleft()
        data = ffi.from_buffer("uint8_t[]", memory) + offset
        if lib.sn_send_buffer_send_zerocopy(self._c, data, size, id(memory)):
            raise MemoryError("no memory for a zero-copy send")
        self._lent.append((self.completed_bytes + self.outstanding, memory))

    def view(self, start: int, end: int) -> memoryview:
        """The bytes of [start, end), which are in one run. Valid until the next call of any method of the stack."""
        run = lib.sn_send_buffer_run_at(self._c, start)
        if run == ffi.NULL:
            raise IndexError(f"byte {start} is in no run")
        return memoryview(ffi.buffer(run.data + (start - run.start), end - start))

    def copy_out(self, count: int | None = None) -> None:
        """Copies the first `count` outstanding bytes (None: all) or more, which frees the writer's memory."""
        if lib.sn_send_buffer_copy_out(self._c, self.outstanding if count is None else count):
            raise MemoryError("no memory for a copy of zero-copy bytes")

    def clear(self) -> None:
        lib.sn_send_buffer_clear_runs(self._c)
        self._lent.clear()
