"""All-reduce over 4 hosts on shaped links: softnic's ring, Gloo and Open MPI, on the same floats.

Each is a set of ranks that take orders (softnic.bench.rank); the time of one all-reduce is its slowest rank's.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.namespaces import Nics, Star
from softnic.bench import measure
from softnic.bench.programs import Program, Running
from softnic.bench.rank import CHECK, EXACT, ORDINARY, REGISTERED
from softnic.bench.report import BenchError, Column, Progress, figure
from softnic.units import rate_bps

LIMIT_S = 120.0
"""Of one all-reduce, and of starting its ranks."""
DATA = "gaussian:0.01"
GLOO_PORT = 29500
SOFTNIC = "softnic ring"


@dataclass(frozen=True)
class Ranks:
    """Those of one library. They tell one by one, or the first tells for all."""

    programs: Sequence[Program]
    told_by_first: bool = False

    def hear(self) -> list[dict[str, Any]]:
        if self.told_by_first:
            told: list[dict[str, Any]] = self.programs[0].hear(LIMIT_S)["ranks"]
            return told
        return [program.hear(LIMIT_S) for program in self.programs]

    def order(self, *words: str) -> list[dict[str, Any]]:
        for program in self.programs:
            program.say(" ".join(words))
        return self.hear()


@dataclass(frozen=True)
class AllreduceRow:
    who: str
    what: str
    rate: str
    seconds: float | None = None
    """Median; None: `why` tells why not."""
    bus_of_rate: float | None = None
    """2 (N - 1) / N of the float32 bytes in that time, as part of the links' rate: above 1 only by compression."""
    machine_cpu_s: float | None = None
    ranks_cpu_s: float | None = None
    """Without the daemons, and without what the kernel does for nobody in particular."""
    max_error: float | None = None
    why: str = ""


COLUMNS: list[Column[AllreduceRow]] = [
    Column("links", lambda row: row.rate, left=True),
    Column("all-reduce", lambda row: row.who, left=True),
    Column("floats", lambda row: row.what, left=True),
    Column("seconds", lambda row: figure(row.seconds, ".3f")),
    Column("bus / rate", lambda row: figure(row.bus_of_rate)),
    Column("CPU s, machine", lambda row: figure(row.machine_cpu_s)),
    Column("ranks", lambda row: figure(row.ranks_cpu_s)),
    Column("max error", lambda row: figure(row.max_error, ".2g")),
    Column("", lambda row: row.why, left=True),
]


@dataclass(frozen=True)
class Plan:
    python: str
    """Interpreter of the peers' ranks: it has torch and mpi4py."""
    megabytes: float
    rounds: int
    rates: tuple[str, ...]
    codecs: tuple[str, ...]

    @property
    def options(self) -> tuple[str, ...]:
        return ("--megabytes", str(self.megabytes), "--data", DATA)


def measure_allreduce(star: Star, nics: Nics, plan: Plan, progress: Progress) -> list[AllreduceRow]:
    rows = []
    for rate in plan.rates:
        star.shape(rate)
        for who, module, orders, start in (
            (SOFTNIC, "", (EXACT, *plan.codecs), _softnic),
            ("Gloo", "torch", (EXACT, "fp16"), _gloo),
            ("Open MPI", "mpi4py", (EXACT,), _mpi),
            ("Open MPI, its ring", "mpi4py", (EXACT,), _mpi_ring),
        ):
            if missing := _missing(who, module, plan.python):
                rows.append(AllreduceRow(who, "", rate, why=f"not installed: {missing}"))
                continue
            progress(f"{who}, {rate}")
            memory = REGISTERED if who == SOFTNIC else ORDINARY
            try:
                with start(star, nics, plan) as ranks:
                    for order in orders:
                        rows.append(_measure(who, order, memory, rate, ranks, star.hosts, plan, progress))
            except BenchError as error:
                rows.append(AllreduceRow(who, "", rate, why=f"failed: {error}"))
    return rows


def _measure(
    who: str, order: str, memory: str, rate: str, ranks: Ranks, size: int, plan: Plan, progress: Progress
) -> AllreduceRow:
    seconds, machine, own, error = [], [], [], 0.0
    for number in range(-1, plan.rounds):
        progress(f"{who} {order}, {rate}, round {number + 1} of {plan.rounds}")
        if number < 0:
            error = max(each["max_error"] for each in ranks.order(order, memory, CHECK))
            continue
        told = ranks.order(order, memory)
        seconds.append(max(each["seconds"] for each in told))
        machine.append(max(each["machine_cpu_s"] for each in told))
        own.append(sum(each["cpu_s"] for each in told))
    median = measure.median(seconds)
    bus = 2 * (size - 1) / size * plan.megabytes * 1e6 * 8 / median
    return AllreduceRow(
        who, order, rate, median, bus / rate_bps(rate), measure.median(machine), measure.median(own), error
    )


def _missing(who: str, module: str, python: str) -> str:
    if who.startswith("Open MPI") and shutil.which("mpirun") is None:
        return "mpirun"
    if module and subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
        return f"{module} for {python}"
    return ""


@contextmanager
def _softnic(_star: Star, nics: Nics, plan: Plan) -> Iterator[Ranks]:
    with ExitStack() as stack:
        yield _ready(
            Ranks(
                [
                    stack.enter_context(Program(nics.spawn, rank, "softnic.bench.rank", *plan.options))
                    for rank in range(nics.nodes)
                ]
            )
        )


@contextmanager
def _gloo(star: Star, nics: Nics, plan: Plan) -> Iterator[Ranks]:
    with ExitStack() as stack:
        yield _ready(
            Ranks(
                [
                    stack.enter_context(
                        Program(
                            nics.spawn,
                            rank,
                            "benchmarks.peers.gloo_rank",
                            *plan.options,
                            *("--rank", str(rank), "--size", str(nics.nodes)),
                            *("--master", f"tcp://{star.address(0)}:{GLOO_PORT}"),
                            python=plan.python,
                        )
                    )
                    for rank in range(nics.nodes)
                ]
            )
        )


MPI_OPTIONS = (
    *("--allow-run-as-root", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self"),
    *("--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"),
    *("--mca", "mpi_yield_when_idle", "1"),
)
RING_OPTIONS = (
    *("--mca", "coll_tuned_use_dynamic_rules", "1"),
    *("--mca", "coll_tuned_allreduce_algorithm", "4"),
)


@contextmanager
def _mpi(star: Star, nics: Nics, plan: Plan, more: Sequence[str] = ()) -> Iterator[Ranks]:
    hosts = star.warden.directory / "hosts"
    hosts.write_text("".join(f"{star.address(host)} slots=1\n" for host in range(star.hosts)))
    through = ["unshare", "--uts", "sh", "-c", 'hostname peer1; exec "$@"', "mpirun", "mpirun"]
    mpirun = [*through, "-np", str(star.hosts), "--hostfile", str(hosts), *MPI_OPTIONS, *more]
    mpirun += ["--mca", "plm_rsh_agent", str(star.remote_shell()), "-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS"]

    def start(node: int, argv: Sequence[str], descriptors: Sequence[int]) -> Running:
        return nics.spawn(node, [*mpirun, *argv], descriptors)

    with Program(start, 0, "benchmarks.peers.mpi_rank", *plan.options, python=plan.python) as program:
        yield _ready(Ranks([program], told_by_first=True))


@contextmanager
def _mpi_ring(star: Star, nics: Nics, plan: Plan) -> Iterator[Ranks]:
    with _mpi(star, nics, plan, RING_OPTIONS) as ranks:
        yield ranks


def _ready(ranks: Ranks) -> Ranks:
    ranks.hear()
    return ranks


Starter = Callable[[Star, Nics, Plan], Any]
