"""What a rank did when, and how much of it was exposed exchange.

A rank's iteration is a row of spans without gaps: the rank is always in exactly one phase. In addition it notes when
it was ready for each exchange, that is when its gradients were complete and it had requested their exchange. The notes
need no barrier, so measuring does not disturb overlapping.

An exchange can begin when its last rank is ready. Time that a rank waits before that is *skew*; time that it waits
afterwards is *exposed* exchange, called communication in the papers' breakdowns. Exchange during computation is hidden
and appears nowhere.

An aggregator sums and updates while its workers wait; both are separated from their exchange.

All ranks of one machine share CLOCK_MONOTONIC. Over several machines, spans and totals remain true, and the border
between skew and exposed exchange is as exact as the clocks agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple, Self

WHOLE = -1
"""Layer number that stands for all layers."""


class Phase(StrEnum):
    """What a rank spends its time on."""

    FORWARD = "forward"
    BACKWARD = "backward"
    EXCHANGE = "exchange"
    """Executing an exchange or waiting for one."""
    POST = "post"
    """Starting an exchange that continues by itself. This delays computation, so it counts as exposed."""
    SUM = "sum"
    """Sum of the workers' gradients by an aggregator. Elsewhere the sum is part of the exchange."""
    UPDATE = "update"


class Span(NamedTuple):
    """Time in one phase."""

    phase: Phase
    layer: int
    """Layer number, or WHOLE."""
    begin: float
    """Seconds on the timeline's clock."""
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def within(self, begin: float, end: float) -> float:
        """Return the seconds of the span that lie between two moments."""
        return max(0.0, min(self.end, end) - max(self.begin, begin))


@dataclass
class Iteration:
    """One step of one rank."""

    spans: list[Span] = field(default_factory=list)
    ready: dict[int, float] = field(default_factory=dict)
    """When this rank was ready for the exchange of a layer, or of WHOLE. Empty for a rank without gradients."""

    @property
    def begin(self) -> float:
        return self.spans[0].begin

    @property
    def end(self) -> float:
        return self.spans[-1].end

    def as_json(self) -> dict[str, Any]:
        return {"spans": [[str(span.phase), *span[1:]] for span in self.spans], "ready": list(self.ready.items())}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        spans = [Span(Phase(phase), layer, begin, end) for phase, layer, begin, end in content["spans"]]
        return cls(spans, {int(layer): at for layer, at in content["ready"]})


class Timeline:
    """Records a rank's iterations."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now: tuple[Phase, int, float] | None = None
        self.iterations: list[Iteration] = []

    def start(self) -> None:
        """Begin an iteration."""
        self.iterations.append(Iteration())

    def enter(self, phase: Phase, layer: int = WHOLE) -> None:
        """End the current phase and begin another."""
        now = self._clock()
        self._close(now)
        self._now = phase, layer, now

    def ready(self, layer: int = WHOLE) -> None:
        """Note that this rank is ready for an exchange."""
        self.iterations[-1].ready[layer] = self._clock()

    def stop(self) -> None:
        """End the iteration."""
        self._close(self._clock())

    def _close(self, now: float) -> None:
        if self._now is not None:
            self.iterations[-1].spans.append(Span(*self._now, now))
            self._now = None


@dataclass(frozen=True)
class Breakdown:
    """Seconds of an iteration by what they were spent on. They add up to the iteration."""

    forward: float
    backward: float
    exchange: float
    """Exposed."""
    sum: float
    """The aggregator's, while this rank waited for it."""
    update: float
    """This rank's own, or the aggregator's while this rank waited for it."""
    skew: float
    """Waiting for ranks that were not ready."""

    @property
    def total(self) -> float:
        return sum(_values(self))

    @classmethod
    def mean(cls, breakdowns: Sequence[Breakdown]) -> Breakdown:
        return cls(*(sum(values) / len(breakdowns) for values in zip(*map(_values, breakdowns), strict=True)))


def _values(breakdown: Breakdown) -> list[float]:
    return [getattr(breakdown, each.name) for each in fields(breakdown)]


def breakdowns(iterations: Sequence[Iteration]) -> list[Breakdown]:
    """Return the breakdown of each rank with gradients.

    Parameters
    ----------
    iterations
        One iteration as every rank recorded it.
    """
    workers = [each for each in iterations if each.ready]
    served = [span for each in iterations if not each.ready for span in each.spans]
    latest = {layer: max(worker.ready[layer] for worker in workers) for layer in workers[0].ready}
    return [_breakdown(worker.spans, latest, served) for worker in workers]


def _breakdown(spans: Iterable[Span], latest: dict[int, float], served: Sequence[Span]) -> Breakdown:
    seconds = dict.fromkeys(Phase, 0.0)
    skew = 0.0
    for span in spans:
        if span.phase is not Phase.EXCHANGE:
            seconds[span.phase] += span.seconds
            continue
        begins = min(span.end, max(span.begin, latest[span.layer]))
        skew += begins - span.begin
        seconds[Phase.EXCHANGE] += span.end - begins
        for other in served:
            if other.phase in (Phase.SUM, Phase.UPDATE):
                part = other.within(begins, span.end)
                seconds[other.phase] += part
                seconds[Phase.EXCHANGE] -= part
    return Breakdown(
        forward=seconds[Phase.FORWARD],
        backward=seconds[Phase.BACKWARD],
        exchange=seconds[Phase.EXCHANGE] + seconds[Phase.POST],
        sum=seconds[Phase.SUM],
        update=seconds[Phase.UPDATE],
        skew=skew,
    )
