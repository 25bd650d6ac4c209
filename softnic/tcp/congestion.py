"""Common part of congestion control: a window in wire bytes, and how it changes.

All sizes are wire bytes, because frames are what congests a path: a compressed stream may have a hundred times as many
original bytes in flight as a plain one with the same `cwnd`. `smss` is a full-sized frame.

Shared by all algorithms: the initial window; slow start by the bytes acknowledged (RFC 5681, section 3.1, with RFC 3465
without its limit of two segments, because our receivers acknowledge once a batch), which ends according to HyStart++;
no growth of an unused window (RFC 7661); pacing. Algorithms differ in how a window grows after slow start, and in what
remains of it after a loss. Retransmission is not their task (recovery.py).

What a connection knows of the path outlasts pauses for as long as it is likely to be true: a window that is paced is
halved every ten seconds (in the spirit of RFC 2861 and RFC 7661), and BBR's measurements count for a minute.

Windows grow and shrink in C (native/tcp/flow_growth.c, bbr.c).
"""

from __future__ import annotations

from typing import ClassVar

from softnic._fields import CongestionFields, Memory
from softnic._native import lib
from softnic.tcp.hystart import HyStart

INITIAL_WINDOW: int = lib.SN_INITIAL_WINDOW
"""Frames (RFC 6928)."""
INFINITY = 1 << 40


class Congestion(CongestionFields):
    """Base of the algorithms. `before` is the one that it replaces, and whose window it continues with."""

    name: ClassVar[str]
    number: ClassVar[int]
    """Number of the algorithm in native/tcp/flow.h."""

    algorithm: int
    """`number` of the algorithm in use."""
    by_path: bool
    """C chooses the algorithm (auto.py)."""
    smss: int
    cwnd: int
    ssthresh: int
    restarting: bool
    """No round trip was measured since the connection was idle."""

    def __init__(self, smss: int, before: Congestion | None = None) -> None:
        self.algorithm = self.number
        self.smss = smss
        self.cwnd = INITIAL_WINDOW * smss if before is None else before.cwnd
        self.ssthresh = INFINITY if before is None else before.ssthresh
        self.hystart = HyStart(memory=self.memory)

    def attach(self, memory: Memory) -> None:
        """Moves the state into the memory of a flow."""
        self.move_to(memory)
        self.hystart.move_to(memory)

    def set_smss(self, smss: int) -> None:
        self.smss = smss
