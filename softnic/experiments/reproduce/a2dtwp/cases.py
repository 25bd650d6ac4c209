"""The cases of A2DTWP's figures: trainings of each model at each batch, and their costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from softnic.experiments.reproduce.a2dtwp import paper
from softnic.experiments.reproduce.a2dtwp.costs import IterationCosts, costs
from softnic.experiments.reproduce.a2dtwp.training import FIXED_BITS, WeightPlan, WeightTraining, trainings
from softnic.experiments.reproduce.context import Context, needs_torch
from softnic.experiments.reproduce.item import percent
from softnic.experiments.reproduce.over_nics import RATE
from softnic.gradients.awp import MOST_BITS, oracle

BASELINE = str(MOST_BITS)
TARGET_SHARE = 0.6
"""Share of the steps within which the baseline's best error becomes the target of all precisions."""
_RATES: Mapping[str, Callable[[int], float]] = {
    "alexnet": lambda batch: 1e-2 * batch / 64,
    "hdc": lambda batch: 1e-2 * batch / 64,
    "resnet50": lambda batch: 1e-2 if batch == 32 else 0.1,
    "vgg16": lambda _batch: 1e-2,
}
"""Section IV-B; HDC's as AlexNet's."""


@dataclass(frozen=True)
class WeightCase:
    """One model at one batch."""

    plan: WeightPlan
    trainings: Mapping[str, WeightTraining]
    """Trainings by precision: `8`, `16`, `24`, `32`, A2DTWP."""
    costs: IterationCosts

    @property
    def title(self) -> str:
        return f"{paper.TITLES[self.plan.model]}, batch {self.plan.batch}"

    @property
    def target(self) -> float:
        """The error to reach."""
        baseline = self.trainings[BASELINE]
        within = [
            error
            for step, error in zip(baseline.steps, baseline.errors, strict=True)
            if step <= TARGET_SHARE * self.plan.steps
        ]
        return min(within or baseline.errors)

    @property
    def oracle(self) -> str | None:
        """The fixed precision that reached the target first, in bits."""
        bits = oracle({bits: self.seconds(str(bits)) for bits in FIXED_BITS})
        return None if bits is None else str(bits)

    def seconds(self, name: str) -> float | None:
        """Seconds until the target; None if it was not reached within the steps."""
        training = self.trainings[name]
        index = training.reaches(self.target)
        return None if index is None else self.costs.seconds(name, training, index)

    def sent(self, name: str) -> float | None:
        """Bytes of weights sent until the target."""
        training = self.trainings[name]
        index = training.reaches(self.target)
        return None if index is None else training.sent[index]

    def share(self, name: str | None) -> float | None:
        """Seconds to the target, in multiples of the baseline's."""
        return self._of_baseline(self.seconds, name)

    def sent_share(self, name: str | None) -> float | None:
        """Bytes of weights to the target, in multiples of the baseline's."""
        return self._of_baseline(self.sent, name)

    @staticmethod
    def _of_baseline(amount: Callable[[str], float | None], name: str | None) -> float | None:
        own, whole = None if name is None else amount(name), amount(BASELINE)
        return own / whole if own is not None and whole is not None else None


def case(context: Context, model: str, batch: int) -> WeightCase:
    """Train a model at a batch, or load its trainings from the cache, and measure its costs.

    Raises ReproduceError, MeasurementError, ClusterError.
    """
    plan = _sized(context, WeightPlan(model, batch, _RATES[model](batch), seed=context.settings.seed))
    title = f"{paper.TITLES[model]}, batch {batch}"
    with needs_torch(paper.TITLES[model]):
        done = trainings(
            context.data, context.data_path, plan, lambda what: context.progress(f"{title}, bits of weights: {what}")
        )
        return WeightCase(plan, done, costs(context, plan))


def _sized(context: Context, plan: WeightPlan) -> WeightPlan:
    return replace(plan, steps=6, eval_every=2, tested=100, interval=2) if context.quick else plan


def batches_of(context: Context, model: str) -> tuple[int, ...]:
    """Return the paper's batches; with --quick the first of them."""
    usual = paper.BATCHES.get(model, paper.BATCHES["alexnet"])
    return usual[:1] if context.quick else usual


def titles(cases: list[WeightCase]) -> dict[str, list[str]]:
    """Return the settings of an item of several cases."""
    return {"cases": [each.title for each in cases]}


def differs(context: Context) -> list[str]:
    """Return the differences from the paper's set-up of all items of this paper."""
    plan = _sized(context, WeightPlan("", 0, 0))
    return [
        f"Networks of an eighth of the paper's channels (softnic/experiments/reproduce/networks.py), trained on "
        f"{context.data.name} for {plan.steps} steps with ten classes, where it has ImageNet with 200 and tens of "
        "thousands of steps; HDC is not the paper's. Errors are top-1, on "
        f"{plan.tested:,} test images, of the weights as workers hold them.",
        "The rate is constant, and there is no dropout; momentum, weight decay, first rates and batches are the "
        "paper's. HDC has AlexNet's.",
        f"One seed, {context.settings.seed}; `a2dtwp precision` has three, and their spread.",
        f"INTERVAL is {plan.interval} batches, 1/{plan.steps // plan.interval} of the training; the paper has 4,000 "
        "or 2,000, an epoch, which is 1/20 of AlexNet's training in Fig. 5. T is found by the paper's method.",
        f"The error to reach is the best of the baseline in the first {percent(TARGET_SHARE, 0)} of its steps; the "
        "paper's are 25, 15 and 35 %.",
        f"Time: computing on one core, both legs over five real NICs on links of {RATE}, which share this machine; the "
        "paper's are PCIe and NVLink, to four GPUs. An aggregator's broadcast here goes along its workers, so weights "
        "cross its own link once, not four times.",
    ]
