"""mpi4py's own tests of collectives on one communicator, run on softnic.MPI: `python -m tests.comm.conformance DIR`.

DIR is the folder `test` of mpi4py's source distribution, whose files are run as they are, with softnic.MPI as
mpi4py.MPI, on 2, 3 and 4 ranks with a NIC each. A test that calls what softnic.MPI does not have is skipped, and so is
one that expects what softnic.MPI does otherwise; the table says why. A test passes if it does on every rank.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from softnic import MPI, Cluster

FILES = ("test_cco_buf", "test_cco_obj", "test_cco_nb_buf")
ARRAYS = ("ArrayArray", "ArrayNumPy")
"""The kinds of arrays that are used. Left out are those that say that they are in a GPU's memory, and those exported by
mpi4py's own DLPack producer, which frees what it exports while numpy still refers to it."""
PATIENCE_S = 600.0
MARK = "RESULT "
NO_DATATYPE, NO_OPERATION = object(), object()
ABSENT = {
    **dict.fromkeys(("LONG_DOUBLE", "C_LONG_DOUBLE_COMPLEX", "DATATYPE_NULL"), NO_DATATYPE),
    **dict.fromkeys(("MAXLOC", "MINLOC", "REPLACE", "NO_OP", "OP_NULL"), NO_OPERATION),
    "BOTTOM": object(),
}
"""Constants that the files name and softnic.MPI does not have, as null handles: mpi4py's tests leave these out."""
CALLED = ((r"COMM\.(\w+)\(", MPI.Comm), (r"\bdatatype\.(\w+)\(", MPI.Datatype), (r"\bop\.(\w+)\(", MPI.Op))
"""What tests call by name, and the class that has to have it."""
OTHERWISE = {"Get_error_class": "an error ends the communicator, and has no error class"}
"""What tests expect that softnic.MPI does otherwise, by a name in their source."""


class Outcome(NamedTuple):
    """What came of a test: `passed`, `skipped` or `failed`, and why."""

    result: str
    why: str = ""


def install() -> None:
    """Has `from mpi4py import MPI` give softnic.MPI."""
    package, face = types.ModuleType("mpi4py"), types.ModuleType("mpi4py.MPI")
    vars(face).update({name: value for name, value in vars(MPI).items() if not name.startswith("__")})
    vars(face).update(ABSENT)
    vars(face).update(
        get_vendor=lambda: ("softnic", (0, 1, 0)), Get_version=lambda: (3, 1), Query_thread=lambda: 3, THREAD_SINGLE=0
    )
    vars(package).update(MPI=face, __path__=[])
    sys.modules.update({"mpi4py": package, "mpi4py.MPI": face})


def tests_of(directory: Path) -> Iterator[tuple[str, unittest.TestCase]]:
    """All tests of the files, in the same order on each rank."""
    sys.path.insert(0, str(directory))
    arrays = importlib.import_module("arrayimpl")
    arrays.ArrayBackends[:] = [kind for kind in arrays.ArrayBackends if kind.__name__ in ARRAYS]
    for name in FILES:
        kinds = [kind for kind in vars(importlib.import_module(name)).values() if inspect.isclass(kind)]
        for case in [kind for kind in kinds if issubclass(kind, unittest.TestCase)]:
            for method in unittest.TestLoader().getTestCaseNames(case):
                yield f"{name}.{case.__name__}.{method}", case(method)


def reason_to_skip(test: unittest.TestCase) -> str:
    """Why softnic.MPI does not take a test. Empty: it does."""
    name = test.id().rpartition(".")[2]
    bodies = [vars(kind)[name] for kind in type(test).__mro__ if name in vars(kind)]
    source = "".join(inspect.getsource(body) for body in bodies)
    for pattern, kind in CALLED:
        absent = {called for called in re.findall(pattern, source) if not hasattr(kind, called)}
        if absent:
            return f"there is no {', '.join(sorted(absent))}"
    return next((why for word, why in OTHERWISE.items() if word in source), "")


def outcome_of(test: unittest.TestCase) -> Outcome:
    if why := reason_to_skip(test):
        return Outcome("skipped", why)
    result = unittest.TestResult()
    test.run(result)
    if result.wasSuccessful():
        return Outcome("skipped", result.skipped[0][1]) if result.skipped else Outcome("passed")
    [(_, trace), *_] = [*result.errors, *result.failures]
    return Outcome("failed", trace.strip().splitlines()[-1])


def rank_main(directory: Path) -> None:
    """One rank: runs all tests, and writes a line about each."""
    install()
    for name, test in tests_of(directory):
        print(MARK + json.dumps([name, *outcome_of(test)]), flush=True)


def run(directory: Path, ranks: int) -> dict[str, Outcome]:
    """By test, what came of it: failed if it did on any rank."""
    with tempfile.TemporaryDirectory() as logs, Cluster(nodes=ranks) as cluster, ExitStack() as stack:
        paths = [Path(logs) / f"log{rank}" for rank in range(ranks)]
        processes = []
        for rank, path in enumerate(paths):
            log = stack.enter_context(path.open("w"))
            command = [sys.executable, "-m", "tests.comm.conformance", str(directory), "--rank"]
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **cluster.env(rank)}
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        for process in processes:
            process.wait(PATIENCE_S)
        texts = [path.read_text() for path in paths]
    found = worst(texts)
    if any(process.returncode for process in processes) or not found:
        last = [text.strip().splitlines()[-1] for text in texts if text.strip()]
        found["the ranks"] = Outcome("failed", "; ".join(last))
    return found


def worst(logs: Sequence[str]) -> dict[str, Outcome]:
    """What all ranks' lines say of each test. A rank that says nothing of one has failed it."""
    order = ("skipped", "passed", "failed")
    said: dict[str, list[Outcome]] = {}
    for log in logs:
        for line in log.splitlines():
            if line.startswith(MARK):
                name, result, why = json.loads(line.removeprefix(MARK))
                said.setdefault(name, []).append(Outcome(result, why))
    return {
        name: max(outcomes, key=lambda outcome: order.index(outcome.result))
        if len(outcomes) == len(logs)
        else Outcome("failed", "a rank has ended before it")
        for name, outcomes in said.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="the folder with mpi4py's tests")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank_main(options.directory)
        return
    failed = False
    for ranks in options.ranks:
        found = run(options.directory, ranks)
        for name, (result, why) in found.items():
            if ranks == options.ranks[0] or result == "failed":
                print(f"{result:8}{name}  {why}".rstrip())
        counts = Counter(outcome.result for outcome in found.values())
        print(f"{ranks} ranks: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
        failed = failed or bool(counts["failed"])
    sys.exit(failed)


if __name__ == "__main__":
    main()
