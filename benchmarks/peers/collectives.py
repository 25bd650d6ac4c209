"""All-reduce over 4 hosts on shaped links: softnic's, blocking and nonblocking, Gloo's and Open MPI's.

All on the same floats; those of a digit classifier's gradients (`hdc`) for softnic's compressed ones only, as the time
of the others does not depend on what floats are. Each is a set of ranks that take orders (softnic.bench.rank); the time
of one all-reduce is its slowest rank's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.peers.namespaces import Nics, Star
from benchmarks.peers.open_mpi import mpirun
from softnic.bench.rank import CHECK, EXACT, ORDINARY, POSTED, REGISTERED
from softnic.experiments.traffic import NicTraffic
from softnic.measure import timing
from softnic.measure.child_process import ChildProcess, ChildProcesses, ProcessHandle, rank_processes
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementError, Progress, column, columns
from softnic.units import rate_bps

LIMIT_S = 120.0
"""Of one all-reduce, and of starting its ranks."""
DATA, GRADIENTS = "gaussian:0.01", "hdc"
GLOO_PORT = 29500
SOFTNIC, POSTING = "softnic", "softnic, nonblocking"
GLOO = "Gloo"
FP16 = "fp16"


class ReportedByFirst(ChildProcesses):
    """Ranks of which the first reports for all."""

    def receive(self) -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = super().receive()[0]["ranks"]
        return reported


@dataclass(frozen=True)
class AllreduceRow:
    rate: str = column("links")
    who: str = column("all-reduce")
    what: str = column("floats")
    seconds: float | None = column("seconds", ".3f", default=None)
    """Median; None: `why` tells why not."""
    bus_of_rate: float | None = column("bus / rate", default=None)
    """2 (N - 1) / N of the float32 bytes in that time, as part of the links' rate: above 1 only by compression."""
    machine_cpu_s: float | None = column("CPU s, machine", default=None)
    ranks_cpu_s: float | None = column("ranks", default=None)
    """Without the daemons, and without what the kernel does for nobody in particular."""
    max_error: float | None = column("max error", ".2g", default=None)
    data: str = column("data", lambda value: "" if value == DATA else value, default=DATA)
    of_limit: float | None = column("times bytes / rate", default=None)
    """Seconds, as a multiple of what the busiest NIC's payload takes at the links' rate."""
    than_exact: float | None = column("faster than Gloo", default=None)
    """How many times as fast as Gloo exact is, in the same run; and as Gloo in fp16."""
    than_fp16: float | None = column("in fp16", default=None)
    cpu_of_gloo: float | None = column("CPU, machine, of Gloo's", default=None)
    """`machine_cpu_s` as a multiple of what Gloo exact takes, in the same run: other programs' work is in both."""
    processes_cpu_s: float | None = column("CPU s, ranks and daemons", default=None)
    """Without the other programs of the machine; the kernel's work in softirqs is not in it."""
    processes_of_gloo: float | None = column("of Gloo's", default=None)
    why: str = column("", default="")


@dataclass(frozen=True)
class AllreducePeers:
    python: str
    """Interpreter of the peers' ranks: it has torch and mpi4py."""
    megabytes: float
    rounds: int
    rates: tuple[str, ...]
    codecs: tuple[str, ...]
    posted_codecs: tuple[str, ...] = ("bounded:8",)
    """What nonblocking calls are measured with, beside exact."""
    data: str = DATA

    @property
    def options(self) -> tuple[str, ...]:
        return ("--megabytes", str(self.megabytes), "--data", self.data)


def measure_allreduce(star: Star, nics: Nics, peers: AllreducePeers, progress: Progress) -> list[AllreduceRow]:
    rows: list[AllreduceRow] = []
    gradients = replace(peers, data=GRADIENTS)
    posted = (EXACT, *peers.posted_codecs)
    for rate in peers.rates:
        star.shape(rate)
        found: list[AllreduceRow] = []
        for who, module, orders, start, given in (
            (SOFTNIC, "", (EXACT, *peers.codecs), _softnic, peers),
            (POSTING, "", posted, _softnic, peers),
            (POSTING, "sklearn", peers.posted_codecs, _softnic, gradients),
            (GLOO, "torch", (EXACT, FP16), _gloo, peers),
            ("Open MPI", "mpi4py", (EXACT,), _mpi, peers),
            ("Open MPI, its ring", "mpi4py", (EXACT,), _mpi_ring, peers),
        ):
            python = sys.executable if start is _softnic else peers.python
            if lacks := missing(who, module, python):
                absent = AllreduceRow(rate, who, "", data=given.data, why=f"not installed: {lacks}")
                found += as_measured([absent], columns(AllreduceRow), progress)
                continue
            progress(f"{who}, {rate}")
            try:
                with start(star, nics, given) as ranks:
                    made = (_measure(who, order, rate, ranks, nics, given, progress) for order in orders)
                    for row in made:
                        found += as_measured([row], columns(AllreduceRow), progress)
            except MeasurementError as error:
                failed = AllreduceRow(rate, who, "", data=given.data, why=f"failed: {error}")
                found += as_measured([failed], columns(AllreduceRow), progress)
        rows += beside_gloo(found)
    return rows


def beside_gloo(rows: Sequence[AllreduceRow]) -> list[AllreduceRow]:
    """The same with how many times faster than Gloo each is, and its CPU time as a multiple of Gloo's."""
    gloo = {row.what: row.seconds for row in rows if row.who == GLOO and row.seconds}

    def faster(row: AllreduceRow, what: str) -> float | None:
        return gloo[what] / row.seconds if row.seconds and what in gloo else None

    exact = next((row for row in rows if (row.who, row.what) == (GLOO, EXACT)), None)

    def multiple(own: float | None, of: float | None) -> float | None:
        return own / of if own is not None and of else None

    return [
        replace(
            row,
            than_exact=faster(row, EXACT),
            than_fp16=faster(row, FP16),
            cpu_of_gloo=multiple(row.machine_cpu_s, exact.machine_cpu_s if exact else None),
            processes_of_gloo=multiple(row.processes_cpu_s, exact.processes_cpu_s if exact else None),
        )
        for row in rows
    ]


def _measure(
    who: str, what: str, rate: str, ranks: ChildProcesses, nics: Nics, peers: AllreducePeers, progress: Progress
) -> AllreduceRow:
    seconds, machine, own, processes, payload, error = [], [], [], [], [], 0.0
    softnic = who in (SOFTNIC, POSTING)
    order = (POSTED if who == POSTING else "") + what, REGISTERED if softnic else ORDINARY
    size = nics.nodes
    daemons = [nic.pid for nic in nics.nics] if softnic else []
    for number in range(-1, peers.rounds):
        progress(f"{who} {what}, {rate}, round {number + 1} of {peers.rounds}")
        if number < 0:
            error = max(each["max_error"] for each in ranks.order(*order, CHECK))
            continue
        before = [NicTraffic.of_node(nics, node).payload for node in range(size)]
        used = timing.cpu_s(daemons)
        reported = ranks.order(*order)
        used = timing.cpu_s(daemons) - used
        payload.append(max(NicTraffic.of_node(nics, node).payload - before[node] for node in range(size)))
        seconds.append(max(each["seconds"] for each in reported))
        machine.append(max(each["machine_cpu_s"] for each in reported))
        own.append(sum(each["cpu_s"] for each in reported))
        processes.append(own[-1] + used)
    median = timing.median(seconds)
    bus = 2 * (size - 1) / size * peers.megabytes * 1e6 * 8 / median
    limits = [sent * 8 / rate_bps(rate) for sent in payload]
    return AllreduceRow(
        who=who,
        what=what,
        rate=rate,
        seconds=median,
        bus_of_rate=bus / rate_bps(rate),
        machine_cpu_s=timing.median(machine),
        ranks_cpu_s=timing.median(own),
        processes_cpu_s=timing.median(processes),
        max_error=error,
        data=peers.data,
        of_limit=timing.ratio(seconds, limits) if softnic else None,
    )


def missing(who: str, module: str, python: str) -> str:
    """Return the program or module that a peer needs and this machine lacks, or an empty string."""
    if who.startswith("Open MPI") and shutil.which("mpirun") is None:
        return "mpirun"
    if module and subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
        return module
    return ""


def _softnic(_star: Star, nics: Nics, peers: AllreducePeers) -> AbstractContextManager[ChildProcesses]:
    return rank_processes(nics.spawn, nics.nodes, "softnic.bench.rank", *peers.options, limit_s=LIMIT_S)


def _gloo(star: Star, nics: Nics, peers: AllreducePeers) -> AbstractContextManager[ChildProcesses]:
    options = (*peers.options, "--master", f"tcp://{star.hosts[0].address}:{GLOO_PORT}")
    module = "benchmarks.peers.gloo_rank"
    return rank_processes(nics.spawn, nics.nodes, module, *options, python=peers.python, numbered=True, limit_s=LIMIT_S)


RING_OPTIONS = (*("--mca", "coll_tuned_use_dynamic_rules", "1"), *("--mca", "coll_tuned_allreduce_algorithm", "4"))


@contextmanager
def _mpi(star: Star, nics: Nics, peers: AllreducePeers, more: Sequence[str] = ()) -> Iterator[ChildProcesses]:
    command = mpirun(star, more)

    def start(node: int, argv: Sequence[str], descriptors: Sequence[int]) -> ProcessHandle:
        return nics.spawn(node, [*command, *argv], descriptors)

    with ChildProcess(start, 0, "benchmarks.peers.mpi_rank", *peers.options, python=peers.python) as program:
        ranks = ReportedByFirst([program], LIMIT_S)
        ranks.receive()
        yield ranks


def _mpi_ring(star: Star, nics: Nics, peers: AllreducePeers) -> AbstractContextManager[ChildProcesses]:
    return _mpi(star, nics, peers, RING_OPTIONS)
