"""`python -m tests.fuzz [TARGET ...] [--runs N]`: fuzzes targets and says what came of it."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from softnic.rtl import library
from softnic.rtl.verilator import RtlError
from tests.fuzz import run
from tests.fuzz.build import BuildError, build
from tests.fuzz.targets import TARGETS, Target

_EXAMPLE = """\
examples:
  python -m tests.fuzz --runs 20000                    all targets, so many inputs each
  python -m tests.fuzz frames payload --seconds 600    two of them, ten minutes each
  python -m tests.fuzz --runs 10000000 --within 3600   all, as far as they come in an hour, in the order named
  python -m tests.fuzz options --seconds 60            what is in the corpus, and more for it; after that
  python -m tests.fuzz options --unguided --runs 10000000
                                                       many mutations of all that, quickly
  python -m tests.fuzz decode-rht encode --rtl --seconds 60
                                                       the hardware's engines beside the C
  python -m tests.fuzz pcapng --replay FILE            one input again, with what it breaks
  python -m tests.fuzz pcapng --keep too-deep          one input to be checked in, whatever others do
  python -m tests.fuzz frames --minimize 40            the corpus that is checked in, from what runs have found
"""
ENGINES = "SOFTNIC_FUZZ_ENGINES"
"""Names the engines' library (tests/fuzz/native/engines.h)."""
_UNGUIDED = "targets of the Python as they are, not instrumented: only mutations of the corpus, but many times as many"
_RTL = "hold the engines of native/rtl, simulated, against the C, too (decode-inceptionn, -bounded, -bfp, -rht, encode)"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.fuzz", epilog=_EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", metavar="TARGET", nargs="*", help="all, unless some are named")
    parser.add_argument("--list", action="store_true", help="say what there is to be fuzzed")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help="inputs for each target (no limit)")
    parser.add_argument("--seconds", type=int, default=0, metavar="N", help="and time for each (no limit)")
    parser.add_argument("--within", type=int, default=0, metavar="N", help="and seconds for all of them (no limit)")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations (%(default)s)")
    parser.add_argument("--unguided", action="store_true", help=_UNGUIDED)
    parser.add_argument("--rtl", action="store_true", help=_RTL)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="targets at a time (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="inputs to run once each")
    parser.add_argument("--keep", type=Path, nargs="+", metavar="FILE", help="inputs to be checked in, by name")
    parser.add_argument("--minimize", type=int, metavar="N", help="choose at most so many inputs to be checked in")
    return parser.parse_args()


def _chosen(names: list[str]) -> list[Target]:
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        raise BuildError(f"there is no target {unknown[0]}: {', '.join(TARGETS)} are")
    return [TARGETS[name] for name in names or TARGETS]


def _show(results: list[run.Result]) -> Table:
    table = Table("target", "guided", "inputs", "seconds", "CPU s", "edges", "corpus", "MB", "found")
    for column in table.columns[2:-1]:
        column.justify = "right"
    for result in results:
        numbers = (result.inputs, result.seconds, result.cpu_seconds, result.edges, result.kept, result.memory_mb)
        guided = "yes" if result.guided else "no"
        table.add_row(result.target, guided, *(f"{number:,}" for number in numbers), str(result.finding or "nothing"))
    return table


def main() -> int:
    args = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 110)
    try:
        targets = _chosen(args.targets)
        if args.list:
            for target in targets:
                console.print(f"{target.name:18}{target.what}", highlight=False)
            return 0
        if args.keep:
            run.keep(targets[0], args.keep)
            return 0
        if args.rtl:
            os.environ[ENGINES] = str(library.path())  # for the targets' programs
        native = [target for target in targets if target.is_native]
        programs = build(native) if native else {}
    except (BuildError, RtlError) as error:
        print(f"tests.fuzz: {error}", file=sys.stderr)
        return 2
    if args.replay:
        well, said = run.replay(targets[0], programs.get(targets[0].name), args.replay)
        print(said)
        return 0 if well else 1
    if args.minimize:
        for target in targets:
            print(f"{target.name}: {run.minimize(target, programs.get(target.name), args.minimize)} inputs")
        return 0
    session = _Session(args, programs)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: session.stop())
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(session.fuzz, targets))
    console.print(_show(session.results), highlight=False)
    return 1 if any(result.finding for result in session.results) else 0


class _Session:
    """One target after the other, until time is up or somebody ends it: what was done by then counts and is written."""

    def __init__(self, args: argparse.Namespace, programs: dict[str, Path]) -> None:
        self.results: list[run.Result] = []
        self._args, self._programs = args, programs
        self._end = time.monotonic() + (args.within or math.inf)
        self._lock = threading.Lock()

    def stop(self) -> None:
        self._end = 0.0
        run.stop()

    def fuzz(self, target: Target) -> None:
        args, left = self._args, self._end - time.monotonic()
        if left < 1:
            return
        seconds = min(args.seconds or math.inf, left)
        limit = 0 if math.isinf(seconds) else int(seconds)
        limits = {"runs": args.runs, "seconds": limit, "seed": args.seed}
        result = run.fuzz(target, self._programs.get(target.name), **limits, guided=not args.unguided)
        verdict = f"broken by {result.finding}\n{result.said}" if result.finding else "nothing found"
        how = "" if result.guided else "unguided "
        with self._lock:
            print(f"{target.name}: {result.inputs:,} {how}inputs in {result.seconds} s, {verdict}", flush=True)
            self.results.append(result)
            if args.json:
                text = json.dumps([asdict(each) for each in self.results], indent=2, default=str)
                args.json.write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
