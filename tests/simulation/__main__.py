"""Runs seeded worlds, and shows those that fail.

    python -m tests.simulation --seeds 300             # seeds 0 to 299, on all cores
    python -m tests.simulation --seeds 10000           # a night's worth
    python -m tests.simulation --seed 17               # one world, with its log
    python -m tests.simulation --seed 17 --capture f.pcapng
    python -m tests.simulation --seeds 200 --traces compare  # do worlds behave as recorded? (trace.py)
    python -m tests.simulation --seeds 200 --traces compare --fast-path mixed  # and with Python and C by turns?
    python -m tests.simulation --seeds 200 --queues 3         # all NICs have 3 queues (queued_node.py)
    python -m tests.simulation --soak 24               # hours of one world, and the memory that it keeps

The exit code is 0 if nothing was violated.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from softnic._native import lib
from softnic.sim.node import FIRST_IP
from tests.simulation.node import FastPathMode
from tests.simulation.recording import WorldRecording
from tests.simulation.scenario import draw
from tests.simulation.seeds import failure_of, results
from tests.simulation.soak import soak
from tests.simulation.trace import FILE, different, entry, record
from tests.simulation.world import World

_PROGRESS_S = 5.0


def run_seeds(
    seeds: Sequence[int],
    processes: int,
    most_failures: int,
    traces: str = "",
    fast_path: FastPathMode | None = None,
    queues: int | None = None,
) -> bool:
    """Run many worlds, and print the failures with the commands that replay them. Returns whether none failed.

    `traces` says what is done with the traces: show, compare or record; a world with another trace counts as failed.
    """
    began = reported = time.monotonic()
    virtual_s, done, failed, fast, steered = 0.0, 0, 0, 0, 0
    found: dict[int, str] = {}
    for result in results(seeds, processes, fast_path, queues):
        done += 1
        virtual_s += result.virtual_s
        fast += result.fast_path_segments
        steered += result.steered_frames
        found[result.seed] = entry(result.trace, result.asked_of_python)
        if result.error:
            failed += 1
            print(f"seed {result.seed}: {result.error}", flush=True)
            print(f"  to replay it: {replay(result.seed, fast_path, queues)}", flush=True)
            if failed >= most_failures:
                break
        if sys.stderr.isatty() and time.monotonic() - reported > _PROGRESS_S:
            reported = time.monotonic()
            print(f"{done} of {len(seeds)} worlds", file=sys.stderr)
    hours = virtual_s / 3600
    print(
        f"{done} worlds, {hours:.1f} hours of virtual time in {time.monotonic() - began:.0f} s: {failed} failed", end=""
    )
    print(f", {fast} segments on the fast path", end="\n" if queues is None else f", {steered} steered frames\n")
    return not failed and use_traces(found, traces, counted=fast_path is None)


def use_traces(found: Mapping[int, str], what: str, *, counted: bool) -> bool:
    """Show, compare or record traces. Returns whether they are as recorded, or need not be."""
    if what == "show":
        print("\n".join(f"{seed} {found[seed]}" for seed in sorted(found)))
    elif what == "record":
        record(found)
        print(f"{len(found)} traces recorded in {FILE}")
    elif what == "compare":
        seeds = different(found, counted=counted)
        print(f"{len(seeds)} of {len(found)} traces are not those of {FILE.name}{': seeds ' if seeds else ''}", end="")
        print(*seeds, sep=", ")
        return not seeds
    return True


def replay(seed: int, fast_path: FastPathMode | None = None, queues: int | None = None) -> str:
    """Return the command that runs a world again, and captures it."""
    mode = "" if fast_path is None else f" --fast-path {fast_path}"
    mode += "" if queues is None else f" --queues {queues}"
    return f"python -m tests.simulation --seed {seed}{mode} --capture world-{seed}.pcapng"


def run_one(seed: int, capture: Path | None, fast_path: FastPathMode | None = None, queues: int | None = None) -> bool:
    """Run one world and print its log. Returns whether nothing was violated."""
    scenario = draw(seed)
    print("\n".join(scenario.describe()))
    if capture is None:
        return _run(World(scenario, report=print, fast_path=fast_path, queues=queues))
    with capture.open("wb") as output:
        recording = WorldRecording(output, [FIRST_IP + index for index in range(len(scenario.nodes))])
        good = _run(World(scenario, report=print, recording=recording, fast_path=fast_path, queues=queues))
    print(f"{capture}: open it with softnic inspect or Wireshark")
    return good


def _run(world: World) -> bool:
    error = failure_of(world)
    print(f"seed {world.scenario.seed}: {error or 'nothing was violated'} (digest {world.digest})")
    return not error


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Run simulated worlds of nodes, NICs, applications and faults, each drawn from its seed.",
        epilog="example: python -m tests.simulation --seeds 300",
    )
    what = made.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=int, metavar="N", help="run this number of worlds")
    what.add_argument("--seed", type=int, metavar="S", help="run one world and print its log")
    what.add_argument("--soak", type=float, metavar="HOURS", help="run one world for this time and look for growth")
    made.add_argument("--first", type=int, default=0, metavar="S", help="first seed of --seeds (0)")
    made.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="P", help="for --seeds (all cores)")
    made.add_argument("--failures", type=int, default=10, metavar="F", help="stop --seeds after this number (10)")
    made.add_argument(
        "--traces", choices=("show", "compare", "record"), default="", help="what to do with the traces of --seeds"
    )
    made.add_argument(
        "--fast-path",
        choices=get_args(FastPathMode),
        help="process connections without losses in C, in Python or by turns (in C)",
    )
    made.add_argument("--queues", type=int, metavar="N", help="run NICs with this number of queues")
    made.add_argument(
        "--capture", type=Path, metavar="FILE", help="with --seed: write a pcapng file of both sides of all NICs"
    )
    return made


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    made = parser()
    options = made.parse_args(None if arguments is None else list(arguments))
    if options.capture is not None and options.seed is None:
        made.error("--capture goes with --seed")
    if options.traces and options.seeds is None:
        made.error("--traces goes with --seeds")
    if options.fast_path is not None and options.soak is not None:
        made.error("--fast-path goes with --seeds or --seed")
    if options.queues is not None:
        if options.soak is not None or options.traces:
            made.error("--queues goes with --seeds or --seed, without --traces")
        if not 1 <= options.queues <= lib.SN_MOST_QUEUES:
            made.error(f"--queues is from 1 to {lib.SN_MOST_QUEUES}")
    if options.seeds is not None and min(options.seeds, options.processes, options.failures) < 1:
        made.error("--seeds, --processes and --failures are at least 1")
    if options.seeds is not None:
        seeds = range(options.first, options.first + options.seeds)
        how = options.traces, options.fast_path, options.queues
        return not run_seeds(seeds, options.processes, options.failures, *how)
    if options.soak is not None:
        return not soak(options.soak, report=print)
    try:
        return not run_one(options.seed, options.capture, options.fast_path, options.queues)
    except OSError as error:  # of the capture: worlds do no I/O
        print(f"{made.prog}: {options.capture}: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
