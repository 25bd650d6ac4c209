"""Trainings whose weights travel with few bits: each network at each batch, with every precision and with AWP.

The work of four workers and an aggregator is computed in one process: all workers hold the same weights, rounded as
the network rounds them, so the mean of their gradients is that of the whole batch. Steps are taken on the weights in
full precision. Errors are those of the rounded weights, the only ones that a worker has.

T is found as in section V-A: from the mean change of all norms, from the beginning of the training with 32 bits until
its error on the test set has dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.context import Context, require_torch
from benchmarks.papers.item import ReproduceError
from benchmarks.papers.learner import block_of, learner, samples
from benchmarks.papers.units import Unit, made
from benchmarks.papers.workers import Server, Workers
from softnic import codecs
from softnic.experiments.data import batches, load
from softnic.experiments.replica import Replica
from softnic.gradients.adt import next_widths, packed
from softnic.gradients.awp import AWP, MOST_BITS, FixedPrecision, Monitor, Precision
from softnic.measure.kept import ResultFile

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
"""Section IV-B."""
FILE = "a2dtwp-trainings"
"""Where trainings and their costs are kept, of Tables II and III and of Figs. 3 to 5."""
FIXED_BITS = (8, 16, 24, 32)
AWP_NAME = "A2DTWP"
BASELINE = str(MOST_BITS)
"""The name of the paper's baseline, the trainings with 32 bits."""
TARGET_SHARE = 0.6
"""Share of the steps within which the baseline's best error becomes the target of all precisions."""
_DROP = 0.05
"""Drop of the error since the first evaluation that ends the monitored period."""


@dataclass(frozen=True)
class WeightPlan:
    """One model at one batch."""

    model: str
    batch: int
    """Of all workers together, as in the paper."""
    rate: float
    steps: int = 500
    eval_every: int = 25
    """Steps between evaluations."""
    tested: int = 2000
    """Images of the test set that an evaluation uses."""
    interval: int = 25
    """AWP's INTERVAL, in batches: a twentieth of the training, as one epoch is of AlexNet's twenty (Fig. 5)."""
    seed: int = 7

    @property
    def title(self) -> str:
        """Model and batch as the tables name them."""
        return f"{paper.TITLES[self.model]}, batch {self.batch}"


@dataclass(frozen=True)
class WeightTraining:
    """The course of one training: lists with an element for each evaluation."""

    steps: list[int] = field(default_factory=list)
    """Steps taken."""
    errors: list[float] = field(default_factory=list)
    """On the test set then, 0..1."""
    sent: list[int] = field(default_factory=list)
    """Bytes of weights sent to each worker until then."""
    bits: list[float] = field(default_factory=list)
    """Mean over the weights, without biases, of the last step before."""
    threshold: float = 0.0
    """T as monitored, for the training with 32 bits; T as used, for AWP's."""

    @property
    def target(self) -> float:
        """The error to reach: of this training, the baseline, the best in the first part of its steps."""
        limit = TARGET_SHARE * self.steps[-1]
        within = [error for step, error in zip(self.steps, self.errors, strict=True) if step <= limit]
        return min(within or self.errors)

    def reaches(self, error: float) -> int | None:
        """The index of the first evaluation with an error that is no larger; None if there is none."""
        return next((index for index, seen in enumerate(self.errors) if seen <= error), None)


def sized(context: Context, plan: WeightPlan) -> WeightPlan:
    """Return the plan; with --quick one of a few steps."""
    return replace(plan, steps=6, eval_every=2, tested=100, interval=2) if context.quick else plan


def over_seeds(
    context: Context, file: ResultFile, plans: Sequence[WeightPlan], fixed: Sequence[int]
) -> dict[WeightPlan, dict[str, list[WeightTraining]]]:
    """Train each plan with every seed, by fixed bits and by A2DTWP, or read what the file has of these trainings.

    Parameters
    ----------
    file
        Keeps each training as soon as it is done.
    fixed
        Bits, 32 among them: A2DTWP has the T that these give with the same seed.

    Returns
    -------
    dict
        For each plan, trainings in the order of the seeds, by precision: `8`, `32`, `A2DTWP`.

    Raises
    ------
    ReproduceError
        Torch is missing, or a baseline diverges.
    OSError
        The file cannot be written.
    """
    if any(plan.model != "hdc" for plan in plans):
        require_torch("A2DTWP's networks")
    seeded = [replace(plan, seed=seed) for plan in plans for seed in context.seeds]
    done = _made(context, file, [(plan, bits, 0.0) for plan in seeded for bits in fixed])
    thresholds = [done[_unit(plan, MOST_BITS)].threshold for plan in seeded]
    done |= _made(context, file, [(plan, None, each) for plan, each in zip(seeded, thresholds, strict=True)])
    precisions: dict[str, int | None] = {**{str(bits): bits for bits in fixed}, AWP_NAME: None}
    return {
        plan: {
            name: [done[_unit(replace(plan, seed=seed), bits)] for seed in context.seeds]
            for name, bits in precisions.items()
        }
        for plan in plans
    }


def _unit(plan: WeightPlan, bits: int | None) -> str:
    return f"{plan.title}, {AWP_NAME if bits is None else f'{bits} bits'}, seed {plan.seed}"


def _made(
    context: Context, file: ResultFile, cases: Sequence[tuple[WeightPlan, int | None, float]]
) -> dict[str, WeightTraining]:
    """Return trainings by unit, from the file or made now on all cores; a case has plan, bits and T."""
    units = {}
    for plan, bits, threshold in cases:
        settings = {**asdict(plan), "bits": bits, "data": context.data.name}
        units[_unit(plan, bits)] = Unit(settings, (context.data_path, plan, bits, threshold))
    return made(file, WeightTraining, trained, units, context.progress, here=context.quick)


def trained(path: Path, plan: WeightPlan, bits: int | None, threshold: float) -> WeightTraining:
    """Train with weights of fixed width, or (None) with AWP and this T. Raises ReproduceError where 32 bits diverge."""
    given = load(path)
    data, model, blocks = samples(plan.model, given), learner(plan.model, given, plan.seed), block_of(plan.model)
    precision: Precision = AWP(threshold, plan.interval, blocks=blocks) if bits is None else FixedPrecision(bits)
    server, monitor = WeightServer(model, plan.rate, precision), Monitor(blocks)
    monitor.observe(packed(server.master))
    indices = batches(len(data.train_labels), plan.batch, np.random.default_rng(plan.seed))
    whole = ((data.train_inputs[own], data.train_labels[own]) for own in indices)
    done = WeightTraining(threshold=threshold)
    monitored = bits == MOST_BITS
    for step in Workers(model, [whole], server.step).steps(plan.steps):
        if monitored:
            monitor.observe(packed(server.master))
        if step % plan.eval_every == 0:
            done.steps.append(step)
            done.errors.append(model.error(data.test_inputs[: plan.tested], data.test_labels[: plan.tested]))
            done.sent.append(server.sent)
            done.bits.append(server.bits)
            monitored = monitored and done.errors[-1] > done.errors[0] - _DROP
    if bits != MOST_BITS:
        return done
    if not np.isfinite(monitor.threshold):
        raise ReproduceError(f"{plan.model} diverges at batch {plan.batch} with a rate of {plan.rate:g}")
    return replace(done, threshold=monitor.threshold)


class WeightServer(Server):
    """The aggregator, which sends its weights rounded to their precision."""

    def __init__(self, model: Replica, rate: float, precision: Precision | None = None) -> None:
        super().__init__(model, rate, MOMENTUM, WEIGHT_DECAY)
        self._rounded = model.updated_weights()
        self._precision = precision or FixedPrecision()
        self.master = model.named(self.weights)
        self.sent = 0
        self.bits = 0.0
        self.publish()

    def publish(self) -> None:
        """Give the model the weights, rounded to their precision."""
        widths, adaptable = next_widths(self._precision, self.master), packed(self.master)
        for name, width in widths.items():
            self._rounded[name][...] = codecs.get(f"truncate:{width}").roundtrip(self.master[name])
        self.sent += sum(array.size * widths[name] // 8 for name, array in self.master.items())
        total = sum(array.size for array in adaptable.values())
        self.bits = sum(array.size * widths[name] for name, array in adaptable.items()) / total


def sizes(model: Replica) -> tuple[int, int]:
    """Return the numbers of weights that precision applies to, and of all others (biases)."""
    arrays = model.updated_weights().values()
    return sum(each.size for each in arrays if each.ndim > 1), sum(each.size for each in arrays if each.ndim < 2)
