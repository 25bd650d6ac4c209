"""Zero-copy sends: bytes of a stream that stay in the writer's memory until they are acknowledged.

A send buffer is a sequence of runs: finished ones here, each contiguous in its own memory, and behind them the bytes
copied into the buffer. No segment crosses from one run into another, because it is a view of one memory. Copied bytes
that zero-copy bytes follow are kept here too.
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

from softnic._flow import Memory, SendBufferFields
from softnic._native import ffi, lib

SendRun: TypeAlias = Any
"""An `sn_send_run`: bytes [start, end) of the stream at `data`, in the writer's memory if `external`."""


def address_of(memory: Any) -> int:
    """Returns the address of contiguous memory. It is valid as long as the memory exists."""
    return int(ffi.cast("uintptr_t", ffi.from_buffer(memory)))


def _pointer(address: int) -> Any:
    return ffi.cast("uint8_t *", address)


class ZeroCopyRuns(SendBufferFields):
    """Finished runs of a send buffer, whose memory it shares. Positions as in seq.py."""

    __slots__ = ("_c", "_dropped", "_kept")

    zerocopy_end: int
    """Position behind the last run, where the buffer's own bytes begin."""
    outstanding: int
    """Zero-copy bytes not acknowledged."""
    completed_bytes: int
    """Zero-copy bytes whose memory the writer may reuse."""
    runs_count: int
    runs_finished: int
    """Runs that were released."""

    def __init__(self, *, memory: Memory | None = None) -> None:
        del memory
        self._c = ffi.cast("sn_send_buffer *", self.address)
        self._kept: deque[tuple[Any, int]] = deque()
        """Of each run, its memory, which stays alive, and its address."""
        self._dropped = 0
        """Runs removed from `_kept`."""
        self.zerocopy_end = 1

    def __bool__(self) -> bool:
        return self.runs_count > 0

    def keep(self, start: int, data: memoryview) -> None:
        """Keeps a copy of the buffer's own bytes that zero-copy bytes follow."""
        if data:
            copied = bytes(data)
            self._add(start, copied, 0, len(copied), False)

    def send_zerocopy(self, start: int, memory: memoryview, offset: int, size: int) -> None:
        self._add(start, memory, offset, size, True)

    def _add(self, start: int, memory: Any, offset: int, size: int, external: bool) -> None:
        self.drop_finished()
        kept = self._kept
        base = kept[-1][1] if kept and kept[-1][0] is memory else address_of(memory)
        joins = external and self._continues(start, memory, base + offset)
        if lib.sn_send_buffer_add_run(self._c, start, _pointer(base + offset), size, external, joins):
            raise MemoryError("no memory for a zero-copy send")
        if not joins:
            kept.append((memory, base))

    def _continues(self, start: int, memory: Any, address: int) -> bool:
        """Whether bytes continue the last run, in the same memory."""
        if not self._kept or self._kept[-1][0] is not memory or self.zerocopy_end != start:
            return False
        last = self.at(start - 1)
        return bool(last.external and last.data + (last.end - last.start) == _pointer(address))

    def at(self, position: int) -> SendRun:
        """Returns the run with this byte, which must be before `zerocopy_end`."""
        run = lib.sn_send_buffer_run_at(self._c, position)
        if run == ffi.NULL:
            raise IndexError(f"byte {position} is in no run")
        return run

    def view(self, start: int, end: int) -> memoryview:
        """The bytes of [start, end), which are in one run."""
        self.drop_finished()
        run = self.at(start)
        memory, base = self._kept[run - (self._c.runs + self._c.runs_first)]
        first = int(run.data - _pointer(base)) + start - run.start
        return memoryview(memory)[first : first + end - start]

    def drop_finished(self) -> None:
        """Drops the memory of released runs."""
        while self._dropped < self.runs_finished:
            self._dropped += 1
            self._kept.popleft()

    def bytes_before(self, position: int) -> int:
        """Returns the number of outstanding zero-copy bytes before a position."""
        found = 0
        first = self._c.runs + self._c.runs_first
        for index in range(self.runs_count):
            run = first + index
            if run.start >= position:
                break
            if run.external:
                found += min(position, run.end) - run.start
        return found

    def copy_out(self, count: int | None = None) -> None:
        """Copies the first `count` outstanding bytes (None: all) or more, which frees the writer's memory."""
        self.drop_finished()
        left = self.outstanding if count is None else count
        first = self._c.runs + self._c.runs_first
        for index in range(self.runs_count):
            run = first + index
            if left <= 0:
                return
            if run.external:
                size = run.end - run.start
                copied = ffi.buffer(run.data, size)[:]
                base = address_of(copied)
                self._kept[index] = copied, base
                run.data, run.external = _pointer(base), False
                self.completed_bytes += size
                self.outstanding -= size
                left -= size

    def clear(self) -> None:
        lib.sn_send_buffer_clear_runs(self._c)
        self.drop_finished()
