"""Congestion control by the path, the default: CUBIC where round trips are short, BBR where they are long, or where
losses are not congestion.

The rule: BBR if the minimum round trip of the last one or two minutes is 5 ms or more, or if it is 2 ms or more and
eight losses in a row found no queue; CUBIC otherwise. On a short path CUBIC recovers from a loss within milliseconds,
and shares evenly with all that is like it. On a long one it needs seconds for that, and a few lost frames, which say
little about congestion there, decide its rate (bbr.py).

A loss found no queue if the smoothed round trip was at most a quarter longer than the minimum when its recovery began:
a bottleneck that CUBIC fills has a queue when it drops. One whose queue is shorter than half of rate times round trip
drops bursts before that shows, and counts as one that loses frames for other reasons. BBR then stays until the
connection pauses for a minute, or the minimum is less than 2 ms. Below that, windows are not paced, which BBR relies
on, and CUBIC recovers in time.

The handshake's round trip is the first sample. The window stays as it is when the algorithm changes. The rule is C
(native/tcp/flow_growth.c).
"""

from __future__ import annotations

from softnic.tcp.congestion import Congestion
from softnic.tcp.cubic import Cubic


class Auto(Cubic):
    """Begins as CUBIC. The fields of CUBIC and BBR (bbr.py) are those of the algorithm in use."""

    name = "auto"

    queueless_losses: int
    """Losses in a row that found no queue, while CUBIC was in use."""

    def __init__(self, smss: int, before: Congestion | None = None) -> None:
        super().__init__(smss, before)
        self.by_path = True
