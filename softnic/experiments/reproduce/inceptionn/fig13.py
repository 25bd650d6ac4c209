"""INCEPTIONN's Fig. 13: epochs to the same accuracy, and the speed-up that remains with the additional epochs.

HDC is trained with every exchange until it is as accurate as WA without compression is after a given number of epochs,
with every seed. The exchanges' rounding is computed (emulate.py); the time of an iteration is that of Fig. 12, of both
kinds there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from softnic import codecs
from softnic.experiments.data import load
from softnic.experiments.plot import Lines
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.inceptionn import digits, fig12, paper
from softnic.experiments.reproduce.inceptionn.emulate import EmulatedAggregator, EmulatedRing, exact_sum
from softnic.experiments.reproduce.inceptionn.fig12 import ByStrategy
from softnic.experiments.reproduce.item import Item, Row, ValueTable
from softnic.experiments.reproduce.over_nics import RATE, sample_of
from softnic.experiments.reproduce.units import Unit, made
from softnic.experiments.spread import SEEDS, Spread

EPOCHS = {"digits": 20.0, "MNIST": 2.5}
"""Epochs of WA by data set; its best accuracy within them is the target of all exchanges."""
EPOCHS_FACTOR = 2.0
"""Epochs after which an exchange is given up, in multiples of WA's."""
EVALUATIONS_AN_EPOCH = 4
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
COLUMNS = (
    "exchange | seeds that reach it | epochs [.2f] | more than WA [+.2f] | best accuracy (%) | points of the target "
    "[+.2f] | ± [.2f] | speed-up, Table II and virtual time [.2f] | speed-up, measured [.2f]"
)

Progression = list[tuple[float, float]]
"""The growth of accuracy: epochs, and the accuracy then."""


def best(path: Progression) -> float:
    return max(accuracy for _, accuracy in path)


def reaches(path: Progression, accuracy: float) -> float | None:
    """Return the epochs until the first evaluation with this accuracy; None if there is none."""
    return next((epochs for epochs, seen in path if seen >= accuracy), None)


def trained(data_path: Path, epochs: float, seed: int, kind: Kind, codec: str | None) -> Progression:
    """HDC through an emulated exchange. The rate falls as if the training ended after these epochs."""
    data = load(data_path)
    rate = digits.epoch_steps(data)
    every = max(1, rate // EVALUATIONS_AN_EPOCH)
    plan = digits.plan(max(every, round(epochs * rate)), seed)
    exchange = kind(codecs.get(codec)) if kind is not None and codec is not None else exact_sum
    done = digits.train(data, plan, exchange, eval_every=every)
    return [(step / rate, accuracy) for step, accuracy in done.evaluations]


def make(context: Context) -> Item:
    context.only(("hdc",))
    epochs = 0.3 if context.quick else EPOCHS.get(context.data.name, EPOCHS["MNIST"])
    paths = _trainings(context, epochs * EPOCHS_FACTOR)
    targets = [best([path for path in of["WA"] if path[0] <= epochs + 1e-9]) for of in paths.values()]
    given = sample_of(context, "hdc")
    virtual, measured = fig12.in_proportion(context, "hdc", given), fig12.here(context, "hdc", given)
    outcomes = {
        case: [
            outcome(case, of[case], target, of["WA"], virtual, measured)
            for of, target in zip(paths.values(), targets, strict=True)
        ]
        for case in CASES
    }
    goal = Spread(targets).text(factor=100)
    title = f"HDC until it has WA's best on the test set, {goal} %; paper: Fig. 13"
    first = next(iter(paths.values()))
    series = {case: _mean_curve([of[case] for of in paths.values()]) for case in CASES}
    return Item(
        "epochs and speed-up to the same accuracy",
        [ValueTable(title, COLUMNS, [row(case, of, targets) for case, of in outcomes.items()])],
        [Lines("HDC, mean over the seeds", "epochs", "accuracy", [epoch for epoch, _ in first["WA"]], series)],
        [
            f"HDC only, on {context.data.name}; the target is the best that WA with the same seed had within "
            f"{epochs:g} epochs (evaluated {EVALUATIONS_AN_EPOCH} times an epoch), the others had "
            f"{epochs * EPOCHS_FACTOR:g}. The paper trains to the end, and does not say how many epochs that takes for "
            "HDC.",
            f"Seeds: {', '.join(map(str, paths))}. Epochs and speed-ups are means where every seed reaches the target.",
            f"Time of an iteration: as in fig12, virtual at {paper.LINK} with Table II's computation, and measured at "
            f"{RATE}.",
            *context.gradients_differ(),
        ],
        _findings(outcomes, goal),
        {"epochs": epochs, "targets": targets},
    )


def _trainings(context: Context, most: float) -> dict[int, dict[str, Progression]]:
    """Return the course of every case's training by seed, as the item's file keeps them."""
    seeds = SEEDS[:1] if context.quick else SEEDS
    own = {case: how for case, how in CASES.items() if case != "INC"}
    settings = {"epochs": most, "evaluations": EVALUATIONS_AN_EPOCH, "data": context.data.name}
    units = {
        f"HDC, {case}, seed {seed}": Unit(settings, (context.data_path, most, seed, *how))
        for seed in seeds
        for case, how in own.items()
    }
    context.progress(f"fig13: HDC is trained for {most:g} epochs {len(units)} times")
    done = made(context.kept, Progression, trained, units, lambda what: context.progress(f"fig13: {what}"))
    return {
        seed: {case: done[f"HDC, {case if case in own else 'WA'}, seed {seed}"] for case in CASES} for seed in seeds
    }


def _mean_curve(paths: Sequence[Progression]) -> list[float]:
    return [Spread([accuracy for _, accuracy in at]).mean for at in zip(*paths, strict=True)]


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
    case: str, path: Progression, target: float, base: Progression, virtual: ByStrategy, measured: ByStrategy
) -> ToAccuracy:
    needed, usual = reaches(path, target), reaches(base, target)
    if needed is None or usual is None:
        return ToAccuracy(case, None, None, best(path))
    gains = [usual * how["WA"].total_s / (needed * how[case].total_s) for how in (virtual, measured) if case in how]
    return ToAccuracy(case, needed, needed - usual, best(path), *gains)


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None unless all are there."""
    given = [value for value in values if value is not None]
    return Spread(given).mean if len(given) == len(values) else None


def row(case: str, of: Sequence[ToAccuracy], targets: Sequence[float]) -> Row:
    """Return an exchange's row of the table: means over the seeds where all of them reach the target."""
    short = Spread([100 * own.best for own in of]).less(Spread([100 * target for target in targets]))
    reached = f"{sum(own.epochs is not None for own in of)} of {len(of)}"
    accuracy = Spread([own.best for own in of]).text(factor=100)
    times = (_mean([getattr(own, what) for own in of]) for what in ("virtual", "measured"))
    epochs = (_mean([own.epochs for own in of]), _mean([own.more for own in of]))
    return [case, reached, *epochs, accuracy, short.mean, short.deviation, *times]


def _findings(outcomes: Mapping[str, Sequence[ToAccuracy]], goal: str) -> list[str]:
    low, high = paper.FIG_13_EXTRA_EPOCHS
    slow, fast = paper.FIG_13_SPEED_UP["vgg16"], paper.FIG_13_SPEED_UP["alexnet"]
    lines = [
        f"The paper needs {low} or {high} more epochs with INC+C, and is still {slow} (VGG-16) to {fast} (AlexNet) "
        "times as fast as WA."
    ]
    for case, of in outcomes.items():
        if "INC+" not in case:
            continue
        more, virtual, measured = (
            _mean([getattr(own, what) for own in of]) for what in ("more", "virtual", "measured")
        )
        if more is None:
            reached = sum(own.epochs is not None for own in of)
            found = Spread([own.best for own in of]).text(factor=100)
            lines.append(
                f"{case} reached the accuracy with {reached} of {len(of)} seeds: {found} % at best, not {goal} %."
            )
            continue
        line = f"{case} needs {abs(more):.2f} epochs {'more' if more >= 0 else 'fewer'}"
        if virtual is not None and measured is not None:
            line += f", and is {virtual:.2f} (virtual) and {measured:.2f} (measured) times as fast as WA"
        lines.append(f"{line}.")
    return lines
