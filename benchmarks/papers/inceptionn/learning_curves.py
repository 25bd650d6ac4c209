"""Learning curves, of which Fig. 13 is made: HDC's and those of three small networks.

HDC has the paper's hyperparameters (digits.py); the small networks are trained as in Fig. 14b (lossy.py), twice as
long. The exchanges' rounding is computed (emulate.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.papers.context import Context, require_torch
from benchmarks.papers.inceptionn import digits, lossy, paper
from benchmarks.papers.inceptionn.emulate import EmulatedAggregator, EmulatedRing, exact_sum
from benchmarks.papers.inceptionn.lossy import TITLES, LearningCurve, Loss
from benchmarks.papers.units import Unit, made
from softnic import codecs
from softnic.experiments.data import load

EPOCHS = {"digits": 20.0, "MNIST": 2.5}
"""Epochs of WA with HDC by data set; its best accuracy within them is the target of all exchanges. The small networks
have the steps of lossy.py for it."""
FACTOR = 2.0
"""Epochs after which an exchange is given up, in multiples of WA's. The rate falls as if all trainings ended then."""
EVALUATIONS_AN_EPOCH = 4
"""Of HDC."""
EVALUATIONS = 8
"""Of a small network within WA's epochs."""
Kind = type[EmulatedAggregator] | type[EmulatedRing] | None
CASES: Mapping[str, tuple[Kind, str | None]] = {
    "WA": (None, None),
    "WA+C": (EmulatedAggregator, paper.FIG_12_CODEC),
    "INC": (None, None),
    "INC+C": (EmulatedRing, paper.FIG_12_CODEC),
    "INC+bounded:10": (EmulatedRing, "bounded:10"),
    "INC+bounded:8": (EmulatedRing, "bounded:8"),
}
"""The exchange that rounds, and its codec. WA and INC add the same numbers, so one training stands for both."""


@dataclass(frozen=True)
class ModelCurves:
    """A model's trainings through every exchange."""

    epochs: float
    """Those within which WA's best accuracy is the target."""
    by_seed: Mapping[int, Mapping[str, LearningCurve]]
    """By seed, then by exchange."""

    @property
    def targets(self) -> list[float]:
        """WA's best accuracy, by seed."""
        return [best([look for look in of["WA"] if look[0] <= self.epochs + 1e-9]) for of in self.by_seed.values()]


def best(curve: LearningCurve) -> float:
    return max(accuracy for _, accuracy in curve)


def cases_of(model: str) -> dict[str, tuple[Kind, str | None]]:
    """Return the exchanges that a model is trained through; the small networks leave out WA+C."""
    return {case: how for case, how in CASES.items() if model == "hdc" or how[0] is not EmulatedAggregator}


def learning_curves(context: Context, model: str) -> ModelCurves:
    """Return a model's trainings, from the item's file or made now. Raises ReproduceError without torch."""
    return _of_hdc(context) if model == "hdc" else _of_network(context, model)


def _of_hdc(context: Context) -> ModelCurves:
    epochs = 0.3 if context.quick else EPOCHS.get(context.data.name, EPOCHS["MNIST"])
    most = FACTOR * epochs
    settings = {"epochs": most, "evaluations": EVALUATIONS_AN_EPOCH, "data": context.data.name}
    units = {
        (seed, case): Unit(settings, (context.data_path, most, seed, *how))
        for seed in context.seeds
        for case, how in cases_of("hdc").items()
    }
    return _made(context, "hdc", hdc, units, epochs)


def hdc(data_path: Path, epochs: float, seed: int, kind: Kind, codec: str | None) -> LearningCurve:
    """HDC through an emulated exchange."""
    data = load(data_path)
    rate = digits.epoch_steps(data)
    every = max(1, rate // EVALUATIONS_AN_EPOCH)
    plan = digits.plan(max(every, round(epochs * rate)), seed)
    exchange = kind(codecs.get(codec)) if kind is not None and codec is not None else exact_sum
    workers = digits.HdcWorkers(data, plan, exchange)
    return [(step / rate, workers.accuracy) for step in workers.steps(plan.steps) if step % every == 0]


def _of_network(context: Context, model: str) -> ModelCurves:
    own = lossy.plan_of(context, model)
    whole, every = replace(own, steps=round(FACTOR * own.steps)), max(1, own.steps // EVALUATIONS)
    settings = {**asdict(whole), "every": every, "data": context.data.name, "workers": paper.WORKERS}
    units = {
        (seed, case): Unit(settings, (context.data_path, model, whole, Loss(gradients=codec), seed, every))
        for seed in context.seeds
        for case, (_kind, codec) in cases_of(model).items()
    }
    require_torch(TITLES[model])
    return _made(context, model, lossy.learning_curve, units, lossy.epochs(context.data, own, own.steps))


def _made(
    context: Context,
    model: str,
    function: Callable[..., LearningCurve],
    units: Mapping[tuple[int, str], Unit],
    epochs: float,
) -> ModelCurves:
    """Make trainings, given by seed and exchange; WA's stand for INC's, too."""

    def title(seed: int, case: str) -> str:
        return f"{TITLES[model]}, {'WA' if case == 'INC' else case}, seed {seed}"

    named = {title(*key): unit for key, unit in units.items()}

    def progress(what: str) -> None:
        context.progress(f"fig13: {what}")

    progress(f"{TITLES[model]} is trained {len(named)} times")
    done = made(context.kept, LearningCurve, function, named, progress, here=context.quick)
    by_seed: dict[int, dict[str, LearningCurve]] = {}
    for seed, case in units:
        by_seed.setdefault(seed, {})[case] = done[title(seed, case)]
    return ModelCurves(epochs, by_seed)
