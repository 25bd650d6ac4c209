"""INCEPTIONN's Fig. 13: epochs to the same accuracy, and what is left of the speed-up after the additional ones.

HDC is trained with every exchange until it is as accurate as WA without compression is after a given number of epochs.
The exchanges' rounding is computed (emulate.py); the time of an iteration is that of Fig. 12, of both kinds there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softnic import codecs
from softnic.experiments.data import load
from softnic.experiments.plot import Lines
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.exchange import sample
from softnic.experiments.reproduce.inceptionn import digits, fig12, paper
from softnic.experiments.reproduce.inceptionn.emulate import Aggregator, Ring
from softnic.experiments.reproduce.inceptionn.fig12 import ByStrategy
from softnic.experiments.reproduce.inceptionn.table2 import RATE, sample_bytes
from softnic.experiments.reproduce.parallel import each
from softnic.experiments.reproduce.report import Item

EPOCHS = {"digits": 20.0, "MNIST": 4.0}
"""Of WA, after which its accuracy is what all are to reach."""
PATIENCE = 2.0
"""Times as many epochs before an exchange is given up."""
LOOKS_AN_EPOCH = 4
CASES: Mapping[str, tuple[type[Aggregator] | type[Ring] | None, str | None]] = {
    "WA": (None, None),
    "WA+C": (Aggregator, paper.FIG_12_CODEC),
    "INC": (None, None),
    "INC+C": (Ring, paper.FIG_12_CODEC),
    "INC+bounded:10": (Ring, "bounded:10"),
    "INC+bounded:8": (Ring, "bounded:8"),
}
"""What rounds, and by which codec. WA and INC add the same numbers, and one training stands for both."""


@dataclass(frozen=True)
class Progression:
    """How accuracy grew with epochs."""

    judged: list[tuple[float, float]]
    """Epochs and the accuracy then."""

    def reaches(self, accuracy: float) -> float | None:
        """Epochs until it was as accurate, as far as it was looked at; None: not within them."""
        return next((epochs for epochs, seen in self.judged if seen >= accuracy), None)


def trained(
    data_path: Path, epochs: float, seed: int, kind: type[Aggregator] | type[Ring] | None, codec: str | None
) -> Progression:
    """HDC through an emulated exchange, for so many epochs. The rate falls as if these were all."""
    data = load(data_path)
    rate = digits.epoch_steps(data, digits.Plan(1))
    looks = max(1, rate // LOOKS_AN_EPOCH)
    plan = digits.Plan(max(looks, round(epochs * rate)), seed=seed, judge_every=looks)
    exchange = kind(codecs.get(codec)) if kind is not None and codec is not None else None
    done = digits.train(data, plan, exchange)
    return Progression([(step / rate, accuracy) for step, accuracy in done.judged])


def make(context: Context) -> Item:
    context.only(("hdc",))
    epochs = 0.3 if context.quick else EPOCHS.get(context.data.name, EPOCHS["MNIST"])
    most = epochs * PATIENCE
    tasks = {
        case: (context.data_path, most, context.settings.seed, *how) for case, how in CASES.items() if case != "INC"
    }
    context.progress(f"fig13: HDC is trained for {most:g} epochs with {len(tasks)} exchanges")
    done = each(trained, tasks, lambda what: context.progress(f"fig13: HDC, {what}"))
    paths = {case: done.get(case, done["WA"]) for case in CASES}
    target = max(accuracy for at, accuracy in paths["WA"].judged if at <= epochs + 1e-9)
    given = sample(context.stages("hdc")[-1].floats, paper.WORKERS, sample_bytes(context))
    virtual, measured = fig12.in_proportion(context, "hdc", given), fig12.here(context, "hdc", given)
    outcomes = [outcome(case, path, target, paths["WA"], virtual, measured) for case, path in paths.items()]
    at = [epoch for epoch, _ in paths["WA"].judged]
    series: dict[str, list[float | None]] = {
        case: [accuracy for _, accuracy in path.judged] for case, path in paths.items()
    }
    return Item(
        "inceptionn",
        "fig13",
        "epochs and speed-up to the same accuracy",
        [
            ValueTable(
                f"HDC until it has {target:.4f} on the test set; paper: Fig. 13",
                _COLUMNS,
                [own.row for own in outcomes],
            )
        ],
        [Lines("HDC", "epochs", "accuracy", at, series)],
        [
            f"HDC only, on {context.data.name}; {target:.4f} is the best that WA had within {epochs:g} epochs (looked "
            f"at {LOOKS_AN_EPOCH} times an epoch), the others had {most:g}. The paper trains to the end, and does not "
            "say how many epochs that takes for HDC.",
            f"Time of an iteration: as in fig12, virtual at {paper.LINK} with Table II's computation, and measured at "
            f"{RATE}.",
            *context.gradients_differ(),
        ],
        _findings(outcomes),
        {"epochs": epochs, "target": target, "quick": context.quick},
    )


_COLUMNS = [
    ValueColumn("exchange"),
    ValueColumn("epochs", ".2f"),
    ValueColumn("more than WA", "+.2f"),
    ValueColumn("best accuracy", ".4f"),
    ValueColumn("speed-up, Table II and virtual time", ".2f"),
    ValueColumn("speed-up, measured", ".2f"),
]


@dataclass(frozen=True)
class Outcome:
    """What one exchange came to."""

    case: str
    best: float
    epochs: float | None = None
    """None: it did not get there."""
    more: float | None = None
    """Than WA."""
    virtual: float | None = None
    measured: float | None = None
    """Speed-ups against WA; None where Fig. 12 has no time of the codec."""

    @property
    def row(self) -> list[Value]:
        return [self.case, self.epochs, self.more, self.best, self.virtual, self.measured]


def outcome(
    case: str, path: Progression, target: float, base: Progression, virtual: ByStrategy, measured: ByStrategy
) -> Outcome:
    needed, usual = path.reaches(target), base.reaches(target)
    best = max(accuracy for _, accuracy in path.judged)
    if needed is None or usual is None:
        return Outcome(case, best)
    if case not in virtual:
        return Outcome(case, best, needed, needed - usual)
    gains = [usual * how["WA"].total_s / (needed * how[case].total_s) for how in (virtual, measured)]
    return Outcome(case, best, needed, needed - usual, *gains)


def _findings(outcomes: Sequence[Outcome]) -> list[str]:
    low, high = paper.FIG_13_EXTRA_EPOCHS
    slow, fast = paper.FIG_13_SPEED_UP["vgg16"], paper.FIG_13_SPEED_UP["alexnet"]
    lines = [
        f"The paper needs {low} or {high} more epochs with INC+C, and is still {slow} (VGG-16) to {fast} (AlexNet) "
        "times as fast as WA."
    ]
    for own in (own for own in outcomes if "INC+" in own.case):
        if own.epochs is None:
            lines.append(f"{own.case} did not get there: {own.best:.4f} at best.")
            continue
        more = own.more or 0.0
        said = f"{own.case} needs {abs(more):.2f} epochs {'more' if more >= 0 else 'fewer'}"
        if own.virtual is not None and own.measured is not None:
            said += f", and is {own.virtual:.2f} (virtual) and {own.measured:.2f} (measured) times as fast as WA"
        lines.append(f"{said}.")
    return lines
