"""What A2DTWP's figures are made from: trainings of each model at each batch, their costs, and what came first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from softnic.experiments.reproduce.a2dtwp import paper
from softnic.experiments.reproduce.a2dtwp.costs import RATE, Costs, costs
from softnic.experiments.reproduce.a2dtwp.training import FIXED_BITS, Plan, Training, trainings
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.report import ReproduceError, needs_torch, percent
from softnic.gradients.awp import MOST_BITS, oracle

BASELINE = str(MOST_BITS)
TARGET_SHARE = 0.6
"""Of the steps, within which the baseline's best error is the one that all are to reach."""
_RATES: Mapping[str, Callable[[int], float]] = {
    "alexnet": lambda batch: 1e-2 * batch / 64,
    "hdc": lambda batch: 1e-2 * batch / 64,
    "resnet50": lambda batch: 1e-2 if batch == 32 else 0.1,
    "vgg16": lambda _batch: 1e-2,
}
"""Section IV-B; HDC's as AlexNet's."""
_QUICK = {"steps": 6, "look_every": 2, "tested": 100, "interval": 2}


@dataclass(frozen=True)
class Case:
    """One model at one batch."""

    plan: Plan
    trainings: Mapping[str, Training]
    """By precision: `8`, `16`, `24`, `32`, A2DTWP."""
    costs: Costs

    @property
    def title(self) -> str:
        return f"{paper.TITLES[self.plan.model]}, batch {self.plan.batch}"

    @property
    def target(self) -> float:
        """The error to reach."""
        baseline = self.trainings[BASELINE]
        within = [error for step, error in zip(baseline.looks, baseline.errors, strict=True) if self._counts(step)]
        return min(within or baseline.errors)

    @property
    def oracle(self) -> str | None:
        """The fixed precision that came to the target first, in bits."""
        bits = oracle({bits: self.seconds(str(bits)) for bits in FIXED_BITS})
        return None if bits is None else str(bits)

    def seconds(self, name: str) -> float | None:
        """Until the target; None: not within the steps."""
        training = self.trainings[name]
        index = training.reaches(self.target)
        return None if index is None else self.costs.seconds(name, training, index)

    def share(self, name: str | None) -> float | None:
        """Of the baseline's seconds to the target."""
        own, whole = (None if each is None else self.seconds(each) for each in (name, BASELINE))
        return own / whole if own is not None and whole is not None else None

    def sent_share(self, name: str | None) -> float | None:
        """Of the baseline's bytes of weights to the target."""
        if name is None:
            return None
        ends = [(self.trainings[each], self.trainings[each].reaches(self.target)) for each in (name, BASELINE)]
        sent = [None if index is None else training.sent[index] for training, index in ends]
        return sent[0] / sent[1] if sent[0] is not None and sent[1] is not None else None

    def _counts(self, step: int) -> bool:
        return step <= TARGET_SHARE * self.plan.steps


def case(context: Context, model: str, batch: int) -> Case:
    """From the cache, but for times. Raises ReproduceError, MeasurementError, ClusterError."""
    plan = _sized(context, Plan(model, batch, _RATES[model](batch), seed=context.settings.seed))
    title = f"{paper.TITLES[model]}, batch {batch}"
    try:
        done = trainings(
            context.data, context.data_path, plan, lambda what: context.progress(f"{title}, bits of weights: {what}")
        )
        return Case(plan, done, costs(context, plan))
    except ImportError as error:
        raise ReproduceError(needs_torch(paper.TITLES[model])) from error


def _sized(context: Context, plan: Plan) -> Plan:
    """As long as this run's trainings are."""
    return replace(plan, **_QUICK) if context.quick else plan  # type: ignore[arg-type]


def batches_of(context: Context, model: str) -> tuple[int, ...]:
    """The paper's; one is enough to see that it works."""
    usual = paper.BATCHES.get(model, paper.BATCHES["alexnet"])
    return usual[:1] if context.quick else usual


def differs(context: Context) -> list[str]:
    """How all of this is not the paper's set-up."""
    usual = _sized(context, Plan("", 0, 0))
    lines = [
        f"Networks of an eighth of the paper's channels (softnic/experiments/reproduce/a2dtwp/models.py), trained on "
        f"{context.data.name} for {usual.steps} steps with ten classes, where it has ImageNet with 200 and tens of "
        "thousands of steps; HDC is not the paper's. Errors are top-1, on "
        f"{usual.tested:,} test images, of the weights as workers hold them.",
        "The rate is constant, and nothing is dropped out; momentum, weight decay, first rates and batches are the "
        "paper's. HDC has AlexNet's.",
        f"INTERVAL is {usual.interval} batches, 1/{usual.steps // usual.interval} of the training; the paper has 4,000 "
        "or 2,000, an epoch, which is 1/20 of AlexNet's training in Fig. 5. T is found as the paper says that it finds "
        "it.",
        f"The error to reach is the best of the baseline in the first {percent(TARGET_SHARE, 0)} of its steps; the "
        "paper's are 25, 15 and 35 %.",
        f"Time: computing on one core, both legs over five real NICs on links of {RATE}, which share this machine; the "
        "paper's are PCIe and NVLink, to four GPUs. An aggregator's broadcast here goes along its workers, so weights "
        "cross its own link once, not four times.",
    ]
    return [*lines, "--quick: a few steps of one batch; the figures mean nothing."] if context.quick else lines
