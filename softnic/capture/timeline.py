"""Sums the packets of flows over intervals of time: bytes before and after compression, words by encoded size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softnic.capture.capture_file import Column
from softnic.capture.flows import Analysis, CapturedFlow

INTERVALS = 120


@dataclass(slots=True)
class IntervalSums:
    """Sums by interval, of the flows' main views."""

    wire: Column
    """Bytes of frames."""
    original: Column
    encoded: Column
    """Bytes of tagged data before compression, and of the payloads that they became."""
    repeated: Column
    """Packets without new bytes."""
    words: Column
    """Words by encoded size, a row for each of 2, 10, 18, 34 bits and RAW."""


def interval_s(analysis: Analysis) -> float:
    """Return the length of an interval; 0 if all packets have one time."""
    times = analysis.capture.time_ns
    return int(np.ptp(times)) / INTERVALS / 1e9 if len(times) else 0.0


def timeline(analysis: Analysis, flows: list[CapturedFlow], words: Column) -> IntervalSums:
    """Return the sums of some flows.

    Parameters
    ----------
    analysis : Analysis
        The capture.
    flows : list of CapturedFlow
        Which flows to add up.
    words : array of int, shape (packets, 5)
        Words of each packet by encoded size.
    """
    packets = analysis.packets
    members = np.concatenate([np.empty(0, np.int64), *(flow.main.members for flow in flows)])
    repeated = np.concatenate([np.empty(0, np.int64), *(flow.main.repeated for flow in flows)])
    passed = packets.time_ns[members] - int(analysis.capture.time_ns.min(initial=np.iinfo(np.int64).max))
    interval = (passed / max(1.0, interval_s(analysis) * 1e9)).astype(np.int64).clip(0, INTERVALS - 1)
    tagged = analysis.tagged[members]

    def total(weights: Column) -> Column:
        sums: Column = np.bincount(interval, weights, INTERVALS).astype(np.int64)
        return sums

    return IntervalSums(
        wire=total(packets.frame_bytes[members]),
        original=total(analysis.headers.original[members] * tagged),
        encoded=total(packets.payload[members] * tagged),
        repeated=total(repeated),
        words=np.stack([total(column) for column in words[members].T]),
    )
