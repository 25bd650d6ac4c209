"""mpi4py's OSU programs on softnic.MPI beside Open MPI over TCP: `python -m benchmarks.osu DIR`.

DIR is mpi4py's source distribution, unpacked; its demo/osu_bw.py (windows of 64 Isend and Irecv), osu_bibw.py (the same
both ways) and osu_latency.py run as they are, up to a size, on two hosts in network namespaces whose link is not
shaped, by turns in the same run. Needs root, `ip` and `tc`, mpirun, and an interpreter with mpi4py on Open MPI.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.peers.namespaces import Nics, Star
from benchmarks.peers.open_mpi import mpirun
from softnic import mpi4py
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns
from softnic.measure.timing import median, ratio
from softnic.units import medians_of

LIMIT_S = 300.0
"""Of one program."""
UNITS = {"bw": "MB/s", "bibw": "MB/s", "latency": "us"}
_WINDOWS = "skip=5, loop=50, skip_large=2, loop_large=10"
LOOPS = {"bw": _WINDOWS, "bibw": _WINDOWS, "latency": "skip=100, loop=1000"}
"""Fewer than the programs have by default."""


@dataclass(frozen=True)
class OsuRow:
    program: str = column("program")
    size: int = column("bytes")
    unit: str = column("")
    softnic: float = column("softnic", ".1f")
    open_mpi: float = column("Open MPI, tcp", ".1f")
    """Medians over rounds."""
    quotient: float = column("softnic / Open MPI", ".2f")
    """Median over rounds of the quotient of the same round."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, help="the source distribution of mpi4py")
    parser.add_argument("--python", default=sys.executable, help="interpreter with mpi4py on Open MPI (this one)")
    parser.add_argument("--programs", nargs="+", choices=list(UNITS), default=list(UNITS))
    parser.add_argument("--cpu", action="store_true", help="processor time of rank 0 instead of time")
    parser.add_argument("--max-bytes", type=int, default=1 << 20, help="largest message (1048576)")
    harness.add_rounds(parser, 3)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[OsuRow]]:
    harness.require_namespaces()
    harness.set_rank_environment()
    if shutil.which("mpirun") is None:
        raise MeasurementError("mpirun is not installed: apt-get install openmpi-bin")
    found: dict[tuple[str, str], list[dict[int, float]]] = {}
    with Star(2) as star, Nics(star) as nics:
        for number in range(given.rounds):
            for name in given.programs:
                place = f"import sys; sys.path.insert(0, {str(given.directory.resolve() / 'demo')!r})"
                call = f"osu_{name}({LOOPS[name]}, MAX_MSG_SIZE={given.max_bytes})"
                clock = "import time; from mpi4py import MPI; MPI.Wtime = time.process_time; " if given.cpu else ""
                program = f"{place}; {clock}from osu_{name} import osu_{name}; {call}"
                for who in ("softnic", "Open MPI"):
                    what = f"osu_{name} on {who}, round {number + 1} of {given.rounds}"
                    progress(what)
                    output = _softnic(nics, program) if who == "softnic" else _open_mpi(star, nics, given, program)
                    figures = _figures(output)
                    found.setdefault((name, who), []).append(figures)
                    progress(Measured(f"{what}: {', '.join(f'{size} B {each:g}' for size, each in figures.items())}"))
    rows = []
    for name in given.programs:
        own, other = found[name, "softnic"], found[name, "Open MPI"]
        for size in own[0]:
            pairs = [each[size] for each in own], [each[size] for each in other]
            rows.append(OsuRow(f"osu_{name}", size, UNITS[name], median(pairs[0]), median(pairs[1]), ratio(*pairs)))
    title = "mpi4py's demo/osu_*.py between two namespaces, packets of 1500 bytes, not shaped"
    notes = [f"{medians_of(given.rounds, 'round').capitalize()}, by turns."]
    if given.cpu:
        notes.append("In processor time of rank 0, which sends in osu_bw, without its NIC's.")
    settings = {"rounds": given.rounds, "cpu": given.cpu, "max_bytes": given.max_bytes, "processors": os.cpu_count()}
    return [MeasurementReport("osu", title, columns(OsuRow), rows, settings, notes)]


def _softnic(nics: Nics, program: str) -> str:
    environment = {**os.environ, **mpi4py.environment(os.environ)}
    return _output(nics, [[sys.executable, "-c", program]] * nics.nodes, environment)


def _open_mpi(star: Star, nics: Nics, given: argparse.Namespace, program: str) -> str:
    return _output(nics, [[*mpirun(star), given.python, "-c", program]], os.environ)


def _output(nics: Nics, commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> str:
    """Run one command on each of the first hosts and return what the first one writes. Raises MeasurementError."""
    with tempfile.TemporaryFile("w+") as out, Path(os.devnull).open() as null:
        processes = []
        for node, command in enumerate(commands):
            descriptors = [null.fileno(), out.fileno(), out.fileno()]
            processes.append(nics.spawn(node, command, descriptors, environment))
        codes = [process.wait(LIMIT_S) for process in processes]
        for process in processes:
            process.signal(signal.SIGKILL)
        out.seek(0)
        text = out.read()
    if any(code != 0 for code in codes):
        raise MeasurementError(f"{' '.join(commands[0])[:60]} ...: {(text.strip().splitlines() or ['no message'])[-1]}")
    return text


def _figures(output: str) -> dict[int, float]:
    """Return the figure of each size."""
    lines = [line.split() for line in output.splitlines() if line.strip() and not line.startswith("#")]
    return {int(words[0]): float(words[1]) for words in lines if len(words) == 2 and words[0].isdigit()}


if __name__ == "__main__":
    sys.exit(harness.main("osu", __doc__, measured, add_options))
