"""What trainings by one method over several seeds amount to, on links of any rate.

Accuracy and bytes do not depend on the links, so each training is done once, over links as fast as the machine, and the
time on a given link is computed:

    time = CPU time of the busiest host (worker and NIC) + bytes that the busiest link carries / its rate

Every host has a core for its worker and one for its NIC, as in a cluster, and nothing overlaps: neither computation
with the exchange, nor a NIC's work with its link. Delays are left out. `softnic compare --check` measures steps over
emulated links beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from softnic.experiments import torch_models
from softnic.experiments.compare.results import TrainingResult
from softnic.measure.spread import Spread

REFERENCE = "exact"
"""The method that others are compared with."""
HALVES = ("fp16", "bf16")
ALLOWED_POINTS, ALLOWED_BITS = 0.005, 0.01
"""How much worse than the exact trainings' last score counts as that score: of accuracy, and in bits per character."""
RATES = ("10gbit", "1gbit", "100mbit", "10mbit")
"""The links that tables show."""


@dataclass(frozen=True)
class Cost:
    """What some steps cost."""

    steps: float
    host_s: float
    """CPU time of the busiest host."""
    link_bytes: float
    """Bytes that the busiest link carries."""

    def seconds(self, rate_bps: float) -> float:
        """Return the time over links of this rate."""
        return self.host_s + 8 * self.link_bytes / rate_bps

    def a_step(self, rate_bps: float) -> float:
        """Return the mean time of a step over links of this rate."""
        return self.seconds(rate_bps) / self.steps


@dataclass(frozen=True)
class LearningCurve:
    """The learning curve of a training, or the mean of several: lists with an element for each evaluation."""

    steps: Sequence[float]
    host_s: Sequence[float]
    link_bytes: Sequence[float]
    scores: Sequence[float | None]
    """None: the training has diverged, or one of several."""

    @property
    def costs(self) -> list[Cost]:
        """What all steps until each evaluation cost."""
        return [Cost(*each) for each in zip(self.steps, self.host_s, self.link_bytes, strict=True)]

    def until(self, wanted: float, *, less_is_better: bool) -> Cost | None:
        """Return what it cost until the score was `wanted` or better, linear between two evaluations; None: never."""
        before, last = Cost(0.0, 0.0, 0.0), None
        for cost, score in zip(self.costs, self.scores, strict=True):
            if score is not None and (score <= wanted if less_is_better else score >= wanted):
                return _between(before, cost, 1.0 if last is None else (wanted - last) / (score - last))
            before, last = cost, score
        return None


@dataclass(frozen=True)
class MethodSummary:
    """All trainings of a model by one method, by seed, beside the exact ones of the same seeds."""

    model: str
    method: str
    seeds: tuple[int, ...]
    curves: tuple[LearningCurve, ...]
    exact_scores: tuple[float, ...]
    """At the end."""
    ratio: float
    """Bytes on the wire of the exact trainings to these."""
    last_ratio: float
    """The same in the last interval between evaluations, after methods have warmed up."""

    @property
    def score(self) -> Spread | None:
        """At the end. None if a training diverged."""
        known = [score for curve in self.curves if (score := curve.scores[-1]) is not None]
        return Spread(known) if len(known) == len(self.curves) else None

    @property
    def change(self) -> Spread | None:
        """Of the score, against the exact training of the same seed. None if a training diverged."""
        return None if self.score is None else self.score.less(Spread(self.exact_scores))

    @property
    def to_score(self) -> Cost | None:
        """What it cost until the mean over the seeds reached that of the exact trainings' last scores, less
        ALLOWED_POINTS or ALLOWED_BITS. None: never.

        Means, because trainings that differ only in rounding can be further apart than that, and one of them alone
        would be early or late by chance.
        """
        text = torch_models.reads_text(self.model)
        wanted = Spread(self.exact_scores).mean + (ALLOWED_BITS if text else -ALLOWED_POINTS)
        return _mean(self.curves).until(wanted, less_is_better=text)

    def only(self, seeds: Collection[int]) -> MethodSummary | None:
        """Return the summary of these seeds alone, with the ratios of all; None if one is missing."""
        if not set(seeds) <= set(self.seeds):
            return None
        kept = [index for index, seed in enumerate(self.seeds) if seed in seeds]
        return replace(
            self,
            seeds=tuple(self.seeds[index] for index in kept),
            curves=tuple(self.curves[index] for index in kept),
            exact_scores=tuple(self.exact_scores[index] for index in kept),
        )

    def seconds_to_score(self, rate_bps: float) -> float | None:
        """Return the time until the score over links of a rate; None: never."""
        cost = self.to_score
        return None if cost is None else cost.seconds(rate_bps)

    @property
    def whole(self) -> Cost:
        """What all steps cost, in the mean over the seeds."""
        return _mean(self.curves).costs[-1]

    def step_seconds(self, rate_bps: float) -> float:
        """Return the mean time of a step over links of a rate."""
        return self.whole.a_step(rate_bps)


@dataclass(frozen=True)
class ModelSummary:
    """The trainings of a model by all methods."""

    model: str
    data: str
    parameters: int
    compute_s: float
    """Forward and backward pass of a step, of one worker on one core, in the exact training with the shortest."""
    workers: int
    batch: int
    """Samples per worker and step."""
    steps: int
    took_s: float
    """All trainings together, with evaluations."""
    methods: list[MethodSummary]

    def of(self, method: str) -> MethodSummary:
        return next(each for each in self.methods if each.method == method)

    @property
    def is_comparable(self) -> bool:
        """Whether one of softnic's methods and one of PyTorch's hooks at least have trained the model."""
        return has_both(each.method for each in self.methods)


def is_peer(method: str) -> bool:
    """Return whether a method is one of PyTorch's hooks, over sums that are not compressed."""
    return method in HALVES or (method.startswith("powersgd") and "+" not in method)


def is_ours(method: str) -> bool:
    """Return whether a method is softnic's: neither exact nor one of PyTorch's hooks."""
    return not is_peer(method) and method not in (REFERENCE, "wa")


def has_both(methods: Iterable[str]) -> bool:
    """Return whether there is one of softnic's methods and one of PyTorch's hooks."""
    names = list(methods)
    return any(map(is_peer, names)) and any(map(is_ours, names))


def has_feedback(method: str) -> bool:
    """Return whether a method of softnic's feeds the error of each step back into the next."""
    return method.startswith(("feedback:", "powersgd")) and not is_peer(method)


def summaries(results: Sequence[TrainingResult], model: str) -> list[MethodSummary]:
    """Return a summary for each method, in the order of the results.

    Seeds without an exact training that did not diverge are left out.
    """
    own = [result for result in results if result.model == model]
    exact = {result.seed: result for result in own if result.method == REFERENCE and not result.diverged}
    known = [result for result in own if result.seed in exact]
    return [
        _summary([result for result in known if result.method == method], exact)
        for method in dict.fromkeys(result.method for result in known)
    ]


def _summary(trainings: Sequence[TrainingResult], exact: dict[int, TrainingResult]) -> MethodSummary:
    references = [exact[training.seed] for training in trainings]
    return MethodSummary(
        model=trainings[0].model,
        method=trainings[0].method,
        seeds=tuple(training.seed for training in trainings),
        curves=tuple(map(_curve, trainings)),
        exact_scores=tuple(reference.last.score for reference in references),
        ratio=sum(each.last.wire_bytes for each in references) / sum(each.last.wire_bytes for each in trainings),
        last_ratio=sum(map(last_bytes, references)) / sum(map(last_bytes, trainings)),
    )


def _curve(training: TrainingResult) -> LearningCurve:
    looks = training.evaluations
    return LearningCurve(
        steps=[look.step for look in looks],
        host_s=[look.host_s for look in looks],
        link_bytes=[look.link_bytes for look in looks],
        scores=[None if look.diverged else look.score for look in looks],
    )


def _mean(curves: Sequence[LearningCurve]) -> LearningCurve:
    """Return the mean of learning curves of one schedule."""

    def means(lists: Iterable[Sequence[float]]) -> list[float]:
        return [Spread(values).mean for values in zip(*lists, strict=True)]

    scores = [
        None if None in each else Spread([score for score in each if score is not None]).mean
        for each in zip(*(curve.scores for curve in curves), strict=True)
    ]
    return LearningCurve(
        curves[0].steps,
        means(curve.host_s for curve in curves),
        means(curve.link_bytes for curve in curves),
        scores,
    )


def last_bytes(result: TrainingResult) -> int:
    """Return the bytes on the wire in the last interval between evaluations."""
    before = result.evaluations[-2].wire_bytes if len(result.evaluations) > 1 else 0
    return result.last.wire_bytes - before


def _between(before: Cost, after: Cost, share: float) -> Cost:
    return Cost(
        before.steps + share * (after.steps - before.steps),
        before.host_s + share * (after.host_s - before.host_s),
        before.link_bytes + share * (after.link_bytes - before.link_bytes),
    )
