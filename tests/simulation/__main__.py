"""Runs worlds, and shows those that fail.

    python -m tests.simulation --seeds 300             # seeds 0 to 299, on all cores
    python -m tests.simulation --seeds 10000           # a night's worth
    python -m tests.simulation --seed 17               # one world, told line by line
    python -m tests.simulation --seed 17 --capture f.pcapng
    python -m tests.simulation --soak 24               # hours of one world, and what it keeps

The exit code is 0 where nothing was violated.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.simulation.machine import FIRST_IP
from tests.simulation.recording import Recording
from tests.simulation.scenario import draw
from tests.simulation.seeds import failure_of, outcomes
from tests.simulation.soak import soak
from tests.simulation.world import World

_TELL_S = 5.0


def run_seeds(seeds: Sequence[int], processes: int, most_failures: int) -> bool:
    """Runs many worlds, tells of those that fail and how to see them again. Whether none did."""
    began = told = time.monotonic()
    virtual_s, done, failed = 0.0, 0, 0
    for outcome in outcomes(seeds, processes):
        done += 1
        virtual_s += outcome.virtual_s
        if outcome.error:
            failed += 1
            print(f"seed {outcome.seed}: {outcome.error}\n  to see it: {replay(outcome.seed)}", flush=True)
            if failed >= most_failures:
                break
        if sys.stderr.isatty() and time.monotonic() - told > _TELL_S:
            told = time.monotonic()
            print(f"{done} of {len(seeds)} worlds", file=sys.stderr)
    hours = virtual_s / 3600
    print(f"{done} worlds, {hours:.1f} hours of their time in {time.monotonic() - began:.0f} s: {failed} failed")
    return not failed


def replay(seed: int) -> str:
    """The command that shows a world again."""
    return f"python -m tests.simulation --seed {seed} --capture world-{seed}.pcapng"


def run_one(seed: int, capture: Path | None) -> bool:
    """Runs one world, told line by line. Whether nothing was violated."""
    plan = draw(seed)
    print("\n".join(plan.describe()))
    if capture is None:
        return _told(World(plan, tell=print))
    with capture.open("wb") as output:
        recording = Recording(output, [FIRST_IP + index for index in range(len(plan.machines))])
        good = _told(World(plan, tell=print, recording=recording))
    print(f"{capture}: softnic inspect, or Wireshark, shows it")
    return good


def _told(world: World) -> bool:
    error = failure_of(world)
    print(f"seed {world.plan.seed}: {error or 'nothing was violated'} (digest {world.digest})")
    return not error


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Runs simulated worlds of machines, NICs, programs and faults, each made of its seed.",
        epilog="example: python -m tests.simulation --seeds 300",
    )
    what = made.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=int, metavar="N", help="run so many worlds")
    what.add_argument("--seed", type=int, metavar="S", help="run this one, and tell what happens in it")
    what.add_argument("--soak", type=float, metavar="HOURS", help="run one world for so long, and look for growth")
    made.add_argument("--first", type=int, default=0, metavar="S", help="the first of --seeds (0)")
    made.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="P", help="for --seeds (all cores)")
    made.add_argument("--failures", type=int, default=10, metavar="F", help="end --seeds after so many (10)")
    made.add_argument(
        "--capture", type=Path, metavar="FILE", help="with --seed: a pcapng file of both sides of all NICs"
    )
    return made


def main(arguments: Iterable[str] | None = None) -> int:
    """The exit code."""
    made = parser()
    options = made.parse_args(None if arguments is None else list(arguments))
    if options.capture is not None and options.seed is None:
        made.error("--capture goes with --seed")
    if options.seeds is not None and min(options.seeds, options.processes, options.failures) < 1:
        made.error("--seeds, --processes and --failures are at least 1")
    if options.seeds is not None:
        return not run_seeds(range(options.first, options.first + options.seeds), options.processes, options.failures)
    if options.soak is not None:
        return not soak(options.soak, tell=print)
    try:
        return not run_one(options.seed, options.capture)
    except OSError as error:  # worlds do no I/O: it is the capture
        print(f"{made.prog}: {options.capture}: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
