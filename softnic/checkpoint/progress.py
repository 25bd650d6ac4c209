"""How far the receipt of a state is: phases, bytes, rate, sources. Read from any thread; a line a second for people."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from softnic.terminal import printable


class ReceiptPhase(enum.Enum):
    """What a receiver is doing."""

    CONNECT = "connect"
    MANIFEST = "manifest"
    """Sources compute digests, and the one manifest is fetched."""
    TRANSFER = "transfer"
    """Each piece is checked as it arrives."""
    LOAD = "load"
    """The caller puts the state where it belongs."""
    DONE = "done"


@dataclass(frozen=True)
class ReceiptProgress:
    """A receipt at one moment."""

    step: int
    phase: ReceiptPhase
    seconds: float
    """Since the start of the receipt."""
    phases: Mapping[ReceiptPhase, float] = field(default_factory=dict)
    """Seconds of each phase so far."""
    total: int = 0
    """Bytes of the state; 0: not known yet."""
    held: int = 0
    """Bytes that the receiver had before, as from a receipt that failed."""
    received: int = 0
    """Bytes that were received and checked."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each source."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Sources that were given up, and why."""

    @property
    def rate(self) -> float:
        """Bytes per second of the phase TRANSFER."""
        taken_s = self.phases.get(ReceiptPhase.TRANSFER, 0.0)
        return self.received / taken_s if taken_s else 0.0

    def line(self) -> str:
        """Return one line for people."""
        text = f"softnic: state of step {self.step}: {self.phase.value}"
        if self.total:
            done = (self.held + self.received) / 1e6
            text += f", {done:.1f} of {self.total / 1e6:.1f} MB, {self.rate / 1e6:.1f} MB/s"
        shares = [f"{name} ({size / 1e6:.1f} MB)" for name, size in self.sources.items() if size]
        text += f", from {', '.join(shares)}" if shares else ""
        return text + "".join(f"; lost {name}: {printable(why)}" for name, why in self.lost.items())


Report = Callable[[ReceiptProgress], object]
"""Called once a second, and at the end of each phase, in the thread of the receiver."""


class ReceiptLines:
    """Prints a line on standard error for each second of a receipt that takes longer than one."""

    def __init__(self) -> None:
        self._next_s = 1.0

    def __call__(self, progress: ReceiptProgress) -> None:
        if progress.seconds >= self._next_s:
            self._next_s = progress.seconds + 0.95
            print(progress.line(), file=sys.stderr, flush=True)
