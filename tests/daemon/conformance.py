"""CPython's own tests of sockets, run over a NIC: `python -m tests.daemon.conformance [PATTERN...]`.

Each suite is a module of the interpreter's test package (`python -c "import test.test_socket"`). It runs in a process
that has called `softnic.install()`, on one node, to which the tests' loopback address belongs. A test without progress
for a minute is ended and reported as hung; the remaining ones run in another process.

What is expected to fail, and why, is in conformance_known.py; the table of docs/sockets.md has the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
import unittest
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import softnic
from tests.daemon.conformance_known import NOT_RUN, SUITES, may_pass, reason_of
from tests.daemon.nics import running

HUNG_S = 60.0
PYTHON = (3, 11)
"""The version of CPython whose tests conformance_known.py describes."""
MARK = "CONFORMANCE "


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", choices=("list", "run"), help=argparse.SUPPRESS)
    parser.add_argument("patterns", nargs="*", help="only tests whose name contains one of these")
    options = parser.parse_args()
    if options.child:
        softnic.install()
        (list_tests if options.child == "list" else run_tests)(sys.stdin.read().split())
        return 0
    outcomes = run(options.patterns)
    for name, (outcome, why) in outcomes.items():
        known = reason_of(name)
        print(outcome, name, f"[expected: {known}]" if known else "", why.splitlines()[-1][:160] if why else "")
    wrong = unexpected(outcomes)
    counts = [f"{sum(outcome == kind for outcome, _ in outcomes.values())} {kind}" for kind in KINDS]
    print(f"{', '.join(counts)}; {len(wrong)} not as expected", *wrong, sep="\n  ")
    return bool(wrong)


KINDS = ("passed", "skipped", "failed")


def unexpected(outcomes: dict[str, tuple[str, str]]) -> list[str]:
    """Return the tests that failed unexpectedly and those that passed although a failure was expected."""
    wrong = []
    for name, (outcome, why) in outcomes.items():
        known = reason_of(name)
        if outcome == "failed" and not known:
            wrong.append(f"{name} failed: {why}")
        elif outcome == "passed" and known and not may_pass(name):
            wrong.append(f"{name} passed, although {known}")
    return wrong


# -- the process that starts the NIC


def run(patterns: Sequence[str] = (), suites: Iterable[str] = tuple(SUITES)) -> dict[str, tuple[str, str]]:
    """Runs the suites; returns each test's outcome and reason."""
    outcomes: dict[str, tuple[str, str]] = {}
    with running(1) as [nic]:
        environment = {**os.environ, "SOFTNIC_NIC": nic.path, "PYTHONWARNINGS": "ignore"}
        environment["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), environment.get("PYTHONPATH", "")])
        for suite in suites:
            with child("list", [suite], environment) as (process, _):
                assert process.stdout is not None
                names = [line.removeprefix(MARK).strip() for line in process.stdout.read().decode().splitlines()]
            left = [name for name in names if not patterns or any(pattern in name for pattern in patterns)]
            outcomes |= run_all(left, environment)
    return outcomes


def run_all(names: Sequence[str], environment: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Runs tests, in a new process after each that hung or died."""
    outcomes: dict[str, tuple[str, str]] = {}
    while left := [name for name in names if name not in outcomes]:
        outcomes |= run_some(left, environment)
        print(f"{left[0]} and others: {len(left)} begun, {len(outcomes)} done", file=sys.stderr, flush=True)
    return outcomes


@contextlib.contextmanager
def child(
    what: str, names: Sequence[str], environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Yields a process that lists or runs tests in its own directory, and its log file."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        command = [sys.executable, "-m", "tests.daemon.conformance", "--child", what]
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                command, env=environment, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            ) as process,
        ):
            assert process.stdin is not None
            process.stdin.write("\n".join(names).encode())
            process.stdin.close()
            try:
                yield process, log
            finally:
                process.kill()


def run_some(names: Sequence[str], environment: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Runs tests in one process until one hangs or ends the process."""
    found: dict[str, tuple[str, str]] = {}
    current = names[0]
    with child("run", names, environment) as (process, log):
        assert process.stdout is not None
        descriptor, rest = process.stdout.fileno(), b""
        while True:
            if not select.select([descriptor], [], [], HUNG_S)[0]:
                return found | {current: ("failed", f"hung for {HUNG_S:.0f} s")}
            data = os.read(descriptor, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(MARK.encode()):
                    name, outcome, why = json.loads(line.removeprefix(MARK.encode()))
                    current = name
                    if outcome != "started":
                        found[name] = outcome, why
            if not data:
                if len(found) < len(names) and current not in found:
                    found[current] = "failed", f"ended the process: {log.read_text()[-500:]}"
                return found


# -- the process that runs the tests


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


def list_tests(suites: Sequence[str]) -> None:
    for suite in suites:
        classes = SUITES[suite]
        for test in cases(unittest.defaultTestLoader.loadTestsFromName(suite)):
            is_run = classes is None or type(test).__name__ in classes
            if is_run and test.id().removeprefix(f"{suite}.") not in NOT_RUN:
                print(MARK + test.id())


class Reporter(unittest.TestResult):
    """Reports the start and the outcome of each test."""

    def say(self, test: unittest.TestCase, outcome: str, why: str = "") -> None:
        self.outcome = outcome
        os.write(self.descriptor, (MARK + json.dumps([test.id(), outcome, why[-2000:]]) + "\n").encode())

    descriptor = 1
    outcome = ""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.say(test, "started")

    def addSuccess(self, test: unittest.TestCase) -> None:
        if self.outcome == "started":
            self.say(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.say(test, "skipped", reason)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.say(test, "failed", "".join(traceback.format_exception(*err)))

    addFailure = addError

    def addSubTest(self, test: unittest.TestCase, _: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.addError(test, err)

    def addExpectedFailure(self, test: unittest.TestCase, _: Any) -> None:
        self.say(test, "passed")


def run_tests(names: Sequence[str]) -> None:
    Reporter.descriptor = os.dup(1)
    os.dup2(2, 1)  # keeps the output of tests out of the report
    result = Reporter()
    loader = unittest.defaultTestLoader
    loader.loadTestsFromNames(names).run(result)


if __name__ == "__main__":
    sys.exit(main())
