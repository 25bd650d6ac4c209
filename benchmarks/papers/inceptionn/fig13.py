"""INCEPTIONN's Fig. 13: epochs to the same accuracy, and the speed-up that remains with the additional epochs.

Each model is trained with every exchange until it is as accurate as WA without compression is after a given number of
epochs, with every seed (learning_curves.py). The time of an iteration is that of Fig. 12, of both kinds there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.papers.context import Context
from benchmarks.papers.inceptionn import fig12, learning_curves, paper
from benchmarks.papers.inceptionn.fig12 import ByStrategy
from benchmarks.papers.inceptionn.learning_curves import ModelCurves, best, cases_of
from benchmarks.papers.inceptionn.lossy import TITLES, LearningCurve
from benchmarks.papers.item import Item, Row, ValueTable
from benchmarks.papers.over_nics import RATE
from softnic.measure.plot import Bars, Lines
from softnic.measure.spread import Spread

MODELS = paper.MODELS
COLUMNS = (
    "model | exchange | seeds that reach it | epochs [.2f] | more than WA [+.2f] | best accuracy (%) | points of the "
    "target [+.2f] | ± [.2f] | speed-up, Table II and virtual time [.2f] | speed-up, measured [.2f]"
)


def reaches(curve: LearningCurve, accuracy: float) -> float | None:
    """Return the epochs until the first evaluation with this accuracy; None if there is none."""
    return next((epochs for epochs, seen in curve if seen >= accuracy), None)


def make(context: Context) -> Item:
    models = context.only(MODELS)
    found = {model: learning_curves.learning_curves(context, model) for model in models}
    outcomes = {model: _outcomes(context, model, of) for model, of in found.items()}
    rows = [
        row(TITLES[model], case, of, found[model].targets)
        for model, by_case in outcomes.items()
        for case, of in by_case.items()
    ]
    return Item(
        "epochs and speed-up to the same accuracy",
        [ValueTable("Until WA's best accuracy on the test set; paper: Fig. 13", COLUMNS, rows)],
        [*(_chart(model, of) for model, of in found.items()), _speed_ups(outcomes)],
        [*_differs(context, found), *context.gradients_differ()],
        [_published(), *(line for model in models for line in _findings(model, outcomes[model], found[model]))],
        {TITLES[model]: {"epochs": of.epochs, "targets": of.targets} for model, of in found.items()},
    )


def _outcomes(context: Context, model: str, of: ModelCurves) -> dict[str, list[ToAccuracy]]:
    """Return the way to the target through each exchange, by seed."""
    virtual, measured = fig12.in_proportion(context, model), fig12.here(context, model)
    return {
        case: [
            outcome(case, by_case[case], target, by_case["WA"], virtual, measured)
            for by_case, target in zip(of.by_seed.values(), of.targets, strict=True)
        ]
        for case in cases_of(model)
    }


def _chart(model: str, of: ModelCurves) -> Lines:
    by_seed = list(of.by_seed.values())
    means = {case: _mean_error([by_case[case] for by_case in by_seed]) for case in cases_of(model)}
    epochs = [at for at, _ in by_seed[0]["WA"]]
    return Lines(f"{TITLES[model]}, mean over the seeds", "epochs", "error (%)", epochs, means)


def _speed_ups(outcomes: Mapping[str, Mapping[str, Sequence[ToAccuracy]]]) -> Bars:
    """Return the speed-ups of INC+C; no bar where not every seed reaches the target, or the paper gives no figure."""
    found = [by_case["INC+C"] for by_case in outcomes.values()]
    series = {
        "paper": [paper.FIG_13_SPEED_UP.get(model) for model in outcomes],
        "Table II and virtual time": [_mean([own.virtual for own in of]) for of in found],
        f"measured, {RATE}": [_mean([own.measured for own in of]) for of in found],
    }
    groups = [TITLES[model] for model in outcomes]
    return Bars("INC+C to the same accuracy", "times as fast as WA", groups, series)


def _mean_error(of: Sequence[LearningCurve]) -> list[float]:
    return [100 * (1 - Spread([accuracy for _, accuracy in at]).mean) for at in zip(*of, strict=True)]


def _differs(context: Context, found: Mapping[str, ModelCurves]) -> list[str]:
    epochs = ", ".join(f"{TITLES[model]} {of.epochs:.3g}" for model, of in found.items())
    lines = [
        f"The target is the best that WA with the same seed had within these epochs of {context.data.name}: {epochs}; "
        f"all had {learning_curves.FACTOR:g} times as many, over which the rate falls, so the target is one of halfway "
        f"through a training. HDC is evaluated {learning_curves.EVALUATIONS_AN_EPOCH} times an epoch, the others "
        f"{learning_curves.EVALUATIONS} times within WA's epochs. The paper trains to the end: by Table I, 17 epochs "
        "of MNIST with HDC and 64 of ImageNet with AlexNet."
    ]
    networks = [TITLES[model] for model in found if model != "hdc"]
    if networks:
        lines.append(
            f"{', '.join(networks)}: small, as in fig4, with the time of an iteration of the paper's networks; WA+C "
            "with HDC only."
        )
    seeds = ", ".join(map(str, next(iter(found.values())).by_seed))
    return [
        *lines,
        f"Seeds: {seeds}. Epochs and speed-ups are means where every seed reaches the target.",
        f"Time of an iteration: as in fig12, virtual at {paper.LINK} with Table II's computation, and measured at "
        f"{RATE}.",
    ]


class ToAccuracy(NamedTuple):
    """One exchange's way to the target, in the order of the table's columns; None where it did not reach it."""

    case: str
    epochs: float | None
    more: float | None
    """Epochs more than WA."""
    best: float
    virtual: float | None = None
    measured: float | None = None
    """Speed-ups over WA; None where Fig. 12 has no time of the codec."""


def outcome(
    case: str, curve: LearningCurve, target: float, base: LearningCurve, virtual: ByStrategy, measured: ByStrategy
) -> ToAccuracy:
    needed, usual = reaches(curve, target), reaches(base, target)
    if needed is None or usual is None:
        return ToAccuracy(case, None, None, best(curve))
    gains = [usual * how["WA"].total_s / (needed * how[case].total_s) for how in (virtual, measured) if case in how]
    return ToAccuracy(case, needed, needed - usual, best(curve), *gains)


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None unless all are there."""
    given = [value for value in values if value is not None]
    return Spread(given).mean if len(given) == len(values) else None


def row(title: str, case: str, of: Sequence[ToAccuracy], targets: Sequence[float]) -> Row:
    """Return a model's and exchange's row of the table: means over the seeds where all of them reach the target."""
    short = Spread([100 * own.best for own in of]).less(Spread([100 * target for target in targets]))
    reached = f"{sum(own.epochs is not None for own in of)} of {len(of)}"
    accuracy = Spread([own.best for own in of]).text(factor=100)
    times = (_mean([getattr(own, what) for own in of]) for what in ("virtual", "measured"))
    epochs = (_mean([own.epochs for own in of]), _mean([own.more for own in of]))
    return [title, case, reached, *epochs, accuracy, short.mean, short.deviation, *times]


def _published() -> str:
    low, high = paper.FIG_13_EXTRA_EPOCHS
    slow, fast = paper.FIG_13_SPEED_UP["vgg16"], paper.FIG_13_SPEED_UP["alexnet"]
    return (
        f"The paper needs {low} or {high} more epochs with INC+C, and is still {slow} (VGG-16) to {fast} (AlexNet) "
        "times as fast as WA."
    )


def _findings(model: str, outcomes: Mapping[str, Sequence[ToAccuracy]], of: ModelCurves) -> list[str]:
    goal = Spread(of.targets).text(factor=100)
    return [
        f"{TITLES[model]}, {_finding(case, ways, goal)}" for case, ways in outcomes.items() if case.startswith("INC+")
    ]


def _finding(case: str, of: Sequence[ToAccuracy], goal: str) -> str:
    more, virtual, measured = (_mean([getattr(own, what) for own in of]) for what in ("more", "virtual", "measured"))
    if more is None:
        reached = sum(own.epochs is not None for own in of)
        found = Spread([own.best for own in of]).text(factor=100)
        return f"{case} reached the accuracy with {reached} of {len(of)} seeds: {found} % at best, not {goal} %."
    line = f"{case} needs {abs(more):.2f} epochs {'more' if more >= 0 else 'fewer'} to {goal} %"
    if virtual is not None and measured is not None:
        line += f", and is {virtual:.2f} (virtual) and {measured:.2f} (measured) times as fast as WA"
    return f"{line}."
