"""Which method to take for a model and a link, from the results of comparisons.

The method that reached the exact training's score soonest, in the mean over seeds. The package carries summaries of the
published results (`advice.json`, generated from docs/results). For another model, the most similar one in them
is taken, scaled to its size (`scaled`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from softnic.experiments import torch_models
from softnic.experiments.compare.summary import REFERENCE, LearningCurve, MethodSummary
from softnic.experiments.spread import Spread
from softnic.units import text_rate, text_time

PUBLISHED = Path(__file__).with_name("advice.json")
"""Summaries that come with the package."""
_EXCHANGED_BYTES = 4
"""Of each parameter's gradient."""


class AdviceError(Exception):
    """There is no advice; the message is one line that says why and what to do."""


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
    def compute_s_per_byte(self) -> float:
        return self.compute_s / (_EXCHANGED_BYTES * self.parameters)


@dataclass(frozen=True)
class Choice:
    """A method on a link."""

    method: MethodSummary
    seconds: float
    """Until the exact training's score."""


@dataclass(frozen=True)
class Advice:
    """The choices for a model on a link, the soonest first. At least one: the exact training reaches its own score."""

    summary: ModelSummary
    rate_bps: float
    choices: Sequence[Choice]

    @property
    def best(self) -> Choice:
        return self.choices[0]

    @property
    def peer(self) -> Choice | None:
        """The best of PyTorch's hooks; None: none reached the score."""
        return next((each for each in self.choices if each.method.is_peer), None)

    @property
    def ours(self) -> Choice | None:
        """The best of softnic's methods; None: none reached the score."""
        return next((each for each in self.choices if is_ours(each.method)), None)

    @property
    def link_share(self) -> float:
        """The part of an exact training's step that its link takes."""
        step_s = self.summary.of(REFERENCE).step_seconds(self.rate_bps)
        return 1 - self.summary.of(REFERENCE).step_seconds(math.inf) / step_s


def is_ours(summary: MethodSummary) -> bool:
    """Return whether a method is softnic's: neither exact nor one of PyTorch's hooks."""
    return not summary.is_peer and summary.method not in (REFERENCE, "wa")


def is_comparable(summary: ModelSummary) -> bool:
    """Return whether a model was trained by one of softnic's methods and by one of PyTorch's hooks at least."""
    return any(each.is_peer for each in summary.methods) and any(map(is_ours, summary.methods))


def advise(summary: ModelSummary, rate_bps: float) -> Advice:
    """Return the advice for a model of the results, from methods that have all seeds of the exact training.

    Where none of softnic's methods or none of PyTorch's hooks has them, from the exact training's first seed.
    """
    exact = summary.of(REFERENCE)
    compared = _with_seeds(summary, exact.seeds)
    if not any(each.is_peer for each in compared) or not any(map(is_ours, compared)):
        compared = _with_seeds(summary, exact.seeds[:1])
    timed = [(each, each.seconds_to_score(rate_bps)) for each in compared]
    choices = [Choice(each, seconds) for each, seconds in timed if seconds is not None]
    summary = replace(summary, methods=compared)
    return Advice(summary, rate_bps, sorted(choices, key=lambda choice: choice.seconds))


def _with_seeds(summary: ModelSummary, seeds: Sequence[int]) -> list[MethodSummary]:
    """Return the methods that have these seeds, with no others."""
    return [each for method in summary.methods if (each := method.only(seeds)) is not None]


def load(path: Path) -> list[ModelSummary]:
    """Read summaries. Raises AdviceError if the file is not such a one, OSError."""
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8"))["models"], list[ModelSummary])
    except (ValueError, KeyError) as error:
        raise AdviceError(f"{path} has no summaries of comparisons: {error}") from error


def content(summaries: Sequence[ModelSummary]) -> dict[str, Any]:
    """Return what `load` reads."""
    return {"models": msgspec.to_builtins(list(summaries))}


def find(summaries: Sequence[ModelSummary], model: str) -> ModelSummary:
    """Return a model's summary by name. Raises AdviceError."""
    for summary in summaries:
        if summary.model == model:
            return summary
    known = ", ".join(summary.model for summary in summaries) or "none"
    raise AdviceError(
        f"there are no results of {model} (of these there are: {known}): give --parameters, and --compute, the time of "
        "a step without exchange, and the most similar model is taken"
    )


def nearest(summaries: Sequence[ModelSummary], parameters: int, compute_s: float | None) -> ModelSummary:
    """Return the most similar model: by size and, if known, by computation per byte of gradients, both as factors.

    Raises AdviceError if there are no results.
    """
    if not summaries:
        raise AdviceError("there are no results of any model yet")

    def distance(summary: ModelSummary) -> float:
        far = abs(math.log(parameters / summary.parameters))
        if compute_s:
            far += abs(math.log(compute_s / (_EXCHANGED_BYTES * parameters) / summary.compute_s_per_byte))
        return far

    return min(summaries, key=distance)


def scaled(summary: ModelSummary, parameters: int, compute_s: float | None) -> ModelSummary:
    """Return a summary for a model of another size that needs as many steps with each method.

    Bytes and the work of the exchange grow with the parameters; the computation is `compute_s`, or grows alike.
    """
    factor = parameters / summary.parameters
    computed = summary.compute_s * factor if compute_s is None else compute_s

    def rescale(curve: LearningCurve) -> LearningCurve:
        host_s = [
            max(0.0, host_s - steps * summary.compute_s) * factor + steps * computed
            for steps, host_s in zip(curve.steps, curve.host_s, strict=True)
        ]
        return replace(curve, host_s=host_s, link_bytes=[factor * sent for sent in curve.link_bytes])

    methods = [replace(each, curves=tuple(map(rescale, each.curves))) for each in summary.methods]
    return replace(summary, parameters=parameters, compute_s=computed, methods=methods)


def text(advice: Advice) -> list[str]:
    """Return the advice in lines: the method, the reason, and its figures."""
    best, summary = advice.best, advice.summary
    exact = summary.of(REFERENCE)
    lines = [f"{summary.model} over {text_rate(advice.rate_bps)}: take {best.method.method}"]
    lines.append(
        f"- {_time(best)} until the exact training's {_kind(summary)}, within {_allowed(summary)}{_against(advice)}"
    )
    share = f"{100 * advice.link_share:.0f} %"
    step = text_time(exact.step_seconds(advice.rate_bps))
    if advice.link_share < 0.5:
        lines.append(
            f"- the hosts are the limit: the link takes {share} of an exact step ({step}), so fewer bytes gain little"
        )
    else:
        lines.append(f"- the link is the limit: it takes {share} of an exact step ({step})")
    lines.append(
        f"- {best.method.method} sends {best.method.ratio:.1f} times fewer bytes than exact"
        f"; a step takes {text_time(best.method.step_seconds(advice.rate_bps))}"
    )
    found, changed = best.method.score, best.method.change
    if found is not None and changed is not None and best.method is not exact:
        against = f"{change(summary.model, changed)} against exact"
        lines.append(f"- at the end: {score(summary.model, found)}, {against}")
    return lines


def _against(advice: Advice) -> str:
    peer, best, ours = advice.peer, advice.best, advice.ours
    if peer is None:
        return "; fp16, bf16 and PowerSGD never reach it"
    if best is not peer:
        return (
            f": {peer.seconds / best.seconds:.2f} times as soon as {peer.method.method}, the best of fp16, "
            "bf16 and PowerSGD"
        )
    if ours is None:
        return "; softnic's methods never reach it"
    return f"; softnic's best here, {ours.method.method}, takes {ours.seconds / best.seconds:.2f} times as long"


def _time(choice: Choice) -> str:
    seeds = len(choice.method.seeds)
    return f"{choice.seconds:.1f} s ({seeds} seed{'s' if seeds > 1 else ''})"


def _kind(summary: ModelSummary) -> str:
    return "bits per character" if torch_models.reads_text(summary.model) else "accuracy"


def _allowed(summary: ModelSummary) -> str:
    return "0.01" if torch_models.reads_text(summary.model) else "half a point"


def score(model: str, value: Spread) -> str:
    """Return a score in words, with its spread over seeds."""
    return f"{value.text('.3f')} bits" if torch_models.reads_text(model) else f"{value.text('.2f', 100)} %"


def change(model: str, value: Spread) -> str:
    """Return a difference of scores in words: points of accuracy, or bits."""
    scale, digits, unit = (1, 3, "bits") if torch_models.reads_text(model) else (100, 2, "points")
    return f"{scale * value.mean:+.{digits}f} {unit}"
