"""DistributedDataParallel over softnic and over Gloo, step by step or up to an accuracy: `python -m benchmarks.ddp`.

4 ranks in network namespaces, links of 1500-byte packets shaped by tbf (benchmarks.peers.namespaces), both backends by
turns in the same run; Gloo exact and with torch's fp16_compress_hook. Needs root, `ip` and `tc`, and torch. With
--emulated, softnic's ranks are on NICs with emulated links of the same rate instead, which spares them the kernel's
bridge and shapers.

  python -m benchmarks.ddp                                            # steps of HDC and of the ConvNet
  python -m benchmarks.ddp --model hdc --until 0.98 --ways exact bounded:10      # to 98 % test accuracy on MNIST
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.ddp.rank import EXACT, FP16, HOOK
from benchmarks.peers import namespaces
from benchmarks.peers.namespaces import Nics, Star
from softnic.cluster.cluster import Cluster
from softnic.cluster.supervisor import SupervisedProcess
from softnic.measure import timing
from softnic.measure.child_process import ChildProcesses, Start, rank_processes
from softnic.measure.progress import Measured, as_measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.units import counted, medians_of

HOSTS = 4
GLOO, SOFTNIC = "gloo", "softnic"
LIMIT_S = 600.0
"""Of one order."""
DELAY = "50us"
"""Of an emulated link."""
WAYS = (EXACT, "bounded:10", f"{HOOK}feedback:relative:0")
"""Of softnic: the last is error feedback with automatic bounds."""
_PORTS = {GLOO: 29500, SOFTNIC: 29501}
BackendAndCodec = tuple[str, str]
"""Backend, and what travels."""


@dataclass(frozen=True)
class StepRow:
    model: str = column("model")
    backend: str = column("backend")
    what: str = column("gradients")
    step_ms: float = column("ms a step", ".1f")
    of_gloo: float = column("of Gloo's")
    """Median over rounds of the quotient of the same round."""
    of_fp16: float = column("of Gloo's in fp16")
    """Likewise, of Gloo's step with its fp16 hook."""
    machine_cpu_ms: float = column("CPU ms, machine", ".1f")
    """A step, of everything that ran."""
    ranks_cpu_ms: float = column("ranks", ".1f")
    loss: float = column("last loss", ".4f")
    """Of the last step, mean over ranks."""
    off_gloo: float = column("losses off Gloo's", ".1g")
    """The largest distance of any step's loss from Gloo's."""


@dataclass(frozen=True)
class UntilRow:
    model: str = column("model")
    backend: str = column("backend")
    what: str = column("gradients")
    seconds: float = column("seconds", ".1f")
    faster: float = column("faster than Gloo")
    """How many times as fast as Gloo."""
    steps: int = column("steps")
    epochs: int = column("epochs")
    accuracy: float = column("test accuracy", ".2%")


@contextmanager
def started(star: Star, nics: Cluster, model: str, given: argparse.Namespace) -> Iterator[dict[str, ChildProcesses]]:
    """Ranks of both backends. Only those with an order do something."""
    data = [] if given.data is None else ["--data", str(given.data)]
    training = ["--model", model, "--batch", str(given.batch), "--rate", str(given.learning_rate), *data]
    with ExitStack() as stack:

        def on_host(rank: int, argv: Sequence[str], descriptors: Sequence[int]) -> SupervisedProcess:
            return star.spawn(star.hosts[rank], argv, descriptors)

        def start(backend: str, spawn: Start) -> ChildProcesses:
            address = "127.0.0.1" if backend == SOFTNIC and given.emulated else star.hosts[0].address
            master = f"tcp://{address}:{_PORTS[backend]}"
            options = ["--backend", backend, "--master", master, *training]
            module = "benchmarks.ddp.rank"
            ranks = rank_processes(spawn, HOSTS, module, *options, numbered=True, limit_s=LIMIT_S)
            return stack.enter_context(ranks)

        yield {GLOO: start(GLOO, on_host), SOFTNIC: start(SOFTNIC, nics.spawn)}


def steps(
    ranks: dict[str, ChildProcesses],
    model: str,
    ways: Sequence[BackendAndCodec],
    given: argparse.Namespace,
    progress: Progress,
) -> list[StepRow]:
    rounds: list[list[list[dict[str, Any]]]] = []
    for number in range(given.rounds):
        rounds.append([])
        for backend, what in ways:
            case = f"{model}, {backend} {what}, round {number + 1} of {given.rounds}"
            progress(case)
            rounds[-1].append(ranks[backend].order("steps", what, str(given.steps)))
            slowest = max(float(rank["seconds"]) for rank in rounds[-1][-1])
            progress(Measured(f"{case}: {slowest / given.steps * 1e3:.1f} ms a step"))

    def figures(at: int, name: str) -> list[float]:
        return [max(float(rank[name]) for rank in reported[at]) / given.steps * 1e3 for reported in rounds]

    def losses(at: int) -> list[float]:
        return [sum(shares) / HOSTS for shares in zip(*(rank["losses"] for rank in rounds[-1][at]), strict=True)]

    gloo, curve = figures(0, "seconds"), losses(0)
    fp16 = figures(ways.index((GLOO, FP16)), "seconds")
    return [
        StepRow(
            model,
            backend,
            what,
            timing.median(figures(at, "seconds")),
            timing.ratio(figures(at, "seconds"), gloo),
            timing.ratio(figures(at, "seconds"), fp16),
            timing.median(figures(at, "machine_cpu_s")),
            timing.median([sum(rank["cpu_s"] for rank in reported[at]) / given.steps * 1e3 for reported in rounds]),
            losses(at)[-1],
            max(abs(own - theirs) for own, theirs in zip(losses(at), curve, strict=True)),
        )
        for at, (backend, what) in enumerate(ways)
    ]


def until(
    ranks: dict[str, ChildProcesses],
    model: str,
    ways: Sequence[BackendAndCodec],
    given: argparse.Namespace,
    progress: Progress,
) -> list[UntilRow]:
    rows: list[UntilRow] = []
    for backend, what in ways:
        progress(f"{model}, {backend} {what}, to {given.until:.1%}")
        reported = ranks[backend].order("until", what, str(given.until), str(given.epochs))
        seconds = max(rank["seconds"] for rank in reported)
        faster = rows[0].seconds / seconds if rows else 1.0
        first = reported[0]
        row = UntilRow(model, backend, what, seconds, faster, first["steps"], first["epochs"], first["accuracy"])
        rows += as_measured([row], columns(UntilRow), progress)
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", nargs="+", default=["hdc", "convnet"], help="of softnic.experiments.compare (hdc convnet)"
    )
    parser.add_argument("--ways", nargs="+", default=list(WAYS), help=f"over softnic ({' '.join(WAYS)})")
    parser.add_argument("--batch", type=int, default=25, help="samples of a rank and step (25)")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--data", type=Path, help="a directory of MNIST's IDX files (scikit-learn's digits)")
    parser.add_argument("--link", choices=list(namespaces.SHAPES), default="1gbit")
    parser.add_argument("--emulated", action="store_true", help="softnic on emulated links, not on the shaped ones")
    parser.add_argument("--steps", type=int, default=50, help="measured in each round (50)")
    harness.add_rounds(parser, 3)
    parser.add_argument("--until", type=float, metavar="ACCURACY", help="train until this share of the test is right")
    parser.add_argument("--epochs", type=int, default=12, help="with --until, at most (12)")


def _nics(star: Star, given: argparse.Namespace) -> Cluster:
    return Cluster(HOSTS, rate=given.link, delay=DELAY) if given.emulated else Nics(star)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Any]]:
    harness.require_namespaces()
    harness.set_rank_environment()
    ways: list[BackendAndCodec] = [(GLOO, EXACT), (GLOO, FP16), *((SOFTNIC, what) for what in given.ways)]
    what = steps if given.until is None else until
    rows: list[Any] = []
    with Star(HOSTS) as star, _nics(star, given) as nics:
        star.shape(given.link)
        for model in given.model:
            with started(star, nics, model, given) as ranks:
                rows += what(ranks, model, ways, given, progress)
    settings = {name: str(value) for name, value in vars(given).items()}
    title = f"DistributedDataParallel, {HOSTS} ranks of {given.batch} samples each, links of {given.link}"
    if given.emulated:
        title += f", softnic's emulated with {DELAY} of delay"
    if given.until is None:
        notes = [
            f"{medians_of(given.rounds, 'round').capitalize()} of {counted(given.steps, 'step')}; backends by turns."
        ]
        return [MeasurementReport("ddp: steps", title, columns(StepRow), rows, settings, notes)]
    notes = [f"Until {given.until:.1%} of the test are right at the end of an epoch; without the time of the test."]
    return [MeasurementReport("ddp: training", title, columns(UntilRow), rows, settings, notes)]


if __name__ == "__main__":
    sys.exit(harness.main("ddp", __doc__, measured, add_options))
