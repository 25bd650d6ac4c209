"""Runs worlds by their seeds, on as many processes as there are cores.

Apart from the command's own file: a spawned process finds what it runs by its name, and `__main__` has another there.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.simulation.invariants import Violation
from tests.simulation.node import FastPathMode
from tests.simulation.scenario import draw
from tests.simulation.world import World

REAL_LIMIT_S = 300.0
"""Real time that a world may take. Most take less than a second, but the machine may be busy."""


class SeedResult(NamedTuple):
    """The result of a seed."""

    seed: int
    error: str
    """Empty if nothing was violated."""
    virtual_s: float
    trace: str
    """Of trace.py."""
    fast_path_segments: int
    asked_of_python: int
    steered_frames: int
    cut_collectives: int


def try_seed(seed: int, fast_path: FastPathMode | None = None, queues: int | None = None) -> SeedResult:
    """Run the world of a seed to its end."""
    world = World(draw(seed), fast_path=fast_path, queues=queues)
    error = failure_of(world)
    counted = world.fast_path_segments, world.asked_of_python, world.steered_frames, world.cut_collectives
    return SeedResult(seed, error, world.clock.now, world.digest, *counted)


@contextmanager
def real_time_limit(seconds: float) -> Iterator[None]:
    """Raise Violation in code that takes longer than this in real time: an endless loop at one instant.

    Works in a process's main thread only.
    """

    def expire(*_: object) -> None:
        raise Violation(f"the world stands still: no progress in {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def failure_of(world: World, seconds: float = REAL_LIMIT_S) -> str:
    """Run a world. Returns the text of a violation or of any other exception, which counts as one; empty if none."""
    try:
        with real_time_limit(seconds):
            world.run()
    except Violation as violation:
        return str(violation)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        name = type(error).__name__
        return f"at {world.clock.now:.6f} s: {name}: {error} ({Path(where.filename).name}:{where.lineno})"
    return ""


def results(
    seeds: Sequence[int], processes: int, fast_path: FastPathMode | None = None, queues: int | None = None
) -> Iterator[SeedResult]:
    """Run many worlds. Yields results in the order in which they are ready."""
    run = partial(try_seed, fast_path=fast_path, queues=queues)
    if processes <= 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=8)
