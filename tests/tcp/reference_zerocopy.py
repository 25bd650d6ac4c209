"""Zero-copy runs in Python: the reference of native/tcp/send_buffer.c."""

from __future__ import annotations

from collections import deque


class ReferenceRun:
    """Bytes [start, end) of the stream, from `offset` of `memory` on."""

    __slots__ = ("end", "external", "memory", "offset", "start")

    def __init__(self, start: int, end: int, memory: memoryview, offset: int, external: bool) -> None:
        self.start = start
        self.end = end
        self.memory = memory
        self.offset = offset
        self.external = external

    def view(self, start: int, end: int) -> memoryview:
        first = self.offset + start - self.start
        return self.memory[first : first + end - start]


class ReferenceRuns:
    """Finished runs of a send buffer. Positions as in seq.py."""

    __slots__ = ("_runs", "completed_bytes", "end", "outstanding")

    def __init__(self) -> None:
        self._runs: deque[ReferenceRun] = deque()
        self.end = 1
        """Position behind the last run, where the buffer's own bytes begin."""
        self.outstanding = 0
        """Zero-copy bytes not acknowledged."""
        self.completed_bytes = 0
        """Zero-copy bytes whose memory the writer may reuse."""

    def __bool__(self) -> bool:
        return bool(self._runs)

    def keep(self, start: int, data: memoryview) -> None:
        """Keeps a copy of the buffer's own bytes that zero-copy bytes follow."""
        if data:
            self._add(ReferenceRun(start, start + len(data), memoryview(bytes(data)), 0, False))

    def send_zerocopy(self, start: int, memory: memoryview, offset: int, size: int) -> None:
        last = self._runs[-1] if self._runs else None
        self.outstanding += size
        if (
            last is not None
            and last.external
            and last.end == start
            and last.memory is memory
            and last.offset + last.end - last.start == offset
        ):
            last.end = self.end = start + size
        else:
            self._add(ReferenceRun(start, start + size, memory, offset, True))

    def _add(self, run: ReferenceRun) -> None:
        self._runs.append(run)
        self.end = run.end

    def at(self, position: int) -> ReferenceRun:
        """Returns the run with this byte, which must be before `end`."""
        for run in self._runs:
            if position < run.end:
                return run
        raise IndexError(f"byte {position} is in no run")

    def release(self, position: int) -> None:
        """Releases everything before `position`, which is acknowledged."""
        runs = self._runs
        while runs and runs[0].start < position:
            run = runs[0]
            upto = min(position, run.end)
            if run.external:
                self.outstanding -= upto - run.start
                self.completed_bytes += upto - run.start
            if upto == run.end:
                runs.popleft()
            else:
                run.offset += upto - run.start
                run.start = upto

    def copy_out(self, count: int | None = None) -> None:
        """Copies the first `count` outstanding bytes (None: all) or more, which frees the writer's memory."""
        left = self.outstanding if count is None else count
        for run in self._runs:
            if left <= 0:
                return
            if run.external:
                size = run.end - run.start
                run.memory = memoryview(bytes(run.view(run.start, run.end)))
                run.offset = 0
                run.external = False
                self.completed_bytes += size
                self.outstanding -= size
                left -= size

    def clear(self) -> None:
        self._runs.clear()
        self.outstanding = 0
