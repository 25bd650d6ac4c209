"""mpi4py's own tests, and those of libraries on mpi4py, run on softnic.MPI: `python -m tests.mpi.conformance DIR`.

DIR is the folder `test` of mpi4py's source distribution, or, with `--modules communication`, `tests/core` of heat's
source. Modules are run as they are, but for those of windows, files, spawning and sessions, on 1, 2, 3
and 4 ranks with a NIC each. Each rank is one interpreter that runs all tests in the same order: whatever a test
leaves behind is there for the next one. Ranks begin each test together, so that a test that fails on one rank does not
meet the next one on another.

A test passes if it does on every rank. It hangs if a rank has not ended it after the time limit; that rank is then
interrupted. Ranks are started anew only if one has ended or cannot be interrupted, which the table says.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, NamedTuple

import softnic.mpi4py
from softnic import Cluster

EXCLUDED = ("file", "io", "rma", "rma_nb", "session", "spawn", "util_pool", "win")
"""What softnic.MPI does not have: windows, files, spawning and sessions. test_util_pool spawns its
workers; tests/mpi/mpi4py_programs.py runs it by `python -m mpi4py.futures`."""
LIMIT_S = 30.0
LONGER = {
    "test_util_dtlib.TestUtilDTLib.testStruct1": 30,
    "test_util_dtlib.TestUtilDTLib.testStruct2": 60,
    "test_util_dtlib.TestUtilDTLib.testStruct5": 5,
}
"""Multiples of the limit for tests that make thousands of datatypes, which takes each rank 10 s of CPU or more."""
START_S = 120.0
"""Time for all ranks to import the tests."""
GRACE_S = 5.0
"""From the interruption of a rank to its end by force."""
ENDED, KILLED = "a rank ended", "cannot be interrupted"
ORDER = ("skipped", "passed", "failed", "hung")


class Outcome(NamedTuple):
    """What came of a test on a rank or on all of them: a word of ORDER, why, and the trace."""

    result: str
    why: str = ""
    trace: str = ""


class Interrupted(BaseException):
    """Raised in a test that has taken too long."""


class Unloadable(unittest.TestCase):
    """In the place of the tests of a module that cannot be imported."""

    def __init__(self, module: str, error: Exception) -> None:
        super().__init__("load")
        self._module, self._error = module, error

    def id(self) -> str:
        return f"{self._module}.load"

    def load(self) -> None:
        raise self._error


def tests_of(directory: Path, modules: Sequence[str], only: str) -> list[unittest.TestCase]:
    """Return the tests of these modules, without any of all, whose names match, in the same order on each rank."""
    sys.path.insert(0, str(directory))
    for package in ("cupy", "numba"):
        sys.modules[package] = None  # type: ignore[assignment]
    names = sorted(path.stem for path in directory.glob("test_*.py"))
    short = {name: name.removeprefix("test_") for name in names}
    wanted = [name for name in names if (short[name] in modules if modules else short[name] not in EXCLUDED)]

    def flat(suite: Any) -> Iterator[unittest.TestCase]:
        for each in suite:
            yield from flat(each) if isinstance(each, unittest.TestSuite) else (each,)

    tests: list[unittest.TestCase] = []
    for name in wanted:
        try:
            tests += flat(unittest.TestLoader().loadTestsFromModule(importlib.import_module(name)))
        except Exception as error:
            tests.append(Unloadable(name, error))
    return [test for test in tests if re.search(only, test.id())]


def outcome_of(test: unittest.TestCase) -> Outcome:
    result = unittest.TestResult()
    try:
        unittest.TestSuite([test]).run(result)
    except Interrupted:
        return Outcome("hung", "interrupted", traceback.format_exc())
    if result.wasSuccessful():
        return Outcome("skipped", result.skipped[0][1]) if result.skipped else Outcome("passed")
    if result.unexpectedSuccesses:
        return Outcome("failed", "unexpected success")
    [(_, trace), *_] = [*result.errors, *result.failures]
    return Outcome("hung" if "Interrupted" in trace else "failed", trace.strip().splitlines()[-1], trace)


def rank_main(directory: Path, modules: Sequence[str], only: str, commands: int, results: int) -> None:
    """Run tests as one rank: those whose numbers are read, one a line. Writes a line of results for each."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if running:
            raise Interrupted

    running = False
    signal.signal(signal.SIGUSR1, interrupt)
    tests = tests_of(directory, modules, only)
    with open(commands) as orders, open(results, "w") as said:
        print(json.dumps([test.id() for test in tests]), file=said, flush=True)
        for order in orders:
            running = True
            outcome = outcome_of(tests[int(order)])
            running = False
            print(json.dumps(outcome), file=said, flush=True)


class RankProcess:
    """An interpreter that runs tests as one rank."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str], log: IO[str]) -> None:
        theirs, self._orders = os.pipe()
        self._results, said = os.pipe()
        command = [sys.executable, "-m", "tests.mpi.conformance", *arguments, "--rank", str(theirs), str(said)]
        self.process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, pass_fds=(theirs, said)
        )
        os.close(theirs)
        os.close(said)
        self._text = b""
        self._poll = select.poll()
        self._poll.register(self._results, select.POLLIN)

    def order(self, number: int) -> None:
        with suppress(BrokenPipeError):  # it has ended, which its answer shows
            os.write(self._orders, b"%d\n" % number)

    def answer(self, until: float) -> Any:
        """Return the next line of the rank; None: it has ended.

        Raises
        ------
        TimeoutError
            If it writes none until this time.
        """
        while b"\n" not in self._text:
            if not self._poll.poll(1000 * max(0.0, until - time.monotonic())):
                raise TimeoutError
            if not (data := os.read(self._results, 1 << 16)):
                return None
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._orders)
        os.close(self._results)


class Job:
    """Ranks that run tests together, and are started anew if they have to."""

    def __init__(self, options: argparse.Namespace, ranks: int) -> None:
        self._options, self._size = options, ranks
        self._stack = ExitStack()
        self._ranks: list[RankProcess] = []
        self._logs: list[Path] = []
        self.names: list[str] = []
        self.starts = 0

    def start(self) -> None:
        self.stop()
        self.starts += 1
        cluster = self._stack.enter_context(Cluster(nodes=self._size))
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        directory = self._options.directory.resolve()
        path = os.pathsep.join([str(directory.parent / "src"), os.environ.get("PYTHONPATH", "")])
        shim = softnic.mpi4py.environment({"PYTHONPATH": path})
        self._logs = [folder / f"log{rank}" for rank in range(self._size)]
        for rank in range(self._size):
            environment = {**os.environ, **shim, "PYTHONDONTWRITEBYTECODE": "1", **cluster.env(rank)}
            log = self._stack.enter_context(self._logs[rank].open("w"))
            chosen = ["--only", self._options.only, "--modules", *self._options.modules]
            self._ranks.append(RankProcess([str(directory), *chosen], environment, log))
        said = [rank.answer(time.monotonic() + START_S) for rank in self._ranks]
        if any(names is None or names != said[0] for names in said):
            raise SystemExit(f"the ranks have different tests, or cannot load them:\n{self._last_words()}")
        self.names = said[0]

    def stop(self) -> None:
        for rank in self._ranks:
            rank.close()
        self._ranks = []
        self._stack.close()

    def run(self, number: int) -> Outcome:
        """Run one test on all ranks; the worst of what they say."""
        if not self._ranks:
            self.start()
        for rank in self._ranks:
            rank.order(number)
        until = time.monotonic() + self._options.limit * LONGER.get(self.names[number], 1)
        outcomes = []
        for rank in self._ranks:
            try:
                answer = rank.answer(until)
            except TimeoutError:
                until = 0.0
                answer = self._interrupt(rank)
            outcomes.append(Outcome(*answer) if answer else Outcome("failed", f"{ENDED}: {self._last_words()}"))
        worst = max(outcomes, key=lambda outcome: ORDER.index(outcome.result))
        lost = any(outcome.why.startswith((ENDED, KILLED)) for outcome in outcomes)
        if lost or (self._options.restart and worst.result in ("failed", "hung")):
            self.stop()
        return worst

    def _interrupt(self, rank: RankProcess) -> Any:
        rank.process.send_signal(signal.SIGUSR1)
        try:
            return rank.answer(time.monotonic() + GRACE_S)
        except TimeoutError:
            rank.process.kill()
            rank.process.wait()
            return ["hung", KILLED]

    def _last_words(self) -> str:
        texts = [path.read_text(errors="replace").strip() for path in self._logs]
        return "; ".join(text.splitlines()[-1] for text in texts if text)


def run(options: argparse.Namespace, ranks: int) -> dict[str, Outcome]:
    """Return what came of each test."""
    job = Job(options, ranks)
    found: dict[str, Outcome] = {}
    try:
        job.start()
        for number, name in enumerate(job.names):
            found[name] = job.run(number)
            if options.verbose or found[name].result in ("failed", "hung"):
                print(f"{ranks} {found[name].result:8}{name}  {found[name].why}"[:240].rstrip(), flush=True)
    finally:
        job.stop()
    show(found, ranks, job.starts)
    return found


def show(found: dict[str, Outcome], ranks: int, starts: int) -> None:
    """Print what came of each module, and of all."""
    modules: dict[str, Counter[str]] = {}
    for name, outcome in found.items():
        modules.setdefault(name.split(".")[0], Counter())[outcome.result] += 1
    for module, counts in modules.items():
        print(f"  {module:28}" + "".join(f"{counts[result] or '':>6} {result:8}" for result in ORDER[1:] + ORDER[:1]))
    reasons = Counter(outcome.why for outcome in found.values() if outcome.result == "skipped")
    for why, count in sorted(reasons.items(), key=lambda each: -each[1]):
        print(f"  skipped {count:4}: {why}")
    counts = Counter(outcome.result for outcome in found.values())
    ran = sum(counts.values()) - counts["skipped"]
    text = ", ".join(f"{counts[result]} {result}" for result in ("passed", "failed", "hung", "skipped"))
    percent = 100 * (ran - counts["passed"]) / max(1, ran)
    print(f"{ranks} ranks: {text}; {percent:.1f} % of {ran} run not passed; ranks started {starts} times", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="the folder with mpi4py's tests")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--modules", nargs="*", default=[], metavar="NAME", help="test_NAME.py of these; without: all")
    parser.add_argument("--only", default="", metavar="REGEX", help="tests whose names match, as in test_op")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="time limit of a test")
    parser.add_argument("--restart", action="store_true", help="start the ranks anew after each test that fails")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what came of each test, with traces")
    parser.add_argument("--verbose", action="store_true", help="print a line about each test")
    parser.add_argument("--rank", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank_main(options.directory, options.modules, options.only, *options.rank)
        return
    found = {ranks: run(options, ranks) for ranks in options.ranks}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    sys.exit(any(outcome.result in ("failed", "hung") for each in found.values() for outcome in each.values()))


if __name__ == "__main__":
    main()
