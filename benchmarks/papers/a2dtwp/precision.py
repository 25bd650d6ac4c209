"""A2DTWP's Tables II and III and Figs. 3 to 5 without a clock: errors, steps and bytes of weights by precision.

What does not depend on a machine is made here, with three seeds: the error that each precision leaves after the same
steps, the steps until the baseline's error, and the bytes of weights that were sent. Times follow from the paper's own
profiles (Tables II and III), in which the weights' leg goes with the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.a2dtwp.training import (
    AWP_NAME,
    BASELINE,
    WeightPlan,
    WeightTraining,
    over_seeds,
    sized,
)
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, change, percent
from softnic.gradients.awp import MOST_BITS
from softnic.measure.plot import Lines
from softnic.measure.spread import Spread, cell

FIXED = (8, 16, MOST_BITS)
"""24 bits are left out: they differ from 32 by less than the seeds do."""
PLANS: Mapping[str, WeightPlan] = {
    "hdc": WeightPlan("hdc", 64, 1e-2, steps=1000, eval_every=50, tested=2000, interval=50),
    "alexnet": WeightPlan("alexnet", 32, 1e-2, steps=1000, eval_every=50, tested=2000, interval=50),
    "vgg16": WeightPlan("vgg16", 32, 1e-2, steps=1000, eval_every=50, tested=2000, interval=50),
    "resnet50": WeightPlan("resnet50", 32, 1e-2, steps=500, eval_every=25, tested=2000, interval=25),
}
_COLUMNS = (
    "model and batch | precision | error at the end (%) | points more than 32 bits [+.2f] | ± [.2f] | "
    "mean bits [.1f] | bytes of weights, of 32 bits' [.3f] | seeds that reach the error [d] | "
    "steps to it, of 32 bits' | batch on x86, of 32 bits' [.3f] | batch on POWER [.3f] | "
    "time to the error on x86 [.3f] | on POWER [.3f]"
)


@dataclass(frozen=True)
class Seeds:
    """The trainings of one model with one precision, one for each seed, and those with 32 bits."""

    name: str
    own: Sequence[WeightTraining]
    whole: Sequence[WeightTraining]

    @property
    def errors(self) -> Spread:
        return Spread([each.errors[-1] for each in self.own])

    @property
    def worse(self) -> Spread:
        return self.errors.less(Spread([each.errors[-1] for each in self.whole]))

    @property
    def sent(self) -> float:
        """Bytes of weights, as a share of those with 32 bits."""
        return sum(each.sent[-1] for each in self.own) / sum(each.sent[-1] for each in self.whole)

    @property
    def steps(self) -> list[float]:
        """Steps to the error that 32 bits have in the first part, in multiples of theirs, of seeds that reach it."""
        shares = []
        for own, whole in zip(self.own, self.whole, strict=True):
            at, usual = own.reaches(whole.target), whole.reaches(whole.target)
            if at is not None and usual is not None:
                shares.append(own.steps[at] / whole.steps[usual])
        return shares


def batch_share(system: str, name: str, sent: float) -> float:
    """Return the time of a batch by the paper's profile of a system, in multiples of that with 32 bits.

    `sent`: bytes of weights, as a share. A2DTWP's norms, packing and unpacking are added where fewer bits are sent.
    """
    whole, adaptive = paper.PROFILES[system]
    packing = 0.0 if name == BASELINE else adaptive.bitpack + adaptive.bitunpack
    norms = adaptive.norms if name == AWP_NAME else 0.0
    return (whole.total - whole.weights * (1 - sent) + packing + norms) / whole.total


def time_share(system: str, each: Seeds) -> float | None:
    """Return the time to the error by the paper's profile, in multiples of 32 bits', mean over the seeds.

    None where a seed does not reach the error.
    """
    if len(each.steps) < len(each.own):
        return None
    return Spread(each.steps).mean * batch_share(system, each.name, each.sent)


def make(context: Context) -> Item:
    models = context.only(tuple(PLANS))
    plans = [sized(context, PLANS[model]) for model in models]
    found = _found(context, plans)
    return Item(
        "errors, steps and bytes by the precision of weights",
        [
            ValueTable(
                "Here: trainings; times by the paper's Tables II (x86) and III (POWER)",
                _COLUMNS,
                [_row(plan, each) for plan in plans for each in found[plan]],
            )
        ],
        [_lines(plan, found[plan]) for plan in plans],
        [
            "HDC, which is not the paper's, and the paper's networks with an eighth of their channels, on "
            f"{context.data.name}; {', '.join(f'{plan.title}: {plan.steps} steps' for plan in plans)}, where the "
            "paper has tens of thousands on ImageNet with 200 classes; the other batches are left to `a2dtwp fig4`. "
            f"Top-1 errors on {plans[0].tested:,} test images, of the rounded weights.",
            f"INTERVAL is a twentieth of the training. Means and standard deviations over {len(context.seeds)} seeds.",
            "The rate is constant and there is no dropout; momentum and weight decay are the paper's.",
            "Times are not measured: the weights' leg of the paper's profiles is scaled by the bytes here, with its "
            "own times for norms and packing.",
        ],
        [line for plan in plans for line in _findings(plan, found[plan])],
        {"models": models, "steps": [plan.steps for plan in plans]},
    )


def _found(context: Context, plans: Sequence[WeightPlan]) -> dict[WeightPlan, list[Seeds]]:
    """Return the trainings of each plan by precision."""
    done = over_seeds(context, context.kept, plans, FIXED)
    return {
        plan: [Seeds(name, own, trainings[BASELINE]) for name, own in trainings.items()]
        for plan, trainings in done.items()
    }


def _row(plan: WeightPlan, each: Seeds) -> Row:
    steps = each.steps
    return [
        plan.title,
        each.name,
        each.errors.text(factor=100),
        100 * each.worse.mean,
        100 * each.worse.deviation,
        sum(training.bits[-1] for training in each.own) / len(each.own) if each.name == AWP_NAME else float(each.name),
        each.sent,
        len(steps),
        cell(steps),
        *(batch_share(system, each.name, each.sent) for system in paper.SYSTEMS),
        *(time_share(system, each) for system in paper.SYSTEMS),
    ]


def _lines(plan: WeightPlan, found: Sequence[Seeds]) -> Lines:
    at = found[0].whole[0].steps
    series = {
        each.name: [sum(own.errors[index] for own in each.own) / len(each.own) for index in range(len(at))]
        for each in found
    }
    return Lines(f"{plan.title}: error by bits of the weights", "steps", "error", at, series)


def _findings(plan: WeightPlan, found: Sequence[Seeds]) -> list[str]:
    by_name = {each.name: each for each in found}
    adaptive, least = by_name[AWP_NAME], by_name["8"]
    gains = [1 - batch_share(system, AWP_NAME, adaptive.sent) for system in paper.SYSTEMS]
    steps = (
        f"{Spread(adaptive.steps).text()} times the steps of 32 bits" if adaptive.steps else "no seed within the steps"
    )
    return [
        f"{plan.title}: A2DTWP sends {percent(adaptive.sent)} of the bytes of weights that 32 bits send, 1/"
        f"{1 / adaptive.sent:.2f} (the paper's leg takes 1/2.94 and 1/3.20 of its time). A batch takes "
        f"{change(gains)} time by its Tables II and III. The error at the end is {adaptive.worse.text('+.2f', 100)} "
        f"points above that of 32 bits (paper, VGG: {100 * paper.FIG_5_WORSE[2]:+.2f} and "
        f"{100 * paper.FIG_5_WORSE[8]:+.2f}); to the baseline's error: {steps}.",
        f"{plan.title}: 8 bits all the time leave {least.errors.text(factor=100)} % of errors, 32 bits "
        f"{by_name[BASELINE].errors.text(factor=100)} %.",
    ]
