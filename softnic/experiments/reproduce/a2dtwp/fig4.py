"""A2DTWP's Fig. 4: time to an error, of the oracle and of A2DTWP, normalised to the baseline's."""

from __future__ import annotations

from softnic.experiments.plot import Bars
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.a2dtwp import paper
from softnic.experiments.reproduce.a2dtwp.cases import BASELINE, Case, batches_of, case, differs
from softnic.experiments.reproduce.a2dtwp.training import AWP_NAME
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.report import Item, change, percent, span


def make(context: Context) -> Item:
    cases = [case(context, model, batch) for model in context.models for batch in batches_of(context, model)]
    series: dict[str, list[float | None]] = {
        "A2DTWP, paper, x86": [_published("x86", each) for each in cases],
        "A2DTWP, paper, POWER": [_published("POWER", each) for each in cases],
        "oracle, here": [each.share(each.oracle) for each in cases],
        "A2DTWP, here": [each.share(AWP_NAME) for each in cases],
    }
    return Item(
        "a2dtwp",
        "fig4",
        "time to the same error, normalised to 32 bits",
        [
            ValueTable("Times the baseline's; paper: sections V-B to V-D", _COLUMNS, [_row(each) for each in cases]),
            ValueTable(
                "Steps to the error, by bits of the weights", _STEP_COLUMNS, [_steps(each) for each in cases], "steps"
            ),
        ],
        [Bars("Time to the error", "times the baseline's", [each.title for each in cases], series)],
        differs(context),
        [*_findings(cases), *_published_findings()],
        {"cases": [each.title for each in cases], "quick": context.quick},
    )


_COLUMNS = [
    ValueColumn("model"),
    ValueColumn("batch", "d"),
    ValueColumn("error to reach", ".4f"),
    ValueColumn("A2DTWP, paper, x86", ".3f"),
    ValueColumn("POWER", ".3f"),
    ValueColumn("oracle's bits"),
    ValueColumn("oracle, here", ".3f"),
    ValueColumn("A2DTWP, here", ".3f"),
    ValueColumn("its bytes of weights", ".3f"),
    ValueColumn("mean bits at the end", ".1f"),
    ValueColumn("T", ".2g"),
]
_STEP_COLUMNS = [
    ValueColumn("model and batch"),
    *(ValueColumn(name) for name in ("8", "16", "24", "32", AWP_NAME)),
]


def _published(system: str, given: Case) -> float | None:
    gain = paper.GAINS[system].get(given.plan.model, {}).get(given.plan.batch)
    return None if gain is None else 1 - gain


def _row(given: Case) -> list[Value]:
    own = given.trainings[AWP_NAME]
    return [
        paper.TITLES[given.plan.model],
        given.plan.batch,
        given.target,
        *(_published(system, given) for system in paper.SYSTEMS),
        given.oracle,
        given.share(given.oracle),
        given.share(AWP_NAME),
        given.sent_share(AWP_NAME),
        own.bits[-1],
        own.threshold,
    ]


def _steps(given: Case) -> list[Value]:
    found: list[Value] = [given.title]
    for training in given.trainings.values():
        index = training.reaches(given.target)
        found.append(None if index is None else training.looks[index])
    return found


def _findings(cases: list[Case]) -> list[str]:
    ours = [share for each in cases if (share := each.share(AWP_NAME)) is not None]
    late = [each.title for each in cases if each.share(AWP_NAME) is None]
    lines = []
    if ours:
        mean = 1 - sum(ours) / len(ours)
        systems = " and ".join(f"{percent(gain, 2)} ({system})" for system, gain in paper.MEAN_GAINS.items())
        lines.append(
            f"A2DTWP takes {change([mean])} time than the baseline on average over the {len(ours)} of {len(cases)} "
            f"cases in which it came to the error; the paper has {systems} less."
        )
    if late:
        lines.append(f"It did not come to the error within the steps: {'; '.join(late)}.")
    slow = [each.title for each in cases if each.trainings["8"].reaches(each.target) is None]
    if slow:
        lines.append(f"With 8 bits all the time, these did not: {'; '.join(slow)}.")
    chosen = [each.oracle for each in cases]
    counts = [f"{bits} bits {chosen.count(bits)} times" for bits in ("8", "16", "24", BASELINE) if bits in chosen]
    lines.append(f"The oracle takes {', '.join(counts)}." if counts else "No precision came to the error.")
    found = span((each.trainings[AWP_NAME].threshold for each in cases), "{:.1e}".format)
    theirs = span(paper.THRESHOLDS.values(), "{:.0e}".format)
    return [*lines, f"T comes out as {found}; the paper has {theirs}."]


def _published_findings() -> list[str]:
    """What the paper's figures say of themselves."""
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
