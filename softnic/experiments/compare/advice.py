"""Which method to take for a model and a link, from the results of comparisons.

The method that reached the exact training's score soonest, in the mean over seeds. The package carries summaries of the
published results (`advice.json`, generated from docs/results). For another model, the most similar one in them
is taken, scaled to its size (`scaled`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from softnic.experiments import torch_models
from softnic.experiments.compare.summary import (
    REFERENCE,
    Cost,
    LearningCurve,
    MethodSummary,
    ModelSummary,
    has_both,
    is_ours,
    is_peer,
)
from softnic.measure import kept
from softnic.measure.spread import Spread
from softnic.units import text_rate, text_time

RECOMMENDED = "rht:4"
"""The method to begin with, for any model and link."""
PUBLISHED = Path(__file__).with_name("advice.json")
"""Summaries that come with the package."""
_DIGITS = 12
"""Significant digits of floats in that file. With fewer, some times are printed otherwise than from the results."""
_EXCHANGED_BYTES = 4
"""Of each parameter's gradient."""


class AdviceError(Exception):
    """There is no advice; the message is one line that says why and what to do."""


@dataclass(frozen=True)
class MeanCost(Cost):
    """What some steps cost, in the mean over seeds."""

    exchange_s: float
    """The part of `host_s` that the computation does not take, and that grows with the gradients."""

    def scaled(self, factor: float, compute_s: float) -> MeanCost:
        """Return the cost with `factor` times the gradients, if a step's computation takes `compute_s`."""
        exchange_s = factor * self.exchange_s
        return MeanCost(self.steps, exchange_s + self.steps * compute_s, factor * self.link_bytes, exchange_s)


@dataclass(frozen=True)
class ComparedMethod:
    """The trainings of a model by one method."""

    method: str
    scores: list[float] | None
    """At the end, by seed. None: a training diverged."""
    ratio: float
    """Bytes on the wire of the exact trainings to these."""
    to_score: MeanCost | None
    """Until the mean score was that of the exact trainings, less what is allowed (`summary`). None: never."""
    whole: MeanCost
    """All steps."""

    def step_seconds(self, rate_bps: float) -> float:
        """Return the mean time of a step over links of a rate."""
        return self.whole.a_step(rate_bps)


@dataclass(frozen=True)
class ComparedModel:
    """A model and its methods, all of the same seeds."""

    model: str
    parameters: int
    compute_s: float
    """Forward and backward pass of a step, of one worker on one core, in the exact training with the shortest."""
    seeds: list[int]
    methods: list[ComparedMethod]

    def of(self, method: str) -> ComparedMethod:
        return next(each for each in self.methods if each.method == method)

    @property
    def compute_s_per_byte(self) -> float:
        return self.compute_s / (_EXCHANGED_BYTES * self.parameters)


@dataclass(frozen=True)
class Choice:
    """A method on a link."""

    method: ComparedMethod
    seconds: float
    """Until the exact training's score."""


@dataclass(frozen=True)
class Advice:
    """The choices for a model on a link, the soonest first. At least one: the exact training reaches its own score."""

    model: ComparedModel
    rate_bps: float
    choices: Sequence[Choice]

    @property
    def best(self) -> Choice:
        return self.choices[0]

    @property
    def peer(self) -> Choice | None:
        """The best of PyTorch's hooks; None: none reached the score."""
        return next((each for each in self.choices if is_peer(each.method.method)), None)

    @property
    def ours(self) -> Choice | None:
        """The best of softnic's methods; None: none reached the score."""
        return next((each for each in self.choices if is_ours(each.method.method)), None)

    @property
    def link_share(self) -> float:
        """The part of an exact training's step that its link takes."""
        exact = self.model.of(REFERENCE)
        return 1 - exact.step_seconds(math.inf) / exact.step_seconds(self.rate_bps)


def compared(summary: ModelSummary) -> ComparedModel:
    """Return a model with the methods that have all seeds of the exact training.

    Where none of softnic's methods or none of PyTorch's hooks has them: with those that have the exact training's first
    seed, and of that seed alone.
    """
    seeds = summary.of(REFERENCE).seeds
    methods = _with_seeds(summary, seeds)
    if not has_both(each.method for each in methods):
        seeds = seeds[:1]
        methods = _with_seeds(summary, seeds)
    rows = [_compared(each, summary.compute_s) for each in methods]
    return ComparedModel(summary.model, summary.parameters, summary.compute_s, list(seeds), rows)


def _with_seeds(summary: ModelSummary, seeds: Sequence[int]) -> list[MethodSummary]:
    """Return the methods that have these seeds, with no others."""
    return [each for method in summary.methods if (each := method.only(seeds)) is not None]


def _compared(method: MethodSummary, compute_s: float) -> ComparedMethod:
    def exchange(curve: LearningCurve) -> LearningCurve:
        host_s = [max(0.0, taken - steps * compute_s) for steps, taken in zip(curve.steps, curve.host_s, strict=True)]
        return replace(curve, host_s=host_s)

    alone = replace(method, curves=tuple(map(exchange, method.curves)))

    def mean(cost: Cost, exchange: Cost) -> MeanCost:
        return MeanCost(cost.steps, cost.host_s, cost.link_bytes, exchange.host_s)

    reached, exchanged = method.to_score, alone.to_score
    return ComparedMethod(
        method.method,
        None if method.score is None else list(method.score.values),
        method.ratio,
        None if reached is None or exchanged is None else mean(reached, exchanged),
        mean(method.whole, alone.whole),
    )


def advise(model: ComparedModel, rate_bps: float) -> Advice:
    """Return the advice for a model of the results."""
    reached = [(each, each.to_score) for each in model.methods]
    choices = [Choice(each, cost.seconds(rate_bps)) for each, cost in reached if cost is not None]
    return Advice(model, rate_bps, sorted(choices, key=lambda choice: choice.seconds))


def load(path: Path) -> list[ComparedModel]:
    """Read what `content` made. Raises AdviceError if the file is not such a one, OSError."""
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8"))["models"], list[ComparedModel])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise AdviceError(f"{path} has no summaries of comparisons: {error}") from error


def content(models: Sequence[ComparedModel]) -> str:
    """Return JSON with a line for each method."""
    plain: list[dict[str, Any]] = kept.plain(list(models), _DIGITS)
    return f'{{"models": [\n{_lines(map(_model_text, plain))}\n]}}\n'


def _model_text(model: dict[str, Any]) -> str:
    """Return a model as JSON with a line for each method, which stand last."""
    methods = model.pop("methods")
    return f'{json.dumps(model).removesuffix("}")}, "methods": [\n{_lines(map(json.dumps, methods))}\n]}}'


def _lines(members: Iterable[str]) -> str:
    return ",\n".join(members)


def find(models: Sequence[ComparedModel], name: str) -> ComparedModel:
    """Return a model by name. Raises AdviceError."""
    for model in models:
        if model.model == name:
            return model
    known = ", ".join(model.model for model in models) or "none"
    raise AdviceError(
        f"there are no results of {name} (of these there are: {known}): give --parameters, and --compute, the time of "
        "a step without exchange, and the most similar model is taken"
    )


def nearest(models: Sequence[ComparedModel], parameters: int, compute_s: float | None) -> ComparedModel:
    """Return the most similar model: by size and, if known, by computation per byte of gradients, both as factors.

    Raises AdviceError if there are no results.
    """
    if not models:
        raise AdviceError("there are no results of any model yet")

    def distance(model: ComparedModel) -> float:
        far = abs(math.log(parameters / model.parameters))
        if compute_s:
            far += abs(math.log(compute_s / (_EXCHANGED_BYTES * parameters) / model.compute_s_per_byte))
        return far

    return min(models, key=distance)


def scaled(model: ComparedModel, parameters: int, compute_s: float | None) -> ComparedModel:
    """Return a model of another size that needs as many steps with each method.

    Bytes and the work of the exchange grow with the parameters; the computation is `compute_s`, or grows alike.
    """
    factor = parameters / model.parameters
    computed = model.compute_s * factor if compute_s is None else compute_s
    methods = [
        replace(
            each,
            to_score=None if each.to_score is None else each.to_score.scaled(factor, computed),
            whole=each.whole.scaled(factor, computed),
        )
        for each in model.methods
    ]
    return replace(model, parameters=parameters, compute_s=computed, methods=methods)


def text(advice: Advice) -> list[str]:
    """Return the advice in lines: the soonest method, the reason and its figures, and the method to begin with."""
    best, model = advice.best, advice.model
    exact = model.of(REFERENCE)
    lines = [f"{model.model} over {text_rate(advice.rate_bps)}: {best.method.method} is soonest"]
    lines.append(
        f"- {_time(model, best)} until the exact training's {_kind(model)}, within {_allowed(model)}{_against(advice)}"
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
    if best.method.scores is not None and exact.scores is not None and best.method is not exact:
        found = Spread(best.method.scores)
        against = f"{change(model.model, found.less(Spread(exact.scores)))} against exact"
        lines.append(f"- at the end: {score(model.model, found)}, {against}")
    return [*lines, *_to_begin_with(advice)]


def _to_begin_with(advice: Advice) -> list[str]:
    """Return what the recommended method takes where another is sooner; nothing where it was not tried."""
    if advice.best.method.method == RECOMMENDED or all(each.method != RECOMMENDED for each in advice.model.methods):
        return []
    own = next((each for each in advice.choices if each.method.method == RECOMMENDED), None)
    if own is None:
        return [f"- {RECOMMENDED}, the codec to begin with for any model, does not reach it"]
    times = own.seconds / advice.best.seconds
    return [f"- {RECOMMENDED}, the codec to begin with for any model: {own.seconds:.1f} s, {times:.2f} times as long"]


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


def _time(model: ComparedModel, choice: Choice) -> str:
    seeds = len(model.seeds)
    return f"{choice.seconds:.1f} s ({seeds} seed{'s' if seeds > 1 else ''})"


def _kind(model: ComparedModel) -> str:
    return "bits per character" if torch_models.reads_text(model.model) else "accuracy"


def _allowed(model: ComparedModel) -> str:
    return "0.01" if torch_models.reads_text(model.model) else "half a point"


def score(model: str, value: Spread) -> str:
    """Return a score in words, with its spread over seeds."""
    return f"{value.text('.3f')} bits" if torch_models.reads_text(model) else f"{value.text('.2f', 100)} %"


def change(model: str, value: Spread) -> str:
    """Return a difference of scores in words: points of accuracy, or bits."""
    scale, digits, unit = (1, 3, "bits") if torch_models.reads_text(model) else (100, 2, "points")
    return f"{scale * value.mean:+.{digits}f} {unit}"
