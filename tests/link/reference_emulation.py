"""Emulated links in Python: the reference of native/nic/emulated_link.c."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from softnic.link.base import Link
from softnic.link.emulation import EmulationCounters
from softnic.link.emulation_spec import EmulationSpec
from softnic.packet.frames import Frames

QUEUE_S = (2e-3, 8e-3)
"""Bounds of the queue's length if no limit is set, as time at the link's rate: as long as QUEUE_BYTES take, within
these. A queue shorter than the pauses of a busy machine would leave the line idle."""

QUEUE_BYTES = 10**6

MIN_QUEUE_FRAMES = 16
"""Minimum of that queue, in full frames."""

UNRATED_LIMIT_BYTES = 16 * 2**20
"""Limit of frames in flight on a link without a rate, if no limit is set."""

BURST = 1 / 2
"""Share of the queue's drain time that leaves as one burst."""

AHEAD, AHEAD_S = 10.0, 1e-3
"""Limits of how early a frame may leave: a multiple of `coalesce_s`, and seconds."""

TOGETHER = 1 / 5
"""Share of `coalesce_s` that always leaves at once, as no timer is more precise in practice."""

LEAST_SPACE = 1 / 16
"""Share of the limit below which free space counts as none: a smaller burst is not worth waking the sender."""

UNRATED_FRAME_S = 10e-6
"""Frame time assumed for reordering on a link without a rate."""

MAX_LATE_FRAMES = 8

_Times = npt.NDArray[np.float64]
_ONE_SELECTED = np.ones(1, np.bool_)


@dataclass(slots=True)
class ReferenceBusyPeriod:
    """A busy period: time in which the bottleneck sends without a pause."""

    ends_at: float = -math.inf
    """When its last frame is due."""


class ReferenceEmulatedLink:
    """An emulated link; arguments as of `EmulatedLink`."""

    def __init__(self, inner: Link, spec: EmulationSpec, *, seed: int) -> None:
        self._inner = inner
        self._spec = spec
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._byte_s = 8 / spec.rate_bps if spec.rate_bps else 0.0
        timed = spec.rate_bps or spec.delay_s or spec.jitter_s
        self._coalesce_s = spec.coalesce_s if timed else 0.0
        self._full_frame = inner.mtu + 14
        self._limit = spec.limit_bytes or self._default_limit()
        if self._limit < 4 * self._full_frame:
            raise ValueError(f"limit_bytes must be at least 4 frames of {self._full_frame} bytes, not {self._limit}")
        self._high = self._limit * 7 // 8
        self._low = self._limit // 2
        self._least_space = max(self._full_frame, int(self._limit * LEAST_SPACE))
        self._blocked = False
        self._free_at = -math.inf
        """When the bottleneck will have sent all its frames."""
        self._last_due = -math.inf
        moderation_s = self._coalesce_s if spec.rate_bps else 0.0
        self._together_s, self._ahead_s = TOGETHER * moderation_s, min(AHEAD * moderation_s, AHEAD_S)
        self._moderated_until = -math.inf
        self._line: deque[tuple[Frames, _Times, float, ReferenceBusyPeriod]] = deque()
        """Batches in flight, in order of time: the frames, their due times, the earliest time that any may leave (the
        end of their delay), and their busy period."""
        self._busy = ReferenceBusyPeriod()
        self._late: list[tuple[float, int, Frames]] = []
        """A heap of late frames, one by one, with a number that keeps the order of equal times."""
        self._late_frames = 0
        self._held_bytes = 0
        """Bytes in flight on a link without a rate, which has no bottleneck queue: the limit applies to them."""
        self.counted = EmulationCounters()

    def _default_limit(self) -> int:
        if self._spec.rate_bps is None:
            return UNRATED_LIMIT_BYTES
        rate = self._spec.rate_bps / 8
        queue_s = min(max(QUEUE_BYTES / rate, QUEUE_S[0]), QUEUE_S[1])
        return max(int(rate * queue_s), MIN_QUEUE_FRAMES * self._full_frame)

    @property
    def mtu(self) -> int:
        return self._inner.mtu

    def send(self, frames: Frames, now: float) -> None:
        tx_space = self._limit - self._occupied(now)
        if frames.nbytes > tx_space:
            accepted = int(np.cumsum(frames.lengths, dtype=np.int64).searchsorted(tx_space, "right"))
            self.counted.dropped_full += len(frames) - accepted
            frames = frames.select(slice(accepted))
        if not len(frames):
            return
        self.counted.sent += len(frames)
        self._enter(frames, now)
        self._release(now)

    def _occupied(self, now: float) -> int:
        """Return the bytes of the limit in use."""
        if self._byte_s:
            return round(max(0.0, self._free_at - now) / self._byte_s)
        return self._held_bytes

    def _due(self, frames: Frames, now: float) -> tuple[_Times, float]:
        """Return when the frames of a batch arrive at the far end, and the earliest that any may."""
        delay_s = self._spec.delay_s
        if self._spec.jitter_s:
            delay_s = max(0.0, delay_s + self._random.uniform(-1, 1) * self._spec.jitter_s)
        due: _Times = np.empty(len(frames))
        if self._free_at < now:
            self._busy = ReferenceBusyPeriod()
        start, passed = max(self._free_at, now), 0
        for index, length in enumerate(frames.lengths.tolist()):
            passed += length
            self._free_at = passed * self._byte_s + start
            due[index] = self._free_at + delay_s
        if self._spec.jitter_s:
            np.maximum(due, self._last_due, out=due)
            self._last_due = float(due[-1])
        self._busy.ends_at = self._free_at + self._spec.delay_s
        return due, now + delay_s

    def _enter(self, frames: Frames, now: float) -> None:
        """Decide what happens to each frame and schedule it."""
        due, earliest = self._due(frames, now)
        lost = self._select(self._spec.loss, len(frames))
        if lost is not None:
            self.counted.lost += int(lost.sum())
            frames, due = frames.select(~lost), due[~lost]
        doubled = self._select(self._spec.duplicate, len(frames))
        if doubled is not None:
            self.counted.duplicated += int(doubled.sum())
            twice = np.repeat(np.arange(len(frames)), 1 + doubled)
            frames, due = frames.select(twice), due[twice]
        if self._spec.reorder:
            frames, due = self._reordered(frames, due)
        for part, part_due in self._corrupt_some(frames, due):
            self._line.append((part, part_due, earliest, self._busy))

    def _select(self, probability: float, count: int) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the frames selected with this probability; None (the usual case) if there are none."""
        if not probability:
            return None
        if count == 1:
            return _ONE_SELECTED if self._random.random() < probability else None
        chosen = self._random.random(count) < probability
        return chosen if chosen.any() else None

    def _reordered(self, frames: Frames, due: _Times) -> tuple[Frames, _Times]:
        """Return the batch with some frames delayed. Frames later than all others go to the heap: the next batch may
        overtake them."""
        chosen = self._select(self._spec.reorder, len(due))
        if chosen is None:
            return frames, due
        late = chosen.nonzero()[0]
        self.counted.reordered += len(late)
        last = due[-1]
        late_by = self._random.integers(1, MAX_LATE_FRAMES + 1, len(late))
        due[late] += late_by * (frames.lengths[late] * self._byte_s if self._byte_s else UNRATED_FRAME_S)
        order = due.argsort(kind="stable")
        frames, due = frames.select(order), due[order]
        on_time = int(due.searchsorted(last, "right"))
        for later, later_due in self._corrupt_some(frames.select(slice(on_time, None)), due[on_time:]):
            for index, frame_due in enumerate(later_due.tolist()):
                self._late_frames += 1
                one = later.select(slice(index, index + 1))
                heapq.heappush(self._late, (frame_due, self._late_frames, one))
        return frames.select(slice(on_time)), due[:on_time]

    def _corrupt_some(self, frames: Frames, due: _Times) -> Iterator[tuple[Frames, _Times]]:
        """Split a batch around frames with a flipped bit. Each of those becomes a batch of its own: the bit may be in
        the destination MAC, and a batch has only one."""
        if not len(due):
            return
        if not self._byte_s:
            self._held_bytes += frames.nbytes
        done = 0
        if self._spec.corrupt:
            for odd in np.flatnonzero(self._random.random(len(due)) < self._spec.corrupt).tolist():
                if odd > done:
                    yield frames.select(slice(done, odd)), due[done:odd]
                done = odd + 1
                yield self._corrupted(frames.select(slice(odd, done))), due[odd:done]
        if done:
            frames, due = frames.select(slice(done, None)), due[done:]
        if len(due):
            yield frames, due

    def _corrupted(self, frame: Frames) -> Frames:
        """Return a copy with one bit flipped."""
        data = bytearray(frame[0])
        if data:
            bit = int(self._random.integers(len(data) * 8))
            data[bit // 8] ^= 1 << bit % 8
            self.counted.corrupted += 1
        return Frames.of([bytes(data)], frame.packet_id)

    def receive(self, now: float) -> Frames | None:
        return self._inner.receive(now)

    def advance(self, now: float) -> None:
        self._release(now)
        self._inner.advance(now)
        if self._blocked and self._drained(now):
            self._blocked = False

    def _release(self, now: float) -> None:
        """Send the frames that are due, or soon will be, in order of time, unless frames have just left."""
        if now < self._moderated_until:
            return
        first = self._first_due()
        if first is None or first > now + self._together_s:
            return
        self._moderated_until = now + self._coalesce_s
        while self._late and self._late[0][0] <= now:
            self._release_line(self._late[0][0], now)
            self._pass_on(heapq.heappop(self._late)[2], now)
        until = now + self._early(now)
        self._release_line(min(until, self._late[0][0]) if self._late else until, now)

    def _early(self, now: float) -> float:
        """Return how early frames may leave. The backlog of an earlier busy period does not count."""
        backlog_s = self._line[0][3].ends_at - now if self._line else 0.0
        return min(self._ahead_s, max(self._together_s, BURST * backlog_s))

    def _release_line(self, until: float, now: float) -> None:
        while self._line:
            frames, due, earliest, busy = self._line[0]
            if earliest > now:
                return
            count = int(due.searchsorted(until, "right"))
            if count == len(due):
                self._line.popleft()
                self._pass_on(frames, now)
                continue
            if count:
                self._line[0] = (frames.select(slice(count, None)), due[count:], earliest, busy)
                self._pass_on(frames.select(slice(count)), now)
            return

    def _pass_on(self, frames: Frames, now: float) -> None:
        if not self._byte_s:
            self._held_bytes -= frames.nbytes
        self._inner.send(frames, now)

    @property
    def in_transit(self) -> bool:
        """Return whether any frame is in flight."""
        return bool(self._line or self._late)

    def _first_due(self) -> float | None:
        first = float(self._line[0][1][0]) if self._line else None
        if self._late and (first is None or self._late[0][0] < first):
            return self._late[0][0]
        return first

    def next_time(self) -> float | None:
        times: list[float] = []
        if (first := self._first_due()) is not None:
            times.append(max(first, self._moderated_until))
        if self._blocked and self._byte_s:
            times.append(self._resume_at())
        if (inner := self._inner.next_time()) is not None:
            times.append(inner)
        return min(times, default=None)

    def _resume_at(self) -> float:
        """Return when the bottleneck's queue will be short enough to let the sender continue."""
        return self._free_at - self._low * self._byte_s

    def _drained(self, now: float) -> bool:
        return now >= self._resume_at() if self._byte_s else self._held_bytes <= self._low

    def tx_space(self, now: float) -> int:
        if self._blocked and not self._drained(now):
            return 0
        tx_space = self._high - self._occupied(now)
        self._blocked = tx_space < self._least_space
        return 0 if self._blocked else min(tx_space, self._inner.tx_space(now))

    def counters(self) -> dict[str, int]:
        own = {f"emulated_{name}": value for name, value in asdict(self.counted).items()}
        return {**own, **self._inner.counters()}

    def close(self) -> None:
        self._line.clear()
        self._late.clear()
        self._held_bytes = 0
        self._inner.close()
