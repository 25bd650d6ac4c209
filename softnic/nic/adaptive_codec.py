"""codec = "auto": leaves the encoding out where a stream is faster without it, and takes it up again where it pays.

What it never touches are the values. A stretch that is not encoded goes out as RAW bodies of its codec, which hold
decode(encode(x)) (FORMAT.md), so a float arrives with the same bits whatever is decided here, whenever, on whichever
rank, and however often a segment is sent again.

The model. A stream is a pipeline of codec and wire, and as fast as the slower of the two:

    compressed   min(S, r * R)      S: original bytes that the codec encodes a second (with cutting and checksums)
    raw          min(S', R)         S': the same for the codec's round trip; R: the wire's bytes/s; r: the ratio

The codec's share of the time, goodput / S, says which of the two is the slower one. While it is small the wire is,
and compression pays by the factor r. While it is large the wire has more to give, but nothing says how much: that
shows only by trying. Hence:

1. Time is measured in stretches of INTERVAL_S in which the stream had something to send; a pause of the program's ends
   none and counts for none, a wait for the wire does count. What is known of a way is an average over its stretches.
2. While compressing, a codec's share of SHARE or more makes raw worth a trial: a stretch to settle in, and TRIAL_S that
   are measured. Decoding takes about as long as encoding, so below that share the peer's NIC is no obstacle either.
   Where the link's own rate is known and is below the goodput, raw cannot be faster, and is not tried.
3. While raw, compression is worth a trial when the model says that it would be faster: min(S, r * R) above the goodput,
   with S and r as they were last measured and R as it is measured now.
4. A trial of raw has to be better by MARGIN to stay, one of compression only as good, for it spares the wire.
5. Between trials at least HOLD_S[0] pass, twice as long after each that failed, up to HOLD_S[1]; a goodput that
   changed by a factor of two makes the wait short again. So trials cost a few percent at first and next to nothing
   later, and noise cannot make it flap.

A stretch is cut where the next super-segment begins, so a decision never divides one. Sans-IO: `now` comes with every
segment, and so does the time that the codec took.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from softnic.codecs import Codec
from softnic.nic.counters import NicCounters
from softnic.units import text_bytes

INTERVAL_S = 0.02
"""Length of a measurement: many turns of a daemon, and several drains of an emulated link's queue."""
TRIAL_S = 0.08
"""The same for what a trial is judged by: on a busy machine single stretches differ by half."""
INTERVAL_BYTES = 128 << 10
"""And original bytes that it has at least."""
IDLE_S = 0.005
"""A pause that the wire does not explain and that is longer than this is the program's."""
WAIT_S = 1.0
"""Longer than this nothing waits for a wire that works."""
SHARE = 0.1
MARGIN = 1.1
HOLD_S = (2.0, 32.0)
_CHANGED = 2.0
_WEIGHT = 0.25
"""Of the newest stretch in an average."""


class CodecTimer(Protocol):
    """How long the codec worked: `start` before a call of the kernel, `stop` after it."""

    def start(self) -> None:
        """A segment is about to be encoded, or rounded."""

    def stop(self, original_bytes: int, raw: bool) -> float:
        """Seconds since, or what they shall count for."""


class Stopwatch:
    """The timer of a real NIC, on any clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = 0.0

    def start(self) -> None:
        self._started = self._clock()

    def stop(self, original_bytes: int, raw: bool) -> float:  # noqa: ARG002
        return self._clock() - self._started


class FixedSpeed:
    """The timer of a NIC under a virtual clock: codecs of a given speed in original bytes/s."""

    def __init__(self, encode_bytes_per_s: float, raw_bytes_per_s: float | None = None) -> None:
        self._speeds = (encode_bytes_per_s, raw_bytes_per_s or 2 * encode_bytes_per_s)

    def start(self) -> None:
        """Nothing passes."""

    def stop(self, original_bytes: int, raw: bool) -> float:
        return original_bytes / self._speeds[raw]


@dataclass(frozen=True, slots=True)
class Throughput:
    """One way of sending as it was last seen, in bytes a second."""

    goodput: float
    """Original bytes."""
    wire: float
    """Ethernet bytes."""
    codec: float
    """Original bytes for each second that the codec worked; infinite where that took no time."""

    @property
    def ratio(self) -> float:
        return self.goodput / self.wire

    @property
    def share(self) -> float:
        """Of the time, the codec's."""
        return min(1.0, self.goodput / self.codec)

    def smoothed_with(self, newer: Throughput) -> Throughput:
        """The average with what came after it; that alone where things have changed."""
        if not self.is_similar(newer) or float("inf") in (self.codec, newer.codec):
            return newer
        pairs = ((self.goodput, newer.goodput), (self.wire, newer.wire), (self.codec, newer.codec))
        return Throughput(*(old + _WEIGHT * (new - old) for old, new in pairs))

    def is_similar(self, newer: Throughput) -> bool:
        return 1 / _CHANGED < newer.goodput / self.goodput < _CHANGED


class _Interval:
    """Sums up what went out. Each segment counts once the time that follows it does."""

    __slots__ = ("_at", "_codec_s", "_limited", "_original", "_pending", "_time_s", "_wire", "_worked_s")

    def __init__(self) -> None:
        self._at: float | None = None
        self._time_s = self._codec_s = 0.0
        self._original = self._wire = 0
        self._pending = (0, 0, 0.0)
        self._limited = False
        self._worked_s = 0.0
        """By the codec since `_at`, a moment at which several segments may have gone."""

    def sent(self, now: float, original: int, wire: int, codec_s: float, limited: bool) -> None:
        """`limited`: the wire took all that it would; until the next segment the stream waits for it."""
        if self._at is not None:
            gap = now - self._at
            pause = gap - self._worked_s
            if pause <= (WAIT_S if self._limited else IDLE_S):
                self._time_s += gap
                self._original += self._pending[0]
                self._wire += self._pending[1]
                self._codec_s += self._pending[2]
            if gap:
                self._worked_s = 0.0
        self._at, self._pending, self._limited = now, (original, wire, codec_s), limited
        self._worked_s += codec_s

    def measured(self, least_s: float) -> Throughput | None:
        """What it came to, if it was long enough. The codec's time is part of the whole, but a virtual clock stands
        still while a codec works."""
        time_s = max(self._time_s, self._codec_s)
        if time_s < least_s or self._original < INTERVAL_BYTES:
            return None
        codec = self._original / self._codec_s if self._codec_s else float("inf")
        return Throughput(self._original / time_s, self._wire / time_s, codec)


class AdaptiveCodec:
    """What one flow does about one codec. `link_rate_bps` is what the link never exceeds, where that is known."""

    def __init__(self, codec: Codec, counters: NicCounters, link_rate_bps: float | None = None) -> None:
        self.codec = codec
        self._link_limit = float("inf") if link_rate_bps is None else link_rate_bps / 8
        self.raw = False
        """How the next segment goes."""
        self.trying = False
        """And whether only to see what that gives."""
        self.compressed: Throughput | None = None
        self.uncompressed: Throughput | None = None
        self._counters = counters
        self._interval = _Interval()
        self._settled = False
        self._hold_s = HOLD_S[0]
        self._evaluated_at = float("-inf")

    def sent(self, now: float, original: int, wire: int, codec_s: float, limited: bool) -> None:
        """A segment has gone out, as `raw` said."""
        if self.raw:
            self._counters.tx_auto_raw_bytes += original
        else:
            self._counters.tx_auto_compressed_bytes += original
        self._interval.sent(now, original, wire, codec_s, limited)
        measured = self._interval.measured(TRIAL_S if self.trying and self._settled else INTERVAL_S)
        if measured is None:
            return
        self._interval = _Interval()
        if self.trying:
            if self._settled:
                self._evaluate_trial(measured, now)
            self._settled = True
        else:
            self._consider(measured, now)

    def _consider(self, measured: Throughput, now: float) -> None:
        """Not on trial: is the other way worth one?"""
        known = self.uncompressed if self.raw else self.compressed
        measured = self._keep(measured if known is None else known.smoothed_with(measured))
        if known is None or not known.is_similar(measured):
            self._hold_s = HOLD_S[0]  # things are not as they were, nor steady yet
        elif now >= self._evaluated_at + self._hold_s and self._is_worth_trial(measured):
            self._counters.tx_auto_trials += 1
            self._switch(not self.raw, trying=True)

    def _is_worth_trial(self, measured: Throughput) -> bool:
        if not self.raw:
            return measured.share >= SHARE and measured.goodput < self._link_limit
        known = self.compressed
        return known is None or min(known.codec, known.ratio * measured.wire) > measured.goodput

    def _evaluate_trial(self, measured: Throughput, now: float) -> None:
        known = self.compressed if self.raw else self.uncompressed
        assert known is not None  # nothing else makes it try
        self._keep(measured)
        better = measured.goodput > MARGIN * known.goodput if self.raw else measured.goodput >= known.goodput
        if better:
            self._hold_s = HOLD_S[0]
            if self.raw:
                self._counters.tx_auto_to_raw += 1
            else:
                self._counters.tx_auto_to_compressed += 1
            self._switch(self.raw, trying=False)
        else:
            self._hold_s = min(2 * self._hold_s, HOLD_S[1])
            self._switch(not self.raw, trying=False)
        self._evaluated_at = now

    def _keep(self, measured: Throughput) -> Throughput:
        """Takes note of how it goes now."""
        if self.raw:
            self.uncompressed = measured
        else:
            self.compressed = measured
        return measured

    def _switch(self, raw: bool, *, trying: bool) -> None:
        self.raw, self.trying, self._settled = raw, trying, False
        self._interval = _Interval()

    def describe(self) -> str:
        """One line for people."""
        name = str(self.codec).removeprefix("auto:")
        on, off = self.compressed, self.uncompressed
        raw = self.raw != self.trying  # the way it is on, where it only tries another
        if raw and off is not None:
            text = f"auto: raw at {_rate(off.goodput)}, wire {_rate(off.wire)}"
            if on is not None:
                text += f"; {name} gave {_rate(on.goodput)}: {on.ratio:.1f}:1, codec {_rate(on.codec)}"
        elif on is not None:
            text = f"auto: compressing {name}, {on.ratio:.1f}:1 at {_rate(on.goodput)}; codec {_rate(on.codec)}"
            text += f" ({on.share:.0%} of the time), wire {_rate(on.wire)}"
            if off is not None:
                text += f"; raw gave {_rate(off.goodput)}"
        else:
            text = f"auto: compressing {name}, not measured yet"
        return f"{text}; trying {'raw' if self.raw else name}" if self.trying else text


def _rate(bytes_per_s: float) -> str:
    return "free" if bytes_per_s == float("inf") else f"{text_bytes(round(bytes_per_s))}/s"
