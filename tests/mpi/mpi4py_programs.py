"""The programs of mpi4py's tutorial and its demos, run on softnic.MPI: `python -m tests.mpi.mpi4py_programs DIR`.

DIR is mpi4py's source distribution, unpacked. Its programs are run as they are, with a NIC for each rank. A program
runs if every rank ends with exit code 0 before the time limit. Programs that need windows, files, new processes, a GPU,
the Internet or a C library of MPI are not expected to run; the error of those that can be started is shown.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import softnic.mpi4py
from softnic import Cluster

LIMIT_S = 120.0
POOL = ("-m", "mpi4py.futures")


class Program(NamedTuple):
    """A program of the distribution, and how it is started."""

    path: str
    ranks: int = 4
    before: tuple[str, ...] = ()
    """Arguments of python before the path."""
    after: tuple[str, ...] = ()
    stdin: str = ""
    needs: str = ""
    """What softnic.MPI does not have and the program needs."""


class Result(NamedTuple):
    """What came of a program."""

    program: Program
    ran: bool
    seconds: float
    last: str
    """The last line of the output of a rank that failed."""


WINDOWS, FILES, PROCESSES, DEVICE = "windows", "files", "new processes", "a GPU"
INTERNET, LIBRARY = "the Internet", "a C library of MPI"
OSU = [
    f"demo/osu_{name}.py" for name in ("allgather", "alltoall", "alltoallv", "barrier", "bcast", "gather", "scatter")
]
REFERENCE = ["2.01", "2.08", "2.16", "2.29", "2.32", "2.34", "2.35", *(f"3.{n:02}" for n in range(1, 14) if n != 10)]
DEMOS = [
    Program("demo/helloworld.py"),
    *(Program(path) for path in OSU),
    *(Program(f"demo/osu_{name}.py", 2) for name in ("bibw", "bw", "latency", "multi_lat")),
    Program("demo/compute-pi/cpi-cco.py", stdin="100\n0\n"),
    Program("demo/compute-pi/cpi-rma.py", stdin="100\n0\n", needs=WINDOWS),
    Program("demo/compute-pi/cpi-dpm.py", 1, needs=PROCESSES),
    *(Program(f"demo/cuda-aware-mpi/use_{name}.py", 2, needs=DEVICE) for name in ("cupy", "numba")),
    *(Program(f"demo/futures/run_{name}.py", 5, POOL) for name in ("cpi", "hello", "primes", "mandelbrot", "julia")),
    Program("demo/futures/perf_primes.py", 5, POOL),
    Program("demo/futures/test_futures.py", 2, POOL),
    Program("test/test_util_pool.py", 2, POOL),
    Program("demo/futures/run_crawl.py", 5, POOL, needs=INTERNET),
    Program("demo/futures/perf_crawl.py", 5, POOL, needs=INTERNET),
    Program("demo/futures/test_service.py", 1, needs=PROCESSES),
    Program("demo/init-fini/test_0.py", 2, after=("thread_level=single", "errors=fatal")),
    *(Program(f"demo/init-fini/test_{name}.py", 2) for name in ("1", "2", "3", "4", "5", "6", "mpi40")),
    *(Program(f"demo/libmpi-cffi/test_{name}.py", 2, needs=LIBRARY) for name in ("helloworld", "latency", "ringtest")),
    Program("demo/mandelbrot/mandelbrot.py"),
    Program("demo/mandelbrot/mandelbrot-seq.py", 1),
    Program("demo/mandelbrot/mandelbrot-master.py", 1, needs=PROCESSES),
    *(Program(f"demo/mpi-ref-v1/ex-{name}.py", 3) for name in REFERENCE),
    Program("demo/nxtval/nxtval-threads.py", 5),
    Program("demo/nxtval/nxtval-dynproc.py", 5, needs=PROCESSES),
    *(Program(f"demo/nxtval/nxtval-{name}.py", 2, needs=WINDOWS) for name in ("mpi3", "onesided", "scalable")),
    *(Program(f"demo/profiling/{name}.py") for name in ("cpi", "ring", "threads")),
    Program("demo/reductions/test_reductions.py", 5),
    Program("demo/sequential/test_seq.py", 5),
    Program("demo/spawning/cpi-master.py", 1, needs=PROCESSES),
    Program("demo/test-run/run-script.py"),
    Program("demo/threads/sendrecv.py", 1),
    *(Program(f"demo/wrap-{name}/test.py", 2, needs=LIBRARY) for name in ("c", "cffi", "ctypes", "cython", "swig")),
]
NEEDS = {"MPI.File": FILES, "MPI.Win": WINDOWS, "Spawn": PROCESSES, "Get_parent": PROCESSES, "cupy": DEVICE}


def tutorial(directory: Path, place: Path) -> Iterator[Program]:
    """Write the programs of the tutorial to files of their own."""
    text = (directory / "docs" / "source" / "tutorial.rst").read_text()
    blocks = re.findall(r"::\n\n((?:[ ]+.*\n|\n)+)", text)
    programs = [textwrap.dedent(block) for block in blocks if "import MPI" in block and ">>>" not in block]
    for number, program in enumerate(programs, 1):
        path = place / f"tutorial-{number:02}.py"
        path.write_text(program)
        yield Program(str(path), needs=next((need for word, need in NEEDS.items() if word in program), ""))


def run(program: Program, directory: Path, cluster: Cluster, limit_s: float) -> Result:
    """Run a program in a copy of its folder."""
    source = directory / program.path
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "demo", source.parent.name)
        if directory / "demo" == source.parent.parent or source.parent.name == "test":
            shutil.copytree(source.parent, folder)
        else:
            folder.mkdir(parents=True)
            shutil.copy(source, folder)
        Path(made, "test").symlink_to(directory / "test")  # which programs find from their own place
        shim = softnic.mpi4py.environment({"PYTHONPATH": str(directory / "src")})
        logs = [Path(made, f"log{rank}").open("w+") for rank in range(program.ranks)]  # noqa: SIM115
        start = time.monotonic()
        processes = [
            start_rank(program, source.name, folder, {**shim, **cluster.env(rank)}, logs[rank])
            for rank in range(program.ranks)
        ]
        codes = [wait(process, start + limit_s) for process in processes]
        seconds = time.monotonic() - start
        texts = []
        for log in logs:
            log.seek(0)
            texts.append(log.read().strip())
            log.close()
    failed = [(code, text) for code, text in zip(codes, texts, strict=True) if code != 0]
    if not failed:
        return Result(program, True, seconds, "")
    code, text = next((each for each in failed if each[0] is not None), failed[0])
    last = text.splitlines()[-1] if text else ""
    return Result(program, False, seconds, f"hung: {last}" if code is None else last or f"exit code {code}")


def start_rank(
    program: Program, name: str, folder: Path, environment: dict[str, str], log: IO[str]
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, *program.before, str(folder / name), *program.after],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(program.stdin)
    process.stdin.close()
    return process


def wait(process: subprocess.Popen[str], until: float) -> int | None:
    """Return the exit code; None if the process had to be killed."""
    try:
        return process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="the source distribution of mpi4py")
    parser.add_argument("--only", default="", metavar="REGEX", help="programs whose paths match")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="time limit of a program")
    options = parser.parse_args()
    directory = options.directory.resolve()
    results = []
    with tempfile.TemporaryDirectory() as made:
        programs = [each for each in (*tutorial(directory, Path(made)), *DEMOS) if re.search(options.only, each.path)]
        for ranks in sorted({program.ranks for program in programs}):
            with Cluster(nodes=ranks) as cluster:
                for program in (each for each in programs if each.ranks == ranks):
                    result = run(program, directory, cluster, options.limit)
                    results.append(result)
                    word = "runs" if result.ran else "needs " + program.needs if program.needs else "FAILS"
                    path = program.path.removeprefix(made + "/").removeprefix("demo/")
                    print(f"{ranks} {word:20} {result.seconds:6.1f} s  {path}  {result.last}"[:200], flush=True)
    for kind in ("tutorial", "demo/"):
        mine = [result for result in results if kind in result.program.path]
        wanted = [result for result in mine if not result.program.needs]
        ran = sum(result.ran for result in wanted)
        others = len(mine) - len(wanted)
        print(f"{kind.strip('/')}: {ran} of {len(wanted)} run; {others} need what softnic.MPI does not have")
    sys.exit(any(not result.ran and not result.program.needs for result in results))


if __name__ == "__main__":
    main()
