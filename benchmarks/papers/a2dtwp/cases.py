"""The cases of A2DTWP's figures: trainings of each model at each batch, and their costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.a2dtwp.costs import IterationCosts, costs
from benchmarks.papers.a2dtwp.training import (
    BASELINE,
    FILE,
    FIXED_BITS,
    TARGET_SHARE,
    WeightPlan,
    WeightTraining,
    over_seeds,
    sized,
)
from benchmarks.papers.context import Context
from benchmarks.papers.item import percent
from benchmarks.papers.over_nics import RATE
from softnic.gradients.awp import oracle
from softnic.measure.spread import Spread

ORACLE = "oracle"
"""A precision's name: of each seed the fixed one that reached the target first."""
_RATES: Mapping[str, Callable[[int], float]] = {
    "alexnet": lambda batch: 1e-2 * batch / 64,
    "hdc": lambda batch: 1e-2 * batch / 64,
    "resnet50": lambda batch: 1e-2 if batch == 32 else 0.1,
    "vgg16": lambda _batch: 1e-2,
}
"""Section IV-B; HDC's as AlexNet's."""


@dataclass(frozen=True)
class SeedCase:
    """One model at one batch, trained with one seed."""

    trainings: Mapping[str, WeightTraining]
    """Trainings by precision: `8`, `16`, `24`, `32`, A2DTWP."""
    costs: IterationCosts

    @property
    def target(self) -> float:
        """The error to reach."""
        return self.trainings[BASELINE].target

    @property
    def oracle(self) -> str:
        """The fixed precision that reached the target first, in bits: the baseline reaches it in any case."""
        bits = oracle({bits: self.seconds(str(bits)) for bits in FIXED_BITS})
        return BASELINE if bits is None else str(bits)

    def training(self, name: str) -> WeightTraining:
        return self.trainings[self._precision(name)]

    def seconds_at(self, name: str, index: int) -> float:
        """Seconds until one of the evaluations."""
        return self.costs.seconds(self._precision(name), self.training(name), index)

    def seconds(self, name: str) -> float | None:
        """Seconds until the target; None if it was not reached within the steps."""
        index = self._reached(name)
        return None if index is None else self.seconds_at(name, index)

    def sent(self, name: str) -> float | None:
        """Bytes of weights sent until the target."""
        index = self._reached(name)
        return None if index is None else self.training(name).sent[index]

    def steps(self, name: str) -> float | None:
        """Steps until the target."""
        index = self._reached(name)
        return None if index is None else self.training(name).steps[index]

    def share(self, name: str) -> float | None:
        """Seconds to the target, in multiples of the baseline's."""
        return self._of_baseline(self.seconds, name)

    def sent_share(self, name: str) -> float | None:
        """Bytes of weights to the target, in multiples of the baseline's."""
        return self._of_baseline(self.sent, name)

    def _precision(self, name: str) -> str:
        return self.oracle if name == ORACLE else name

    def _reached(self, name: str) -> int | None:
        return self.training(name).reaches(self.target)

    @staticmethod
    def _of_baseline(amount: Callable[[str], float | None], name: str) -> float | None:
        own, whole = amount(name), amount(BASELINE)
        return own / whole if own is not None and whole is not None else None


@dataclass(frozen=True)
class WeightCase:
    """One model at one batch, trained with every seed."""

    plan: WeightPlan
    seeds: Sequence[SeedCase]

    @property
    def costs(self) -> IterationCosts:
        return self.seeds[0].costs

    @property
    def title(self) -> str:
        return self.plan.title

    @property
    def targets(self) -> Spread:
        """The errors to reach."""
        return Spread([each.target for each in self.seeds])

    @property
    def oracles(self) -> str:
        """The bits of each seed's oracle: `16` where they are the same, otherwise `16, 24, 16`."""
        found = [each.oracle for each in self.seeds]
        return found[0] if len(set(found)) == 1 else ", ".join(found)

    def reaching(self, name: str, amount: Callable[[SeedCase, str], float | None]) -> list[float]:
        """Return what it takes to reach the target with one precision, of the seeds that reach it: `SeedCase.steps`."""
        return [value for each in self.seeds if (value := amount(each, name)) is not None]

    def spread(self, name: str, amount: Callable[[WeightTraining], float]) -> Spread:
        """Return an amount of the trainings with one precision."""
        return Spread([amount(each.training(name)) for each in self.seeds])

    def errors(self, name: str, index: int = -1) -> Spread:
        """Return the errors at an evaluation, by default the last one."""
        return self.spread(name, lambda own: own.errors[index])


def cases(context: Context, chosen: Sequence[tuple[str, int]]) -> list[WeightCase]:
    """Train models at batches with every seed, unless the shared file has it, and measure their costs.

    `chosen`: models and batches. Raises ReproduceError, MeasurementError, ClusterError, OSError.
    """
    plans = [sized(context, WeightPlan(model, batch, _RATES[model](batch))) for model, batch in chosen]
    done = over_seeds(context, context.shared(FILE), plans, FIXED_BITS)
    found = []
    for plan in plans:
        took = costs(context, plan)
        seeds = [
            SeedCase({name: trainings[index] for name, trainings in done[plan].items()}, took)
            for index in range(len(context.seeds))
        ]
        found.append(WeightCase(plan, seeds))
    return found


def batches_of(context: Context, model: str) -> tuple[int, ...]:
    """Return the paper's batches; with --quick the first of them."""
    usual = paper.BATCHES.get(model, paper.BATCHES["alexnet"])
    return usual[:1] if context.quick else usual


def titles(given: Sequence[WeightCase]) -> dict[str, list[str]]:
    """Return the settings of an item of several cases."""
    return {"cases": [each.title for each in given]}


def differs(context: Context) -> list[str]:
    """Return the differences from the paper's set-up of all items of this paper."""
    plan = sized(context, WeightPlan("", 0, 0))
    return [
        f"Networks of an eighth of the paper's channels (benchmarks/papers/networks.py), trained on "
        f"{context.data.name} for {plan.steps} steps with ten classes, where it has ImageNet with 200 and tens of "
        "thousands of steps; HDC is not the paper's. Errors are top-1, on "
        f"{plan.tested:,} test images, of the weights as workers hold them.",
        "The rate is constant, and there is no dropout; momentum, weight decay, first rates and batches are the "
        "paper's. HDC has AlexNet's.",
        context.seeds_sentence,
        f"INTERVAL is {plan.interval} batches, 1/{plan.steps // plan.interval} of the training; the paper has 4,000 "
        "or 2,000, an epoch, which is 1/20 of AlexNet's training in Fig. 5. T is found by the paper's method.",
        f"The error to reach is each seed's best of the baseline in the first {percent(TARGET_SHARE, 0)} of its steps; "
        "the paper's are 25, 15 and 35 %.",
        f"Time: computing on one core, both legs over five real NICs on links of {RATE}, which share this machine; the "
        "paper's are PCIe and NVLink, to four GPUs. An aggregator's broadcast here goes along its workers, so weights "
        "cross its own link once, not four times.",
    ]
