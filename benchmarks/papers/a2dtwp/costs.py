"""Times of an iteration with an aggregator on this machine: computing, and both legs over real NICs.

The legs are measured with all weights at 32 bits and at 8, with the model's own gradients. At any other precision the
weights take a time between these, in proportion to their bytes. Each measurement is kept beside the trainings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.a2dtwp.training import AWP_NAME, FILE, WeightPlan, WeightServer, WeightTraining
from benchmarks.papers.context import Context
from benchmarks.papers.learner import block_of, learner, samples
from benchmarks.papers.over_nics import LINK, iterations_over_nics, sample
from benchmarks.papers.parallel import each
from softnic import codecs
from softnic.codecs.threads import at_most
from softnic.experiments.data import Floats, batches, load
from softnic.experiments.timeline import Iteration, Phase
from softnic.gradients.adt import packed
from softnic.gradients.awp import MOST_BITS, Norms
from softnic.measure.timing import median

WARM_UP, MEASURED = 20, 25
"""Steps before gradients are taken, and steps that are timed."""
_ROUNDS = 99
"""Of an exchange: the median of nine moves by a tenth from one run to the next."""
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Computed:
    """Medians on one core, in seconds, and what they are of."""

    learn_s: float
    """A worker's forward and backward pass, of its part of the batch."""
    update_s: float
    """The aggregator's, of all weights."""
    norms_s: float
    """AWP's norms of all weights."""
    pack_s: float
    """Bitpack of all weights to 8 bits (by the NIC, during the exchange)."""
    unpack_s: float
    floats: int
    """Weights and biases."""


@dataclass(frozen=True)
class Legs:
    """Seconds of an exchange, medians over rounds."""

    up_s: float
    """Gradients of all workers, one after the other."""
    sum_s: float
    down_s: float
    """From the update until the last worker has its weights."""


@dataclass(frozen=True)
class IterationCosts:
    """Times of an iteration, by their parts."""

    computed: Computed
    whole: Legs
    """With 32 bits."""
    least: Legs
    """With 8."""

    def seconds(self, name: str, training: WeightTraining, index: int) -> float:
        """Seconds of a training until one of its evaluations. Weights are sent once more than there are steps."""
        own = self.computed
        steady = own.learn_s + own.update_s + (own.norms_s if name == AWP_NAME else 0.0) + self.whole.up_s
        steps, whole = training.steps[index], 4 * own.floats
        share = (training.sent[index] / (steps + 1) / whole - 1 / 4) / (3 / 4)
        down = self.least.down_s + share * (self.whole.down_s - self.least.down_s)
        return steps * (steady + self.whole.sum_s + down)


def costs(context: Context, plan: WeightPlan) -> IterationCosts:
    """Measure the times of a plan's iteration, unless the shared file has them.

    Raises MeasurementError, ClusterError, ImportError, OSError.
    """

    def measure() -> Computed:
        computed, _ = _computed_once(context, plan)
        return computed

    own = context.shared(FILE).once(f"{plan.title}, computing", _settings(context, plan), measure, Computed)
    whole, least = (legs(context, plan, f"wa+adt:{bits}") for bits in (MOST_BITS, 8))
    return IterationCosts(own, whole, least)


def legs(context: Context, plan: WeightPlan, strategy: str) -> Legs:
    """Measure the legs of a strategy of softnic.experiments.train with an aggregator, or read them from the file."""
    rounds = 1 if context.quick else _ROUNDS

    def measure() -> Legs:
        _, gradients = _computed_once(context, plan)
        context.progress(f"{4e-6 * gradients.size:.1f} MB over five NICs, {strategy}")
        given = sample(gradients, paper.WORKERS, _MOST_BYTES)
        found = [legs_of(ranks) for ranks in iterations_over_nics(context, given, strategy, rounds)]
        parts = zip(*((each.up_s, each.sum_s, each.down_s) for each in found), strict=True)
        return Legs(*(given.scale * median(part) for part in parts))

    settings = {**_settings(context, plan), "rounds": rounds, "link": LINK}
    return context.shared(FILE).once(f"{plan.title}, {strategy} over NICs", settings, measure, Legs)


def _settings(context: Context, plan: WeightPlan) -> dict[str, object]:
    return {**asdict(plan), "data": context.data.name, "computed": [WARM_UP, MEASURED]}


def _computed_once(context: Context, plan: WeightPlan) -> tuple[Computed, Floats]:
    """Return the times of computing, and gradients to exchange, measured once in a run."""

    def measure() -> tuple[Computed, Floats]:
        context.progress(f"{paper.TITLES[plan.model]}: computing and updating, measured")
        # In a process of its own, with one thread.
        tasks = {plan.model: (context.data_path, plan, context.quick)}
        return each(_computed, tasks, context.progress)[plan.model]

    return context.once(("a2dtwp", plan), measure)


def legs_of(ranks: Sequence[Iteration]) -> Legs:
    """Return the legs of one round. The aggregator is the last rank; all clocks are one machine's."""
    *workers, aggregator = ranks
    [update] = [span for span in aggregator.spans if span.phase is Phase.UPDATE]
    sum_s = sum(span.seconds for span in aggregator.spans if span.phase is Phase.SUM)
    ready = max(at for worker in workers for at in worker.ready.values())
    return Legs(update.begin - ready - sum_s, sum_s, max(worker.end for worker in workers) - update.end)


def _computed(path: Path, plan: WeightPlan, quick: bool) -> tuple[Computed, Floats]:
    given = load(path)
    data, model = samples(plan.model, given), learner(plan.model, given, plan.seed)
    server = WeightServer(model, plan.rate)
    norms = Norms(block_of(plan.model))
    draws = batches(len(data.train_labels), max(1, plan.batch // paper.WORKERS), np.random.default_rng(plan.seed))
    times: list[tuple[float, ...]] = []
    for _ in range(2 if quick else WARM_UP + MEASURED):
        drawn = next(draws)
        inputs, labels = data.train_inputs[drawn], data.train_labels[drawn]
        learn_s = _seconds(lambda inputs=inputs, labels=labels: model.forward_backward(inputs, labels))  # type: ignore[misc]
        mean = model.gradients.copy()
        update_s = _seconds(lambda mean=mean: server.update(0, mean))  # type: ignore[misc]
        times.append((learn_s, update_s, _seconds(lambda: norms.changes(packed(server.master)))))
        server.publish()
    with at_most(1):
        pack_s, unpack_s = _packing(np.concatenate([array.reshape(-1) for array in server.master.values()]))
    learn_s, update_s, norms_s = (median(part) for part in zip(*times[-MEASURED:], strict=True))
    gradients = model.gradients.copy()
    return Computed(learn_s, update_s, norms_s, pack_s, unpack_s, gradients.size), gradients


def _packing(weights: Floats) -> tuple[float, float]:
    """Return the seconds to pack and to unpack."""
    codec = codecs.get("truncate:8")
    packed_weights, back = np.empty(codec.bound(weights.size), np.uint8), np.empty_like(weights)
    used = codec.encode_into(weights, packed_weights)
    packing = [_seconds(lambda: codec.encode_into(weights, packed_weights)) for _ in range(MEASURED)]
    unpacking = [_seconds(lambda: codec.decode_into(packed_weights[:used], back)) for _ in range(MEASURED)]
    return median(packing), median(unpacking)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
