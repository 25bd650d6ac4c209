"""A2DTWP's Fig. 4: time to an error, of the oracle and of A2DTWP, normalised to the baseline's."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers.a2dtwp import paper
from benchmarks.papers.a2dtwp.cases import (
    ORACLE,
    SeedCase,
    WeightCase,
    batches_of,
    cases,
    differs,
    titles,
)
from benchmarks.papers.a2dtwp.training import AWP_NAME, FIXED_BITS
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item, Row, ValueTable, change, percent, span
from softnic.measure.plot import Bars
from softnic.measure.spread import Spread, cell

_COLUMNS = (
    "model | batch [d] | error to reach (%) | A2DTWP, paper, x86 [.3f] | POWER [.3f] | oracle's bits | oracle, here | "
    "A2DTWP, here [.3f] | ± [.3f] | seeds that reach the error [d] | its bytes of weights | "
    "mean bits at the end [.1f] | T"
)


def make(context: Context) -> Item:
    found = cases(context, [(model, batch) for model in context.models for batch in batches_of(context, model)])
    series = {f"A2DTWP, paper, {system}": [_published(system, each) for each in found] for system in paper.SYSTEMS}
    series |= {f"{name}, here": [_share(each, name) for each in found] for name in (ORACLE, AWP_NAME)}
    precisions = [*map(str, FIXED_BITS), AWP_NAME]
    return Item(
        "time to the same error, normalised to 32 bits",
        [
            ValueTable("Times the baseline's; paper: sections V-B to V-D", _COLUMNS, [_row(each) for each in found]),
            ValueTable(
                "Steps to the error, by bits of the weights, with the number of seeds where not all reach it",
                " | ".join(("model and batch", *precisions)),
                [[each.title, *(_steps(each, name) for name in precisions)] for each in found],
                "steps",
            ),
        ],
        [Bars("Time to the error", "times the baseline's", [each.title for each in found], series)],
        differs(context),
        [*_findings(found), *_published_findings()],
        titles(found),
    )


def _published(system: str, given: WeightCase) -> float | None:
    gain = paper.GAINS[system].get(given.plan.model, {}).get(given.plan.batch)
    return None if gain is None else 1 - gain


def _share(given: WeightCase, name: str) -> float | None:
    """Return the mean over the seeds that reach the error; None if none does."""
    shares = given.reaching(name, SeedCase.share)
    return Spread(shares).mean if shares else None


def _row(given: WeightCase) -> Row:
    ours = given.reaching(AWP_NAME, SeedCase.share)
    return [
        paper.TITLES[given.plan.model],
        given.plan.batch,
        given.targets.text(factor=100),
        *(_published(system, given) for system in paper.SYSTEMS),
        given.oracles,
        cell(given.reaching(ORACLE, SeedCase.share), ".3f"),
        _share(given, AWP_NAME),
        Spread(ours).deviation if ours else None,
        len(ours),
        cell(given.reaching(AWP_NAME, SeedCase.sent_share), ".3f"),
        given.spread(AWP_NAME, lambda own: own.bits[-1]).mean,
        span(given.spread(AWP_NAME, lambda own: own.threshold).values, ".1e"),
    ]


def _steps(given: WeightCase, name: str) -> str | None:
    reached = given.reaching(name, SeedCase.steps)
    some = f" ({len(reached)} of {len(given.seeds)})" if len(reached) < len(given.seeds) else ""
    return f"{cell(reached, '.0f')}{some}" if reached else None


def _findings(found: Sequence[WeightCase]) -> list[str]:
    ours = [share for each in found if (share := _share(each, AWP_NAME)) is not None]
    reached, seeds = (
        sum(len(each.reaching(AWP_NAME, SeedCase.share)) for each in found),
        sum(len(each.seeds) for each in found),
    )
    lines = []
    if ours:
        systems = " and ".join(f"{percent(gain, 2)} ({system})" for system, gain in paper.MEAN_GAINS.items())
        lines.append(
            f"A2DTWP takes {change([1 - Spread(ours).mean])} time than the baseline on average over {len(ours)} of "
            f"{len(found)} cases, by the {reached} of {seeds} trainings in which it reached the error; the paper has "
            f"{systems} less."
        )
    lines += _late(found, AWP_NAME, "It did not reach the error within the steps")
    lines += _late(found, "8", "With 8 bits all the time, these did not")
    chosen = [each.oracle for given in found for each in given.seeds]
    counts = [f"{bits} bits {chosen.count(bits)} times" for bits in map(str, FIXED_BITS) if bits in chosen]
    lines.append(f"The oracle takes {', '.join(counts)}.")
    thresholds = [each.training(AWP_NAME).threshold for given in found for each in given.seeds]
    return [
        *lines,
        f"T comes out as {span(thresholds, '.1e')}; the paper has {span(paper.THRESHOLDS.values(), '.0e')}.",
    ]


def _late(found: Sequence[WeightCase], name: str, what: str) -> list[str]:
    """Return the finding that names the trainings which do not reach the error, if there are any."""
    missing = {each.title: len(each.seeds) - len(each.reaching(name, SeedCase.share)) for each in found}
    late = [f"{title} ({count} of {len(found[0].seeds)} seeds)" for title, count in missing.items() if count]
    return [f"{what}: {'; '.join(late)}."] if late else []


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
