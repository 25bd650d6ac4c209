"""What trainings by one method over several seeds amount to, on links of any rate.

Accuracy and bytes do not depend on the links, so each training is done once, over links as fast as the machine, and the
time on a given link is computed:

    time = CPU time of the busiest host (worker and NIC) + bytes that the busiest link carries / its rate

Every host has a core for its worker and one for its NIC, as in a cluster, and nothing overlaps: neither computation
with the exchange, nor a NIC's work with its link. Delays are left out. `softnic compare --check` measures steps over
emulated links beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from softnic.experiments import torch_models
from softnic.experiments.compare.results import TrainingResult
from softnic.experiments.compare.training import START, Evaluation
from softnic.experiments.spread import Spread

REFERENCE = "exact"
"""The method that others are compared with."""
HALVES = ("fp16", "bf16")
ALLOWED_POINTS, ALLOWED_BITS = 0.005, 0.01
"""How much worse than the exact training's last score counts as that score: of accuracy, and in bits per character."""
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


@dataclass(frozen=True)
class MethodSummary:
    """All trainings of a model by one method, by seed, beside the exact ones of the same seeds."""

    model: str
    method: str
    seeds: tuple[int, ...]
    scores: tuple[float | None, ...]
    """At the end; None where the training diverged."""
    exact_scores: tuple[float, ...]
    ratio: float
    """Bytes on the wire of the exact trainings to these."""
    last_ratio: float
    """The same in the last interval between evaluations, after methods have warmed up."""
    whole: tuple[Cost, ...]
    """Of the trainings."""
    to_score: tuple[Cost | None, ...]
    """Until the exact training's last score was reached, less ALLOWED_POINTS or ALLOWED_BITS; None: never."""

    @property
    def is_peer(self) -> bool:
        """Whether this is one of PyTorch's hooks, which softnic is compared with."""
        return is_peer(self.method)

    @property
    def score(self) -> Spread | None:
        """None if a training diverged."""
        known = [score for score in self.scores if score is not None]
        return Spread(known) if len(known) == len(self.scores) else None

    @property
    def change(self) -> Spread | None:
        """Of the score, against the exact training of the same seed. None if a training diverged."""
        pairs = zip(self.scores, self.exact_scores, strict=True)
        return None if self.score is None else Spread([score - exact for score, exact in pairs if score is not None])

    @property
    def reached(self) -> int:
        """The number of seeds whose training reached the score."""
        return sum(cost is not None for cost in self.to_score)

    def only(self, seeds: Collection[int]) -> MethodSummary | None:
        """Return the summary of these seeds alone, with the ratios of all; None if one is missing."""
        if not set(seeds) <= set(self.seeds):
            return None
        kept = [index for index, seed in enumerate(self.seeds) if seed in seeds]
        return replace(
            self,
            seeds=tuple(self.seeds[index] for index in kept),
            scores=tuple(self.scores[index] for index in kept),
            exact_scores=tuple(self.exact_scores[index] for index in kept),
            whole=tuple(self.whole[index] for index in kept),
            to_score=tuple(self.to_score[index] for index in kept),
        )

    def seconds_to_score(self, rate_bps: float) -> Spread | None:
        """Return the time until the score over links of a rate; None unless every seed's training reached it."""
        known = [cost.seconds(rate_bps) for cost in self.to_score if cost is not None]
        return Spread(known) if len(known) == len(self.to_score) else None

    def step_seconds(self, rate_bps: float) -> float:
        """Return the mean time of a step over links of a rate."""
        return Spread([cost.seconds(rate_bps) / cost.steps for cost in self.whole]).mean


def is_peer(method: str) -> bool:
    """Return whether a method is one of PyTorch's hooks, over sums that are not compressed."""
    return method in HALVES or (method.startswith("powersgd") and "+" not in method)


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
        scores=tuple(None if training.diverged else training.last.score for training in trainings),
        exact_scores=tuple(reference.last.score for reference in references),
        ratio=sum(each.last.wire_bytes for each in references) / sum(each.last.wire_bytes for each in trainings),
        last_ratio=sum(map(last_bytes, references)) / sum(map(last_bytes, trainings)),
        whole=tuple(_cost(training.last) for training in trainings),
        to_score=tuple(cost_to_score(each, exact[each.seed].last.score) for each in trainings),
    )


def last_bytes(result: TrainingResult) -> int:
    """Return the bytes on the wire in the last interval between evaluations."""
    before = result.evaluations[-2].wire_bytes if len(result.evaluations) > 1 else 0
    return result.last.wire_bytes - before


def cost_to_score(result: TrainingResult, score: float) -> Cost | None:
    """Return what it cost until the score was about as good as `score`, linear between two evaluations.

    None: no evaluation is.
    """
    text = torch_models.reads_text(result.model)
    wanted = score + ALLOWED_BITS if text else score - ALLOWED_POINTS
    last = START
    for look in result.evaluations:
        if look.score <= wanted if text else look.score >= wanted:
            share = 1.0 if last is START else (wanted - last.score) / (look.score - last.score)
            return _between(_cost(last), _cost(look), share)
        last = look
    return None


def _cost(look: Evaluation) -> Cost:
    return Cost(look.step, look.host_s, look.link_bytes)


def _between(before: Cost, after: Cost, share: float) -> Cost:
    return Cost(
        before.steps + share * (after.steps - before.steps),
        before.host_s + share * (after.host_s - before.host_s),
        before.link_bytes + share * (after.link_bytes - before.link_bytes),
    )
