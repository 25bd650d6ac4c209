"""Emulates a bad link around another one, on egress: rate, delay, jitter, loss, duplication, reordering, corruption.

A frame passes, in this order:

1. the bottleneck's queue, `limit_bytes` long, with tail drop;
2. the bottleneck, which serializes frames at `rate_bps` (Ethernet bytes as in `Frames`: no preamble, FCS or gap);
3. the path behind it, where it may be lost, duplicated or have one bit flipped, and takes `delay_s` +- `jitter_s`.
   Jitter is drawn once a batch, because what delays a frame delays its neighbours, and never reorders: a frame waits
   for those before it. Reordering is a parameter of its own: a reordered frame comes 1 to 8 frame times late, and later
   ones overtake it.

Frames in flight lie in a ring (native/nic/emulated_link.h), which also computes their times. What is random is decided
on whole batches (native/nic/emulated_chance.h), by a generator that the seed fixes, before frames enter the ring. They
leave it straight to the kernel if the inner link allows it. A turn in C uses the ring without this file.

Frames leave in bursts, because each wake-up of a process costs more than a frame. A burst includes the frames due
within `BURST` of the queue's drain time, at most `AHEAD` times `coalesce_s` and at most `AHEAD_S`. This is a token
bucket (as tc-tbf's, whose burst is at the front of a message instead): a frame in the middle of a long queue may come
early by that much; the last one of the queue, a single frame, and what follows a pause of the bottleneck are on time;
over the long run the rate is exact. No frame leaves before its `delay_s` is over. With `coalesce_s` = 0 every frame
leaves exactly when it is due.

If the owner's timer is coarse, frames leave late, but the bottleneck's own time goes on, so the rate holds as long as
the queue does not run empty. Therefore `tx_space` falls to 0 at 13/16 of the limit and recovers when the queue is down
to 1/2: a sender is woken rarely, for a large burst, and before the link would be idle. The last 1/8 is for senders
without flow control (ARP, acknowledgements).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from softnic._native import ffi, lib
from softnic.link.base import DirectLink, Link
from softnic.link.emulation_spec import EmulationSpec
from softnic.packet.frames import HEADROOM, Frames

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

MOST_LIMIT_BYTES = 2**62
"""Longest queue that C can count."""


@dataclass(slots=True)
class EmulationCounters:
    """Frames. `sent` entered the bottleneck; those of them not in `lost` arrive."""

    sent: int = 0
    dropped_full: int = 0
    """Arrived at a full queue, or there was no memory for a longer one."""
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: int = 0


class SharedBottleneck:
    """What the links of the `queues` of one NIC share, each in its own thread: the time until which it is taken."""

    def __init__(self, queues: int) -> None:
        self.queues = queues
        self.free_at = ffi.new("double *", -math.inf)


class EmulatedLink:
    """A link that degrades the frames sent through `inner` as `spec` says. It copies what it sends.

    The same seed and calls give the same result for each frame.

    Parameters
    ----------
    inner : Link
        The link to send through; what it receives is passed on unchanged.
    spec : EmulationSpec
        The properties to emulate.
    seed : int
        Seed of the random numbers.
    shared : SharedBottleneck, optional
        A bottleneck that the links of other queues of the same NIC pass, too. Each has its part of the queue's length.

    Raises
    ------
    ValueError
        If `limit_bytes` is less than four full frames.
    """

    def __init__(self, inner: Link, spec: EmulationSpec, *, seed: int, shared: SharedBottleneck | None = None) -> None:
        self._inner = inner
        self.mtu = inner.mtu
        self._direct = inner if isinstance(inner, DirectLink) else None
        full_frame = inner.mtu + 14
        limit = spec.limit_bytes or _default_limit(spec.rate_bps, full_frame)
        if limit < 4 * full_frame:
            raise ValueError(f"limit_bytes must be at least 4 frames of {full_frame} bytes, not {limit}")
        if shared is not None:
            limit = max(limit // shared.queues, MIN_QUEUE_FRAMES * full_frame)
        self._c = _new_ring(spec, min(limit, MOST_LIMIT_BYTES), full_frame)
        self._shared = shared
        if shared is not None and lib.sn_emulated_share(self._c, shared.free_at):
            raise MemoryError
        _set_chance(self._c.chance, spec, seed)

    @property
    def counted(self) -> EmulationCounters:
        c, chance = self._c, self._c.chance
        by_chance = (chance.lost, chance.duplicated, chance.reordered, chance.corrupted)
        return EmulationCounters(c.sent, c.dropped_full, *by_chance)

    def send(self, frames: Frames, now: float) -> None:
        if lib.sn_emulated_send(self._c, *frames.arrays, len(frames), frames.packet_id, now):
            self._release(now)

    def receive(self, now: float) -> Frames | None:
        return self._inner.receive(now)

    def advance(self, now: float) -> None:
        self._release(now)
        self._inner.advance(now)
        lib.sn_emulated_unblock(self._c, now)

    def _release(self, now: float) -> None:
        """Send the frames that are due, or soon will be, in order of time, unless frames have just left."""
        if lib.sn_emulated_begins_burst(self._c, now):
            self.release_burst(now)

    def release_burst(self, now: float) -> None:
        """Send what is left of a burst that has begun."""
        across = self._direct is not None
        while count := lib.sn_emulated_burst(self._c, now, across):
            if across:
                if self._push(count):
                    continue
                count = lib.sn_emulated_burst(self._c, now, False)
            self._inner.send(self._take(count), now)

    def _push(self, count: int) -> bool:
        """Pass a burst from the ring to the kernel. Return False if the inner link has to send what is left of it."""
        direct = self._direct
        assert direct is not None
        path = direct.direct_path(bytes(self._c.destination))
        if path is None:
            return False
        accepted: int = lib.sn_emulated_push(self._c, count, *path)
        if accepted > 0:
            direct.on_direct_sent(accepted, self._c.burst_bytes)
        return accepted == count

    def _take(self, count: int) -> Frames:
        """Take the first frames out of the ring."""
        size = self._c.burst_bytes
        data = np.empty(size + count * HEADROOM, np.uint8)
        frames = Frames(data, np.empty(count, np.uint32), np.empty(count, np.uint32), self._c.packet_id, size)
        lib.sn_emulated_take(self._c, count, *frames.arrays)
        return frames

    @property
    def ring(self) -> Any:
        """The `sn_emulated_link`, whose C does all that this link does."""
        return self._c

    @property
    def queued_bytes(self) -> int:
        """Bytes in flight."""
        return int(self._c.held_bytes)

    @property
    def in_transit(self) -> bool:
        """Return whether any frame is in flight."""
        return bool(self._c.first != self._c.end or self._c.late_count)

    def next_time(self) -> float | None:
        own: float = lib.sn_emulated_next_time(self._c)
        inner = self._inner.next_time()
        if inner is not None and inner < own:
            return inner
        return None if own == math.inf else own

    def tx_space(self, now: float) -> int:
        own: int = lib.sn_emulated_tx_space(self._c, now)
        return min(own, self._inner.tx_space(now)) if own else 0

    def counters(self) -> dict[str, int]:
        own = {f"emulated_{name}": value for name, value in asdict(self.counted).items()}
        return {**own, **self._inner.counters()}

    def close(self) -> None:
        lib.sn_emulated_clear(self._c)
        self._inner.close()


def _default_limit(rate_bps: float | None, full_frame: int) -> int:
    if rate_bps is None:
        return UNRATED_LIMIT_BYTES
    rate = rate_bps / 8
    queue_s = min(max(QUEUE_BYTES / rate, QUEUE_S[0]), QUEUE_S[1])
    return max(int(rate * queue_s), MIN_QUEUE_FRAMES * full_frame)


def _new_ring(spec: EmulationSpec, limit: int, full_frame: int) -> Any:
    """Return an empty `sn_emulated_link` with these properties."""
    c = lib.sn_emulated_new()
    if not c:
        raise MemoryError
    coalesce_s = spec.coalesce_s if spec.rate_bps or spec.delay_s or spec.jitter_s else 0.0
    moderation_s = coalesce_s if spec.rate_bps else 0.0
    c.byte_s = 8 / spec.rate_bps if spec.rate_bps else 0.0
    c.delay_s, c.coalesce_s = spec.delay_s, coalesce_s
    c.together_s, c.ahead_s, c.backlog_part = TOGETHER * moderation_s, min(AHEAD * moderation_s, AHEAD_S), BURST
    c.limit, c.high, c.low = limit, limit * 7 // 8, limit // 2
    c.least_space = max(full_frame, int(limit * LEAST_SPACE))
    return ffi.gc(c, lib.sn_emulated_free)


def _set_chance(c: Any, spec: EmulationSpec, seed: int) -> None:
    """Set the properties of an `sn_emulated_chance`, and the state of its generator."""
    c.jitter_s, c.unrated_frame_s = spec.jitter_s, UNRATED_FRAME_S
    c.loss, c.duplicate, c.reorder, c.corrupt = spec.loss, spec.duplicate, spec.reorder, spec.corrupt
    seeded = np.random.PCG64(seed).state["state"]
    c.generator.state_high, c.generator.state_low = divmod(seeded["state"], 2**64)
    c.generator.increment_high, c.generator.increment_low = divmod(seeded["inc"], 2**64)
