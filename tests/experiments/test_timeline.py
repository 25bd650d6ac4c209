"""Definition of forward, backward, exposed exchange, sum, update and skew."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from softnic.experiments.timeline import WHOLE, Breakdown, Iteration, Phase, Span, Timeline, breakdowns


def clock(*moments: float) -> Callable[[], float]:
    remaining: Iterator[float] = iter(moments)
    return lambda: next(remaining)


def spans(*parts: tuple[Phase, int, float], end: float) -> list[Span]:
    ends = [*(begin for _, _, begin in parts[1:]), end]
    return [Span(phase, layer, begin, until) for (phase, layer, begin), until in zip(parts, ends, strict=True)]


F, B, X, S, U, P = Phase.FORWARD, Phase.BACKWARD, Phase.EXCHANGE, Phase.SUM, Phase.UPDATE, Phase.POST


def test_a_timeline_has_no_gaps() -> None:
    timeline = Timeline(clock(1, 2, 3, 4, 7, 8, 10))
    timeline.start()
    timeline.enter(F)
    timeline.enter(B, 1)
    timeline.ready()
    timeline.enter(X)
    timeline.enter(U)
    timeline.stop()
    timeline.start()
    timeline.enter(F)
    first, second = timeline.iterations
    assert first.spans == spans((F, WHOLE, 1), (B, 1, 2), (X, WHOLE, 4), (U, WHOLE, 7), end=8)
    assert first.ready == {WHOLE: 3}
    assert (first.begin, first.end) == (1, 8)
    assert second == Iteration()


def test_an_iteration_survives_json() -> None:
    iteration = Iteration(spans((F, WHOLE, 1.5), (X, 3, 2), end=2.25), {3: 1.75})
    assert Iteration.from_json(json.loads(json.dumps(iteration.as_json()))) == iteration


def test_waiting_for_a_late_rank_is_skew() -> None:
    early = Iteration(spans((F, WHOLE, 0), (B, 0, 1), (X, WHOLE, 2), (U, WHOLE, 8), end=9), {WHOLE: 2})
    late = Iteration(spans((F, WHOLE, 0), (B, 0, 3), (X, WHOLE, 5), (U, WHOLE, 8), end=9), {WHOLE: 5})
    assert breakdowns([early, late]) == [
        Breakdown(forward=1, backward=1, exchange=3, sum=0, update=1, skew=3),
        Breakdown(forward=3, backward=2, exchange=3, sum=0, update=1, skew=0),
    ]


def test_exchange_during_computation_is_hidden() -> None:
    """Layer 1 is exchanged while layer 0 computes; the wait has no length. Posting is always exposed."""
    rank = Iteration(
        spans((F, WHOLE, 0), (B, 1, 1), (P, 1, 2), (B, 0, 2.5), (P, 0, 5), (X, 1, 5.5), (X, 0, 5.5), (U, 0, 7), end=8),
        {1: 2, 0: 5},
    )
    other = Iteration(rank.spans, {1: 2, 0: 6})
    mine, _ = breakdowns([rank, other])
    assert mine == Breakdown(forward=1, backward=3.5, exchange=0.5 + 0.5 + 1, sum=0, update=1, skew=0.5)
    assert mine.total == 8


def test_the_aggregators_computation_is_not_exchange() -> None:
    """Only while they wait for it: here it adds one gradient before the last worker is ready."""
    worker = Iteration(spans((F, WHOLE, 0), (B, 0, 1), (X, WHOLE, 4), end=12), {WHOLE: 4})
    aggregator = Iteration(spans((X, WHOLE, 0), (S, WHOLE, 3), (X, WHOLE, 5), (S, WHOLE, 7), (U, WHOLE, 8), end=10))
    assert breakdowns([worker, aggregator]) == [
        Breakdown(forward=1, backward=3, exchange=8 - 2 - 2, sum=2, update=2, skew=0)
    ]


def test_the_mean_is_taken_part_by_part() -> None:
    mean = Breakdown.mean([Breakdown(1, 2, 3, 4, 5, 6), Breakdown(3, 2, 1, 0, 1, 2)])
    assert mean == Breakdown(2, 2, 2, 2, 3, 4)
    assert mean.total == pytest.approx(15)
