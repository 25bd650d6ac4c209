"""A2DTWP's Fig. 4: time to an error, of the oracle and of A2DTWP, normalised to the baseline's."""

from __future__ import annotations

from softnic.experiments.plot import Bars
from softnic.experiments.reproduce.a2dtwp import paper
from softnic.experiments.reproduce.a2dtwp.cases import BASELINE, WeightCase, batches_of, case, differs, titles
from softnic.experiments.reproduce.a2dtwp.training import AWP_NAME
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.item import Item, Row, ValueTable, change, percent, span

_COLUMNS = (
    "model | batch [d] | error to reach [.4f] | A2DTWP, paper, x86 [.3f] | POWER [.3f] | oracle's bits | "
    "oracle, here [.3f] | A2DTWP, here [.3f] | its bytes of weights [.3f] | mean bits at the end [.1f] | T [.2g]"
)


def make(context: Context) -> Item:
    cases = [case(context, model, batch) for model in context.models for batch in batches_of(context, model)]
    series = {f"A2DTWP, paper, {system}": [_published(system, each) for each in cases] for system in paper.SYSTEMS}
    series |= {
        "oracle, here": [each.share(each.oracle) for each in cases],
        "A2DTWP, here": [each.share(AWP_NAME) for each in cases],
    }
    steps = "model and batch | 8 | 16 | 24 | 32 | A2DTWP"
    return Item(
        "time to the same error, normalised to 32 bits",
        [
            ValueTable("Times the baseline's; paper: sections V-B to V-D", _COLUMNS, [_row(each) for each in cases]),
            ValueTable("Steps to the error, by bits of the weights", steps, [_steps(each) for each in cases], "steps"),
        ],
        [Bars("Time to the error", "times the baseline's", [each.title for each in cases], series)],
        differs(context),
        [*_findings(cases), *_published_findings()],
        titles(cases),
    )


def _published(system: str, given: WeightCase) -> float | None:
    gain = paper.GAINS[system].get(given.plan.model, {}).get(given.plan.batch)
    return None if gain is None else 1 - gain


def _row(given: WeightCase) -> Row:
    own = given.trainings[AWP_NAME]
    published = (_published(system, given) for system in paper.SYSTEMS)
    shares = (given.oracle, given.share(given.oracle), given.share(AWP_NAME), given.sent_share(AWP_NAME))
    title = paper.TITLES[given.plan.model]
    return [title, given.plan.batch, given.target, *published, *shares, own.bits[-1], own.threshold]


def _steps(given: WeightCase) -> Row:
    reached = [(training, training.reaches(given.target)) for training in given.trainings.values()]
    return [given.title, *(None if index is None else training.steps[index] for training, index in reached)]


def _findings(cases: list[WeightCase]) -> list[str]:
    ours = [share for each in cases if (share := each.share(AWP_NAME)) is not None]
    late = [each.title for each in cases if each.share(AWP_NAME) is None]
    lines = []
    if ours:
        mean = 1 - sum(ours) / len(ours)
        systems = " and ".join(f"{percent(gain, 2)} ({system})" for system, gain in paper.MEAN_GAINS.items())
        lines.append(
            f"A2DTWP takes {change([mean])} time than the baseline on average over the {len(ours)} of {len(cases)} "
            f"cases in which it reached the error; the paper has {systems} less."
        )
    if late:
        lines.append(f"It did not reach the error within the steps: {'; '.join(late)}.")
    slow = [each.title for each in cases if each.trainings["8"].reaches(each.target) is None]
    if slow:
        lines.append(f"With 8 bits all the time, these did not: {'; '.join(slow)}.")
    chosen = [each.oracle for each in cases]
    counts = [f"{bits} bits {chosen.count(bits)} times" for bits in ("8", "16", "24", BASELINE) if bits in chosen]
    lines.append(f"The oracle takes {', '.join(counts)}." if counts else "No precision reached the error.")
    found = span((each.trainings[AWP_NAME].threshold for each in cases), ".1e")
    return [*lines, f"T comes out as {found}; the paper has {span(paper.THRESHOLDS.values(), '.0e')}."]


def _published_findings() -> list[str]:
    """Return findings that follow from the paper's figures alone."""
    means = {}
    for system in paper.SYSTEMS:
        gains = [gain for by_batch in paper.GAINS[system].values() for gain in by_batch.values()]
        means[system] = sum(gains) / len(gains)
    return [
        f"The nine gains that the paper's text gives for POWER average {percent(means['POWER'], 2)}, not "
        f"{percent(paper.MEAN_GAINS['POWER'], 2)}; those for x86 average {percent(means['x86'], 2)}, where it has "
        f"{percent(paper.MEAN_GAINS['x86'], 2)}.",
        "With its T below zero, Algorithm 1 counts only batches in which a norm shrinks by more than |T|: by 5 % in a "
        "batch for AlexNet.",
    ]
