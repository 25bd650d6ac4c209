"""Worlds by their seeds, in as many processes as there are cores: what became of each.

Not in the command's own file: processes that are spawned find by name what they are to run, and a package's `__main__`
has another name in them.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.simulation.invariants import Violation
from tests.simulation.scenario import draw
from tests.simulation.world import World

PATIENCE_S = 300.0
"""Of real time, with a world that takes less than one as a rule: machines may be busy."""


class Outcome(NamedTuple):
    """What became of a seed."""

    seed: int
    error: str
    """Empty where nothing was violated."""
    virtual_s: float


def try_seed(seed: int) -> Outcome:
    """Runs a world to its end."""
    world = World(draw(seed))
    return Outcome(seed, failure_of(world), world.now)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raises Violation in what takes longer than that of real time: a world whose code runs in a circle. To be used in
    a process's main thread."""

    def over(*_: object) -> None:
        raise Violation(f"the world stands still: nothing has come of it in {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def failure_of(world: World, seconds: float = PATIENCE_S) -> str:
    """Runs a world. What was violated, or where it crashed, which is a violation too."""
    try:
        with patience(seconds):
            world.run()
    except Violation as violation:
        return str(violation)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"at {world.now:.6f} s: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    return ""


def outcomes(seeds: Sequence[int], processes: int) -> Iterator[Outcome]:
    """As they come."""
    if processes <= 1:
        yield from map(try_seed, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(try_seed, seeds, chunksize=8)
