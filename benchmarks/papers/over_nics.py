"""Exchanges of a model's gradients over real NICs, timed, and the samples that stand for large models.

Large models are exchanged in part: pieces from all over the vector, and the time is scaled up to the whole, which
leaves out only latencies that do not grow with the size. Every worker gets pieces of its own, so that sums have the
lengths that sums of independent gradients have.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import python_path
from benchmarks.papers import networks
from benchmarks.papers.context import Context, needs_torch
from benchmarks.papers.inceptionn import paper
from softnic.cluster.cluster import Cluster
from softnic.experiments.data import Floats
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.runner import ONE_THREAD, RankPool
from softnic.experiments.timeline import Breakdown, Iteration, breakdowns

RATE = "1gbit"
LINK = {"rate": RATE, "delay": "20us"}
"""Properties of an emulated link."""
TIMES = "inceptionn-times"
"""The shared file of exchanges and computations that Table II and Figs. 12 and 13 are made of."""
RANK = "benchmarks.papers.rank"
PIECE_WORDS = 4096
SAMPLE_BYTES, QUICK_BYTES = 8 << 20, 1 << 18
STRATEGIES = {
    "WA": "wa",
    "WA+C": f"wa+{paper.FIG_12_CODEC}",
    "INC": "inc",
    "INC+C": f"inc+{paper.FIG_12_CODEC}",
}
"""Strategies of softnic.experiments.train, by INCEPTIONN's names."""
_LIMIT_S = 300.0


@dataclass(frozen=True)
class Sample:
    """The floats that stand for a model's gradients in an exchange."""

    rows: Floats
    """One row per worker."""
    scale: float
    """Size of the whole, in rows."""


@dataclass(frozen=True)
class SampleSize:
    """Bytes of one worker's gradients in an exchange."""

    row_bytes: int
    """Of the sample."""
    whole_bytes: int
    """Of the model."""

    @property
    def scale(self) -> float:
        """Size of the whole, in rows."""
        return self.whole_bytes / self.row_bytes

    @property
    def megabytes(self) -> float:
        """Size of a row in 10^6 bytes."""
        return self.row_bytes / 1e6


def sample(floats: Floats, workers: int, most_bytes: int) -> Sample:
    """Draw pieces evenly from the gradients, at most `most_bytes` for each worker.

    Where all gradients fit, every worker gets all of them, rotated by another distance.
    """
    size = _size_of(floats.size, most_bytes)
    pieces, wanted = floats.size // PIECE_WORDS, size.row_bytes // (4 * PIECE_WORDS)
    starts = np.arange(wanted) * pieces // wanted
    rows = []
    for worker in range(workers):
        own = (starts + worker * max(1, pieces // (workers * wanted) or pieces // workers)) % pieces
        rows.append(np.concatenate([floats[PIECE_WORDS * at : PIECE_WORDS * (at + 1)] for at in own]))
    return Sample(np.stack(rows), size.scale)


def _size_of(words: int, most_bytes: int) -> SampleSize:
    pieces = min(words // PIECE_WORDS, most_bytes // (4 * PIECE_WORDS))
    return SampleSize(4 * PIECE_WORDS * pieces, 4 * words)


def sample_of(context: Context, model: str) -> Sample:
    """Return the sample of a model's late gradients that is exchanged, for the paper's four workers.

    Raises ReproduceError without the model's framework.
    """
    return context.once(
        ("sample", model), lambda: sample(context.stages(model)[-1].floats, paper.WORKERS, sample_bytes(context))
    )


def sample_size(context: Context, model: str) -> SampleSize:
    """Return the size of the model's sample, for which no gradients need to be made. Raises ReproduceError."""
    with needs_torch(paper.TITLES[model]):
        words = context.once(("parameters", model), lambda: _parameters(context, model))
    return _size_of(words, sample_bytes(context))


def _parameters(context: Context, model: str) -> int:
    if model == "hdc":
        return Classifier(context.data.features, np.random.default_rng(0)).parameters.size
    return networks.parameter_bytes(model, context.settings.classes) // 4


def sample_bytes(context: Context) -> int:
    """Return the most bytes of a model that are exchanged."""
    return QUICK_BYTES if context.quick else SAMPLE_BYTES


def over_nics(context: Context, model: str, strategy: str) -> Breakdown:
    """Return the seconds of an exchange of all of a model's gradients, the median over rounds.

    A file that several items read keeps them. Raises MeasurementError, ClusterError.
    """
    rounds = 1 if context.quick else 5
    row_bytes = sample_size(context, model).row_bytes
    settings = {**gradients_of(context), "link": LINK, "bytes": row_bytes, "rounds": rounds}
    unit = f"{paper.TITLES[model]}, {strategy} over NICs"

    def measure() -> Breakdown:
        return _measured(context, sample_of(context, model), strategy, rounds)

    return context.shared(TIMES).once(unit, settings, measure, Breakdown)


def gradients_of(context: Context) -> dict[str, object]:
    """Return what gradients depend on, as settings of a unit."""
    return {"data": context.data.name, "gradients": asdict(context.settings)}


def _measured(context: Context, given: Sample, strategy: str, count: int) -> Breakdown:
    rounds = iterations_over_nics(context, given, strategy, count)
    parts = sorted(map(Breakdown.mean, map(breakdowns, rounds)), key=lambda part: part.exchange + part.sum)
    middle, scale = parts[len(parts) // 2], given.scale
    return Breakdown(0.0, 0.0, middle.exchange * scale, middle.sum * scale, middle.update * scale, middle.skew)


def iterations_over_nics(context: Context, given: Sample, strategy: str, rounds: int) -> list[tuple[Iteration, ...]]:
    """Return each round of an exchange of the rows, as every rank saw it, an aggregator last. Times are not scaled up.

    `strategy` is one of softnic.experiments.train's.
    """
    nodes = len(given.rows) + (strategy.partition("+")[0] == "wa")
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": python_path()}
    with tempfile.TemporaryDirectory(prefix="softnic-reproduce-") as directory:
        stored = Path(directory) / "gradients.npy"
        np.save(stored, given.rows)
        options = ("--strategy", strategy, "--gradients", str(stored), "--rounds", str(rounds))
        with (
            Cluster(nodes=nodes, seed=context.settings.seed, **LINK) as cluster,  # type: ignore[arg-type]
            RankPool(cluster, RANK, *options, env=environment) as processes,
        ):
            reports = processes.collect("iterations", limit_s=_LIMIT_S)
    by_rank = ([Iteration.from_json(each) for each in report["iterations"]] for report in reports)
    return list(zip(*by_rank, strict=True))
