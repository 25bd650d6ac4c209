"""What has come out of order, and what a SACK option says of it (RFC 2018, sections 3 and 4; RFC 2883).

Rules. Islands are runs of bytes without a gap, disjoint, in order, each of one or more payloads; all payloads together
are limited in number. What was taken is never given up again, so no block that was reported is taken back. An island
that something new falls into or touches is reported first, then those reported last, then nothing: a sender that has
heard each of them once knows them all. The first block reports what came a second time, once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque

MOST_BLOCKS = 4
"""As many as a SACK option without timestamps has room for."""


class Reassembly:
    """Positions as in seq.py."""

    __slots__ = ("_ends", "_left", "_payloads", "_recent", "repeated", "starts")

    def __init__(self, max_pieces: int) -> None:
        self._left = max_pieces
        """Payloads that may still be kept."""
        self.starts: list[int] = []
        """Where each island begins; empty: there is none."""
        self._ends: list[int] = []
        self._payloads: list[deque[memoryview]] = []
        """Of each island, adjoining."""
        self._recent: deque[int] = deque(maxlen=MOST_BLOCKS)
        """A position in each island to report, the latest last."""
        self.repeated: tuple[int, int] | None = None
        """What came again since the last report."""

    def keep(self, position: int, payload: memoryview) -> bool:
        """Takes a payload, not empty, that starts behind a gap. Returns False if there are too many already."""
        end = position + len(payload)
        first = bisect_left(self._ends, position)  # of the islands it touches, the last of which may reach behind it
        after = bisect_right(self.starts, end)
        if first < after and self.starts[first] <= position and self._ends[first] >= end:
            self.repeated = (position, end)
            self._note(position)
            return True
        if not self._left:
            return False
        payloads: deque[memoryview] = deque()
        start = position
        if first < after and self.starts[first] <= position:  # goes on where this one ends, or before that
            start, payloads = self.starts[first], self._payloads[first]
            payload = payload[self._ends[first] - position :]
            first_inside = first + 1
        else:
            first_inside = first
        behind: deque[memoryview] = deque()
        last = after - 1
        if last >= first_inside and self._ends[last] > end:
            behind = self._payloads[last]
            payload = payload[: len(payload) - (end - self.starts[last])]
            end = self._ends[last]
            last -= 1
        self._left += sum(map(len, self._payloads[first_inside : last + 1])) - 1  # covered wholly: these go
        payloads.append(bytes_alone(payload))
        payloads += behind
        self.starts[first:after] = [start]
        self._ends[first:after] = [end]
        self._payloads[first:after] = [payloads]
        self._note(position)
        return True

    def _note(self, position: int) -> None:
        if not self._recent or self._recent[-1] != position:
            self._recent.append(position)

    def next(self, position: int) -> memoryview | None:
        """Takes out what follows on `position`, up to where everything has come; None: nothing does."""
        while self.starts and self.starts[0] <= position:
            payloads = self._payloads[0]
            if not payloads:
                del self.starts[0], self._ends[0], self._payloads[0]
                continue
            payload = payloads.popleft()
            self._left += 1
            start = self.starts[0]
            self.starts[0] += len(payload)
            if self.starts[0] > position:
                return payload[position - start :]
        return None

    def report(self) -> list[tuple[int, int]]:
        """The blocks to report now, the most important first. What came again is reported by this, and only once."""
        blocks: list[tuple[int, int]] = []
        for position in reversed(self._recent):
            index = bisect_right(self.starts, position) - 1
            if index >= 0 and position < self._ends[index]:
                block = (self.starts[index], self._ends[index])
                if block not in blocks:
                    blocks.append(block)
        if self.repeated is not None:
            blocks.insert(0, self.repeated)
            self.repeated = None
        return blocks

    def pieces(self) -> list[tuple[int, memoryview]]:
        """What waits, and where each begins."""
        found = []
        for start, payloads in zip(self.starts, self._payloads, strict=True):
            for payload in payloads:
                found.append((start, payload))
                start += len(payload)
        return found

    def clear(self) -> None:
        """Nothing will complete it any more."""
        self.starts.clear()
        self._ends.clear()
        self._payloads.clear()
        self._recent.clear()


def bytes_alone(payload: memoryview) -> memoryview:
    """The payload, copied where it keeps much more memory alive than its own."""
    base = payload.obj
    owned: int = base.nbytes if hasattr(base, "nbytes") else len(base)  # type: ignore[arg-type]
    if 4 * len(payload) < owned:
        return memoryview(bytes(payload))
    return payload
