"""Seeded worlds: what tests/simulation draws, runs and records."""

from __future__ import annotations

from softnic.testing import Violation, World, draw
from softnic.testing.__main__ import main, replay
from softnic.testing.clock import Clock
from softnic.testing.machine import FIRST_IP
from softnic.testing.plan import FaultKind
from softnic.testing.recording import Recording
from softnic.testing.scripts import Abort, Await, Leave, Sleep
from softnic.testing.seeds import failure_of, patience, try_seed
from softnic.testing.soak import Kept, soak
from softnic.testing.soak import judge as evaluate
from softnic.testing.way import LATE_S, LocalLink
from softnic.testing.way import Way as SimLink

__all__ = [
    "FIRST_IP",
    "LATE_S",
    "Abort",
    "Await",
    "Clock",
    "FaultKind",
    "Kept",
    "Leave",
    "LocalLink",
    "Recording",
    "SimLink",
    "Sleep",
    "Violation",
    "World",
    "draw",
    "evaluate",
    "failure_of",
    "main",
    "patience",
    "replay",
    "soak",
    "try_seed",
]
