"""python -m tests.mpi.programs --count 1000 --seed 0"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from rich.progress import Progress, TaskID

from tests.mpi.programs.program import MOST_ELEMENTS, make
from tests.mpi.programs.runner import run


def _tell(bar: Progress, task: TaskID, done: int) -> None:
    """How far it has come, also where there is no terminal."""
    bar.update(task, completed=done)
    if bar.disable and done % 50 == 0:
        print(f"{done} programs done", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mpi.programs",
        description="Runs random programs of mixed collectives over real NICs, and checks every result against numpy "
        "and the ranks against each other. A program is made of its seed: the n-th of seed S is the first of seed S+n.",
    )
    parser.add_argument("--count", type=int, default=1000, help="programs (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (0)")
    parser.add_argument("--ranks", type=int, default=0, help="of every program (of its seed: 1 to 9)")
    parser.add_argument("--elements", type=int, default=MOST_ELEMENTS, help="at most, of an array (1000000)")
    parser.add_argument("--blocking", action="store_true", help="no I... calls")
    parser.add_argument("--loss", help="of the links, as in 0.1%% (none)")
    parser.add_argument("--show", action="store_true", help="print the programs and run none")
    given = parser.parse_args()
    common: dict[str, Any] = {
        "nonblocking": not given.blocking, "most_elements": given.elements, "size": given.ranks
    }  # fmt: skip
    options = [{"seed": seed, **common} for seed in range(given.seed, given.seed + given.count)]
    if given.show:
        for each in options:
            program = make(**each)
            print(f"seed {program.seed}: {program.size} ranks", *program.calls, sep="\n  ")
        return 0
    again = "".join(
        [
            f" --ranks {given.ranks}" if given.ranks else "",
            f" --elements {given.elements}" if given.elements != MOST_ELEMENTS else "",
            " --blocking" if given.blocking else "",
            f" --loss {given.loss}" if given.loss else "",
        ]
    )
    failures, began = 0, time.monotonic()
    with Progress(transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("programs", total=given.count)
        for failure in run(options, loss=given.loss, progress=lambda done: _tell(bar, task, done)):
            failures += 1
            print(f"seed {failure.program.seed}, {failure.program.size} ranks: {failure.text}")
            print(f"  again: python -m tests.mpi.programs --seed {failure.program.seed} --count 1{again}", flush=True)
    calls = sum(len(make(**each).calls) for each in options)
    print(f"{given.count} programs, {calls} calls, {failures} failed, {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
