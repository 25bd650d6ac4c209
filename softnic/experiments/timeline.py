"""What a rank did when, and what of it was an exchange that nothing hid.

A rank's iteration is a row of spans without gaps: it is always in exactly one phase. Besides, it notes the moment when
it was ready for each exchange: its gradients were there, and it had called for them to be exchanged. Nothing waits for
these notes, and no barrier is needed to take them; so what is measured is what would have happened unmeasured.

An exchange can begin when the last of its ranks is ready for it. What a rank waits before that is the others' lateness
(skew); what it waits after that is *exposed* exchange, which the papers' breakdowns call communication. Exchange that
goes on while a rank computes shows nowhere: it is hidden.

An aggregator's sum and update happen while its workers wait, and are told apart from their exchange as well.

Clocks: all ranks of one machine share CLOCK_MONOTONIC. Over several machines, spans and totals remain true, and the
border between skew and exposed exchange is as good as their clocks agree.
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
    FORWARD = "forward"
    BACKWARD = "backward"
    EXCHANGE = "exchange"
    """In or waiting for an exchange."""
    POST = "post"
    """Beginning an exchange that then goes on by itself: time that it takes from computing, so exposed as well."""
    SUM = "sum"
    """Adding gradients of workers up: an aggregator's only, elsewhere it is part of the exchange."""
    UPDATE = "update"


class Span(NamedTuple):
    phase: Phase
    layer: int
    """Or WHOLE."""
    begin: float
    """Seconds on the clock of the timeline."""
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def within(self, begin: float, end: float) -> float:
        """The seconds of it that lie between two moments."""
        return max(0.0, min(self.end, end) - max(self.begin, begin))


@dataclass
class Iteration:
    """One step of one rank."""

    spans: list[Span] = field(default_factory=list)
    ready: dict[int, float] = field(default_factory=dict)
    """When this rank was ready for the exchange of a layer, or of WHOLE. Empty: it has no gradients of its own."""

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
    """Takes a rank's notes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now: tuple[Phase, int, float] | None = None
        self.iterations: list[Iteration] = []

    def start(self) -> None:
        """A new iteration begins."""
        self.iterations.append(Iteration())

    def enter(self, phase: Phase, layer: int = WHOLE) -> None:
        """From now on it is this that the rank does."""
        now = self._clock()
        self._close(now)
        self._now = phase, layer, now

    def ready(self, layer: int = WHOLE) -> None:
        self.iterations[-1].ready[layer] = self._clock()

    def stop(self) -> None:
        """The iteration is over."""
        self._close(self._clock())

    def _close(self, now: float) -> None:
        if self._now is not None:
            self.iterations[-1].spans.append(Span(*self._now, now))
            self._now = None


@dataclass(frozen=True)
class Breakdown:
    """Seconds of an iteration, by what they were spent on: a partition of its time."""

    forward: float
    backward: float
    exchange: float
    """Exposed."""
    sum: float
    """Of an aggregator, while this rank waited for it."""
    update: float
    """This rank's own, or the aggregator's while this rank waited for it."""
    skew: float
    """Waiting for ranks that were not ready yet."""

    @property
    def total(self) -> float:
        return sum(_values(self))

    @classmethod
    def mean(cls, breakdowns: Sequence[Breakdown]) -> Breakdown:
        return cls(*(sum(values) / len(breakdowns) for values in zip(*map(_values, breakdowns), strict=True)))


def _values(breakdown: Breakdown) -> list[float]:
    return [getattr(breakdown, each.name) for each in fields(breakdown)]


def breakdowns(iterations: Sequence[Iteration]) -> list[Breakdown]:
    """Those of all ranks that have gradients of their own; given is one iteration as every rank saw it."""
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
