"""Parameters of this machine for softnic.model: the measurements of `softnic model calibrate`.

Each is measured as it is used: matrix products by numpy with all its threads, as gradients are computed; sums, copies,
updates and codecs on one core, as in a NIC or the exchange of a host; frames by the NIC itself; latency and the rate
of a stream by processes through two daemons.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softnic import codecs
from softnic.bench import inputs, latency, stream
from softnic.codecs.threads import at_most
from softnic.experiments.data import Floats
from softnic.experiments.numpy_replica import MomentumSgd
from softnic.measure import timing
from softnic.measure.report import Progress, machine
from softnic.model.frames import framed
from softnic.model.parameters import CodecFigures, Machine

MATRIX = 1024
"""Rows and columns of the multiplied matrices."""
SUMS = 11
"""Number of ratios: of sums of 1, 2, 4 .. 1,024 ranks."""
_SAMPLE = 1 << 18
"""Number of floats for the count of frames."""


@dataclass(frozen=True)
class CalibrationSettings:
    codecs: tuple[str, ...] = ("rht:4", "inceptionn:10", "bounded:8", "bounded:10", "bfp:7", "truncate:16")
    data: str = "gaussian:0.01"
    megabytes: int = 16
    """Size of the arrays that are summed, copied, updated and encoded."""
    rounds: int = 5
    slice_s: float = 0.1
    through_nics: bool = True
    """Whether to start daemons for latency and stream; otherwise latency is 0 and a stream as fast as its link."""


def run(settings: CalibrationSettings, progress: Progress = lambda _what: None) -> Machine:
    """Measure. Raises MeasurementError, ClusterError, ValueError for unknown codecs or data."""
    words = inputs.floats(settings.data, settings.megabytes * 10**6 // 4)
    about = machine()
    progress("matrix products")
    flop_s = 2 * MATRIX**3 / _median({"product": _product()}, settings)["product"]
    progress("sums, copies, updates")
    with at_most(1):
        seconds = _median(_passes(words), settings)
        figures = {name: _codec(name, words, settings, progress) for name in settings.codecs}
    latency_s, stream_bytes_s = _through_nics(settings, progress) if settings.through_nics else (0.0, None)
    return Machine(
        description=f"{about['cpu']}, {about['cores']} cores, {about['simd']}",
        P_Worker=flop_s,
        add_bytes_s=words.nbytes / seconds["sum"],
        memory_bytes_s=words.nbytes / seconds["copy"],
        update_bytes_s=words.nbytes / seconds["update"],
        alpha=framed(words[:_SAMPLE]).alpha,
        latency_s=latency_s,
        stream_bytes_s=stream_bytes_s,
        codecs=figures,
        data=settings.data,
    )


def _median(works: dict[str, timing.Work], settings: CalibrationSettings) -> dict[str, float]:
    """Return seconds of elapsed time per call: the machine's speed includes our share of it."""
    taken = timing.alternate(works, settings.rounds, settings.slice_s)
    return {name: timing.median(times) for name, times in taken.items()}


def _product() -> timing.Work:
    rng = np.random.default_rng(1)
    left, right = (rng.standard_normal((MATRIX, MATRIX), np.float32) for _ in range(2))
    out = np.empty_like(left)
    return lambda: np.matmul(left, right, out=out)


def _passes(words: Floats) -> dict[str, timing.Work]:
    other, weights, slopes = np.ones_like(words), np.zeros_like(words), np.zeros_like(words)
    optimizer = MomentumSgd(words.size)
    return {
        "sum": lambda: np.add(words, other, out=other),
        "copy": lambda: np.copyto(other, words),
        "update": lambda: optimizer.step(weights, slopes),
    }


def _codec(name: str, words: Floats, settings: CalibrationSettings, progress: Progress) -> CodecFigures:
    progress(name)
    codec = codecs.get(name)
    room, back = np.empty(codec.bound(words.size), np.uint8), np.empty_like(words)
    used = codec.encode_into(words, room)
    seconds = _median(
        {"encode": lambda: codec.encode_into(words, room), "decode": lambda: codec.decode_into(room[:used], back)},
        settings,
    )
    # The sum of k independent gradients is distributed like one gradient times sqrt(k).
    sample = words[:_SAMPLE]
    counted = [framed(sample * np.float32(2 ** (power / 2)), name) for power in range(SUMS)]
    return CodecFigures(
        betas=tuple(each.beta for each in counted),
        alpha=counted[0].alpha,
        encode_bytes_s=words.nbytes / seconds["encode"],
        decode_bytes_s=words.nbytes / seconds["decode"],
    )


def _through_nics(settings: CalibrationSettings, progress: Progress) -> tuple[float, float]:
    """Return the one-way time of a small message and the bytes per second of a stream, both untagged."""
    trips = latency.run(latency.LatencySettings(codecs=(), count=600, rounds=3), progress).rows
    streams = stream.run(
        stream.StreamSettings(codecs=(), megabytes=128, rounds=settings.rounds, idle_streams=1), progress
    ).rows
    trip_us = next(row.p50_us for row in trips if row.case == stream.UNTAGGED)
    mb_per_s = next(row.mb_per_s for row in streams if row.case == stream.UNTAGGED)
    return trip_us / 2e6, mb_per_s * 1e6
