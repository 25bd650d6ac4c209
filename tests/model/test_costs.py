"""The formulas, compared with figures calculated by hand and with each other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from softnic.collectives.schedule import SendBlock, plan
from softnic.model import costs
from softnic.model.costs import Costs, ExchangeTime

SOME = Costs(alpha=1e-5, beta=1e-8, gamma=1e-9)
N = 1e6


def test_worker_aggregator_is_the_papers() -> None:
    """(1 + log p) alpha + (p + log p) n beta + (p - 1) n gamma, by hand for p = 8."""
    found = costs.worker_aggregator(8, N, SOME)
    assert found == ExchangeTime(pytest.approx(4e-5), pytest.approx(0.11), pytest.approx(0.007))  # type: ignore[arg-type]
    assert found.total_s == pytest.approx(0.11704)


def test_ring_is_the_papers() -> None:
    """2(p - 1) alpha + 2 (p - 1)/p n beta + (p - 1)/p n gamma, by hand for p = 4."""
    found = costs.ring(4, N, SOME)
    assert (found.latency_s, found.transfer_s, found.sum_s) == pytest.approx((6e-5, 0.015, 0.00075))


def test_an_aggregator_that_answers_each_worker_sends_p_copies() -> None:
    found = costs.worker_aggregator(8, N, SOME, fan_out="direct")
    assert found.transfer_s == pytest.approx(16 * N * SOME.beta)


def test_weights_are_returned_uncompressed() -> None:
    found = costs.worker_aggregator(8, N, SOME.compressed(4), SOME)
    assert found.transfer_s == pytest.approx((8 / 4 + 3) * N * SOME.beta)


def test_trees_take_whole_rounds() -> None:
    assert costs.tree(5, N, SOME).latency_s == pytest.approx(2 * 3 * SOME.alpha)
    assert costs.worker_aggregator(5, N, SOME, rounds=True).latency_s == pytest.approx(4 * SOME.alpha)


@pytest.mark.parametrize("p", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("name", ["ring", "direct"])
def test_bytes_are_those_of_the_schedules(name: str, p: int) -> None:
    """The bytes that a rank sends in softnic's own schedule are the formula's second term."""
    for rank in range(p):
        sent = sum(isinstance(step, SendBlock) for step in plan("allreduce", name, rank, p))
        assert costs.ALGORITHMS[name](p, N, SOME).transfer_s == pytest.approx(sent * N / p * SOME.beta)


@pytest.mark.parametrize(("p", "group"), [(4, 2), (8, 4), (12, 3), (16, 4)])
def test_a_hierarchy_sends_the_bytes_of_its_schedule_and_of_a_ring(p: int, group: int) -> None:
    found = costs.hierarchical(p, N, SOME, group)
    sent = [isinstance(step, SendBlock) for step in plan("allreduce", f"hierarchical:{group}", 0, p)]
    assert found.transfer_s == pytest.approx(sum(sent) * N / p * SOME.beta)
    assert found.transfer_s == pytest.approx(costs.ring(p, N, SOME).transfer_s)
    assert found.latency_s == pytest.approx((2 * (group - 1) + 2 * (p // group - 1)) * SOME.alpha)


def test_groups_divide_the_ranks() -> None:
    with pytest.raises(ValueError, match="do not make groups of 3"):
        costs.hierarchical(8, N, SOME, 3)


@pytest.mark.parametrize("name", list(costs.ALGORITHMS))
def test_a_single_rank_exchanges_nothing(name: str) -> None:
    assert costs.ALGORITHMS[name](1, N, SOME).total_s == 0


def test_rabenseifner_has_the_rings_bytes_in_fewer_steps() -> None:
    ours, theirs = costs.ring(16, N, SOME), costs.rabenseifner(16, N, SOME)
    assert theirs == replace(ours, latency_s=2 * math.log2(16) * SOME.alpha)


def test_a_codec_slower_than_the_link_is_the_limit() -> None:
    assert SOME.compressed(4).beta == SOME.beta / 4
    assert SOME.compressed(4, codec=SOME.beta / 2).beta == SOME.beta / 2


def test_the_ring_is_flat_and_the_aggregator_linear() -> None:
    """INCEPTIONN's Fig. 15, from 4 to 32 workers."""
    rings = [costs.ring(p, N, SOME).total_s for p in (4, 8, 16, 32)]
    assert max(rings) < 1.4 * min(rings)
    aggregators = [costs.worker_aggregator(p, N, SOME).total_s / p for p in (4, 8, 16, 32)]
    assert max(aggregators) < 1.4 * min(aggregators)


@pytest.mark.parametrize("p", [0, -1])
def test_no_workers_are_an_error(p: int) -> None:
    with pytest.raises(ValueError, match="1 node or more"):
        costs.ring(p, N, SOME)
