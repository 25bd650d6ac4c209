"""How long exchanges of a model's gradients take: over real NICs, and in virtual time.

Large models are exchanged in part: pieces from all over the vector, and the time is scaled up to the whole, which
leaves out nothing but latencies that do not grow with the size. Every worker gets pieces of its own, so that sums have
the lengths that sums of independent gradients have.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from softnic.cluster import Cluster
from softnic.experiments.child_process import ChildProcess
from softnic.experiments.data import Floats
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.inceptionn import paper
from softnic.experiments.reproduce.parallel import ONE_THREAD
from softnic.experiments.timeline import Breakdown, Iteration, breakdowns
from softnic.model import programs
from softnic.sim.cluster import SimCluster
from softnic.sim.processes import Program as VirtualProgram
from softnic.sim.rank import SimRank
from softnic.sim.spec import ClusterSpec

RANK = "softnic.experiments.reproduce.rank"
PIECE_WORDS = 4096
STRATEGIES = {
    "WA": "wa",
    "WA+C": f"wa+{paper.FIG_12_CODEC}",
    "INC": "inc",
    "INC+C": f"inc+{paper.FIG_12_CODEC}",
}
"""The paper's names, and softnic.experiments.train's."""
DELAY = "20us"
"""Of an emulated link."""
VIRTUAL_DELAY_S = 1e-6
VIRTUAL_COALESCE_S = 20e-6
"""Of a link in virtual time: a switch's, and a network card's that moderates its interrupts."""
_LIMIT_S = 300.0


@dataclass(frozen=True)
class Sample:
    """What stands for a model's gradients in an exchange."""

    rows: Floats
    """One a worker."""
    scale: float
    """The whole, in multiples of a row."""

    @property
    def row_bytes(self) -> int:
        return 4 * int(self.rows.shape[1])

    @property
    def megabytes(self) -> float:
        """Of a row, in millions of bytes."""
        return self.row_bytes / 1e6

    @property
    def whole_bytes(self) -> float:
        return self.row_bytes * self.scale


def sample(floats: Floats, workers: int, most_bytes: int) -> Sample:
    """At most so many bytes a worker, of pieces evenly spread over the gradients; all of them where they are few
    enough, rotated by a part for each worker."""
    pieces = floats.size // PIECE_WORDS
    wanted = min(pieces, most_bytes // (4 * PIECE_WORDS))
    starts = np.arange(wanted) * pieces // wanted
    rows = []
    for worker in range(workers):
        own = (starts + worker * max(1, pieces // (workers * wanted) or pieces // workers)) % pieces
        rows.append(np.concatenate([floats[PIECE_WORDS * at : PIECE_WORDS * (at + 1)] for at in own]))
    return Sample(np.stack(rows), floats.size / rows[0].size)


def over_nics(context: Context, model: str, given: Sample, name: str, rate: str, rounds: int) -> Breakdown:
    """Seconds of an exchange of the whole of a model's gradients by a strategy of softnic.experiments.train, median
    over rounds: over as many NICs and processes as it takes, at this rate. Measured once a run: items that need the
    same take it as it is. Raises MeasurementError, ClusterError."""
    key = ("over NICs", model, name, rate, rounds)
    if key not in context.measured:
        context.measured[key] = _over_nics(context, given, name, rate, rounds)
    found: Breakdown = context.measured[key]
    return found


def _over_nics(context: Context, given: Sample, name: str, rate: str, rounds: int) -> Breakdown:
    parts = [Breakdown.mean(breakdowns(each)) for each in iterations_over_nics(context, given, name, rate, rounds)]
    middle = sorted(parts, key=lambda part: part.exchange + part.sum)[len(parts) // 2]
    scaled = (middle.exchange * given.scale, middle.sum * given.scale, middle.update * given.scale)
    return Breakdown(0.0, 0.0, scaled[0], scaled[1], scaled[2], middle.skew)


def iterations_over_nics(
    context: Context, given: Sample, name: str, rate: str, rounds: int
) -> list[tuple[Iteration, ...]]:
    """The same in full: each round, as every rank saw it, an aggregator last; of a row, not scaled up."""
    workers = len(given.rows)
    nodes = workers + (name.partition("+")[0] == "wa")
    with tempfile.TemporaryDirectory(prefix="softnic-reproduce-") as directory, ExitStack() as stack:
        stored = Path(directory) / "gradients.npy"
        np.save(stored, given.rows)
        cluster = stack.enter_context(Cluster(nodes=nodes, rate=rate, delay=DELAY, seed=context.settings.seed))
        start = partial(cluster.spawn, env={**os.environ, **ONE_THREAD})
        options = ("--strategy", name, "--gradients", str(stored), "--rounds", str(rounds))
        ranks = [stack.enter_context(ChildProcess(start, rank, RANK, *options)) for rank in range(nodes)]
        told = [rank.receive(_LIMIT_S)["iterations"] for rank in ranks]
    return list(zip(*([Iteration.from_json(each) for each in iterations] for iterations in told), strict=True))


def in_virtual_time(given: Sample, name: str, rate_bps: float, gamma: float) -> float:
    """Seconds of an exchange of the whole, sums (`gamma` seconds a byte) included, on links of this rate, by hosts and
    NICs that take no time. The second of two, when windows are open."""
    kind, _, codec = name.partition("+")
    workers = len(given.rows)
    vectors = [given.rows[index % workers].copy() for index in range(workers + (kind == "wa"))]

    def program(rank: SimRank) -> VirtualProgram:
        run = programs.worker_aggregator if kind == "wa" else programs.ring
        return run(rank, vectors[rank.index], gamma, codec)

    cluster = SimCluster(
        ClusterSpec(nodes=len(vectors), rate_bps=rate_bps, delay_s=VIRTUAL_DELAY_S, coalesce_s=VIRTUAL_COALESCE_S)
    )
    cluster.run(program)
    for vector, own in zip(vectors, given.rows, strict=False):
        vector[:] = own
    return cluster.run(program) * given.scale


def add_gamma(model: str) -> float:
    """Seconds a byte summed of the paper's aggregator: Table II's gradient sum, of three additions an iteration."""
    seconds = paper.TABLE_2[model].gradient_sum / paper.TABLE_2_ITERATIONS
    return seconds / ((paper.WORKERS - 1) * paper.MODEL_MB[model] * 2**20)
