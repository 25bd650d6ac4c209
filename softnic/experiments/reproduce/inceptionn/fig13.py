"""INCEPTIONN's Fig. 13: epochs to the same accuracy, and the speed-up that remains with the additional epochs.

HDC is trained with every exchange until it is as accurate as WA without compression is after a given number of epochs.
The exchanges' rounding is computed (emulate.py); the time of an iteration is that of Fig. 12, of both kinds there.
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
from softnic.experiments.reproduce.item import Item, ValueTable
from softnic.experiments.reproduce.over_nics import RATE, sample_of
from softnic.experiments.reproduce.parallel import each

EPOCHS = {"digits": 20.0, "MNIST": 4.0}
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
_COLUMNS = (
    "exchange | epochs [.2f] | more than WA [+.2f] | best accuracy [.4f] | "
    "speed-up, Table II and virtual time [.2f] | speed-up, measured [.2f]"
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
    most = epochs * EPOCHS_FACTOR
    tasks = {
        name: (context.data_path, most, context.settings.seed, *how) for name, how in CASES.items() if name != "INC"
    }
    context.progress(f"fig13: HDC is trained for {most:g} epochs with {len(tasks)} exchanges")
    done = each(trained, tasks, lambda what: context.progress(f"fig13: HDC, {what}"))
    paths = {case: done.get(case, done["WA"]) for case in CASES}
    target = best([path for path in paths["WA"] if path[0] <= epochs + 1e-9])
    given = sample_of(context, "hdc")
    virtual, measured = fig12.in_proportion(context, "hdc", given), fig12.here(context, "hdc", given)
    outcomes = [outcome(case, path, target, paths["WA"], virtual, measured) for case, path in paths.items()]
    title = f"HDC until it has {target:.4f} on the test set; paper: Fig. 13"
    at = [epoch for epoch, _ in paths["WA"]]
    series = {case: [accuracy for _, accuracy in path] for case, path in paths.items()}
    return Item(
        "epochs and speed-up to the same accuracy",
        [ValueTable(title, _COLUMNS, outcomes)],
        [Lines("HDC", "epochs", "accuracy", at, series)],
        [
            f"HDC only, on {context.data.name}; {target:.4f} is the best that WA had within {epochs:g} epochs "
            f"(evaluated {EVALUATIONS_AN_EPOCH} times an epoch), the others had {most:g}. The paper trains to the end, "
            "and does not say how many epochs that takes for HDC.",
            f"Time of an iteration: as in fig12, virtual at {paper.LINK} with Table II's computation, and measured at "
            f"{RATE}.",
            *context.gradients_differ(),
        ],
        _findings(outcomes),
        {"epochs": epochs, "target": target},
    )


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


def _findings(outcomes: Sequence[ToAccuracy]) -> list[str]:
    low, high = paper.FIG_13_EXTRA_EPOCHS
    slow, fast = paper.FIG_13_SPEED_UP["vgg16"], paper.FIG_13_SPEED_UP["alexnet"]
    lines = [
        f"The paper needs {low} or {high} more epochs with INC+C, and is still {slow} (VGG-16) to {fast} (AlexNet) "
        "times as fast as WA."
    ]
    for own in (own for own in outcomes if "INC+" in own.case):
        if own.epochs is None or own.more is None:
            lines.append(f"{own.case} did not reach the accuracy: {own.best:.4f} at best.")
            continue
        line = f"{own.case} needs {abs(own.more):.2f} epochs {'more' if own.more >= 0 else 'fewer'}"
        if own.virtual is not None and own.measured is not None:
            line += f", and is {own.virtual:.2f} (virtual) and {own.measured:.2f} (measured) times as fast as WA"
        lines.append(f"{line}.")
    return lines
