"""codec = "auto": stops encoding where a stream is faster without it, and resumes where encoding pays.

The values never change: bytes that are not encoded are sent as RAW bodies of their codec, which contain
decode(encode(x)) (FORMAT.md). So a float arrives with the same bits whatever is decided here, on whichever rank, and
however often a segment is retransmitted.

The model. A stream is a pipeline of codec and wire, and as fast as the slower of the two:

    compressed   min(S, r * R)      S: original bytes encoded per second (with cutting and checksums)
    raw          min(S', R)         S': the same for the codec's round trip; R: the wire's bytes/s; r: the ratio

The codec's share of the time, goodput / S, tells which of the two is slower. While it is small, the wire is, and
compression pays by the factor r. While it is large, the wire could carry more, but how much only a trial can tell.
Hence:

1. Time is measured in intervals of INTERVAL_S in which the stream had something to send. Pauses of the application do
   not count, waiting for the wire does. Measurements are averaged over intervals.
2. While compressing, a codec's share of SHARE or more makes raw worth a trial: one interval to settle, and TRIAL_S that
   are measured. Decoding takes about as long as encoding, so below that share the peer's NIC is no obstacle either.
   Where the link's own rate is known and below the goodput, raw cannot be faster and is not tried.
3. While raw, compression is worth a trial when the model predicts that it is faster: min(S, r * R) above the goodput,
   with S and r as last measured and R as measured now.
4. A trial of raw has to be better by MARGIN to stay; one of compression only as good, because it spares the wire.
5. Between trials at least HOLD_S[0] pass, doubled after each failed trial up to HOLD_S[1]; a goodput that changed by a
   factor of two resets this. So trials cost a few percent at first and next to nothing later, and noise does not make
   it flap.

An interval ends where the next super-segment begins, so a decision never divides one. Sans-IO: time is an argument, and
so is the time that the codec took.
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
"""Length of the measurement that a trial is evaluated by: on a busy machine single intervals differ by half."""
INTERVAL_BYTES = 128 << 10
"""Minimum of original bytes in a measurement."""
IDLE_S = 0.005
"""A pause longer than this, unexplained by the wire, is the application's."""
WAIT_S = 1.0
"""Limit of a wait that is attributed to the wire."""
SHARE = 0.1
MARGIN = 1.1
HOLD_S = (2.0, 32.0)
_CHANGED = 2.0
_WEIGHT = 0.25
"""Weight of the newest interval in an average."""


class CodecTimer(Protocol):
    """Measures the codec: `start` before a call of the kernel, `stop` after it."""

    def start(self) -> None:
        """Begin to encode or round a segment."""

    def stop(self, original_bytes: int, raw: bool) -> float:
        """Return the seconds since `start`, or those to assume."""


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
    """The timer of a NIC in virtual time: codecs of a given speed in original bytes/s."""

    def __init__(self, encode_bytes_per_s: float, raw_bytes_per_s: float | None = None) -> None:
        self._speeds = (encode_bytes_per_s, raw_bytes_per_s or 2 * encode_bytes_per_s)

    def start(self) -> None:
        """No time passes."""

    def stop(self, original_bytes: int, raw: bool) -> float:
        return original_bytes / self._speeds[raw]


@dataclass(frozen=True, slots=True)
class Throughput:
    """A measurement of sending compressed or raw, in bytes per second."""

    goodput: float
    """Original bytes."""
    wire: float
    """Ethernet bytes."""
    codec: float
    """Original bytes per second of codec time; infinite if that took no time."""

    @property
    def ratio(self) -> float:
        return self.goodput / self.wire

    @property
    def share(self) -> float:
        """The codec's share of the time."""
        return min(1.0, self.goodput / self.codec)

    def smoothed_with(self, newer: Throughput) -> Throughput:
        """Return the average with a newer measurement; the newer one alone if they differ widely."""
        if not self.is_similar(newer) or float("inf") in (self.codec, newer.codec):
            return newer
        pairs = ((self.goodput, newer.goodput), (self.wire, newer.wire), (self.codec, newer.codec))
        return Throughput(*(old + _WEIGHT * (new - old) for old, new in pairs))

    def is_similar(self, newer: Throughput) -> bool:
        return 1 / _CHANGED < newer.goodput / self.goodput < _CHANGED


class _Interval:
    """Sums of one interval. Each segment is added together with the time that follows it."""

    __slots__ = ("_at", "_codec_s", "_limited", "_original", "_pending", "_time_s", "_wire", "_worked_s")

    def __init__(self) -> None:
        self._at: float | None = None
        self._time_s = self._codec_s = 0.0
        self._original = self._wire = 0
        self._pending = (0, 0, 0.0)
        self._limited = False
        self._worked_s = 0.0
        """Codec time since `_at`, when several segments may have been sent."""

    def sent(self, now: float, original: int, wire: int, codec_s: float, limited: bool) -> None:
        """Add a segment. `limited`: the wire accepted no more, so the stream waits for it until the next segment."""
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
        """Return the measurement if the interval is long enough. The codec's time is part of the whole, but a virtual
        clock stands still while a codec works."""
        time_s = max(self._time_s, self._codec_s)
        if time_s < least_s or self._original < INTERVAL_BYTES:
            return None
        codec = self._original / self._codec_s if self._codec_s else float("inf")
        return Throughput(self._original / time_s, self._wire / time_s, codec)


class AdaptiveCodec:
    """Decides for one flow whether its codec is applied.

    Parameters
    ----------
    codec : Codec
        The codec that may be left out.
    counters : NicCounters
        Where decisions are counted.
    link_rate_bps : float, optional
        Upper bound of the link's rate, if known.
    """

    def __init__(self, codec: Codec, counters: NicCounters, link_rate_bps: float | None = None) -> None:
        self.codec = codec
        self._link_limit = float("inf") if link_rate_bps is None else link_rate_bps / 8
        self.raw = False
        """Whether the next segment is sent raw."""
        self.trying = False
        """Whether that is a trial."""
        self.compressed: Throughput | None = None
        self.uncompressed: Throughput | None = None
        self._counters = counters
        self._interval = _Interval()
        self._settled = False
        self._hold_s = HOLD_S[0]
        self._evaluated_at = float("-inf")

    def sent(self, now: float, original: int, wire: int, codec_s: float, limited: bool) -> None:
        """Account for a segment that was sent as `raw` said."""
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
        """Outside a trial: start one if the alternative is promising."""
        known = self.uncompressed if self.raw else self.compressed
        measured = self._keep(measured if known is None else known.smoothed_with(measured))
        if known is None or not known.is_similar(measured):
            self._hold_s = HOLD_S[0]  # conditions have changed or are not steady yet
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
        assert known is not None  # trials follow a measurement of the alternative
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
        """Store the latest measurement."""
        if self.raw:
            self.uncompressed = measured
        else:
            self.compressed = measured
        return measured

    def _switch(self, raw: bool, *, trying: bool) -> None:
        self.raw, self.trying, self._settled = raw, trying, False
        self._interval = _Interval()

    def describe(self) -> str:
        """Return one line for users."""
        name = str(self.codec).removeprefix("auto:")
        on, off = self.compressed, self.uncompressed
        raw = self.raw != self.trying  # the established way, in case of a trial
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
