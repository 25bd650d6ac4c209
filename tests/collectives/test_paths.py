"""What ranks make of links that differ (softnic/collectives/schedule/paths.py and sites.py)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.collectives.schedule import EVEN, PathPlan, SendBlock, blocks, choose, plan, sites
from softnic.collectives.schedule.paths import PARTS, PathReport, shares, time_of
from softnic.collectives.schedule.paths import plan as agree
from softnic.collectives.schedule.sites import Site

LAN_S, WAN_S = 0.0002, 0.05
Sites = tuple[tuple[int, ...], ...]
THREE: Sites = ((0, 1), (2, 3, 4), (5, 6, 7))
RATES = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=12)


def reports(rates: list[float], places: Sites = ((*range(8),),), far_s: float = WAN_S) -> list[PathReport]:
    """Return what ranks report that are in these sites."""
    size = len(rates)
    home = {rank: number for number, ranks in enumerate(places) for rank in ranks}
    return [
        PathReport(
            rates[one],
            tuple(0.0 if one == other else LAN_S if home[one] == home[other] else far_s for other in range(size)),
        )
        for one in range(size)
    ]


class TestShares:
    @given(RATES)
    def test_add_up(self, rates: list[float]) -> None:
        found = shares(rates)
        assert sum(found) == pytest.approx(1)
        assert min(found) >= 0

    @given(RATES, st.integers(0, 1 << 32))
    def test_are_the_best(self, rates: list[float], seed: int) -> None:
        """No others are faster: a linear program has no other minimum."""
        rng, size = Random(seed), len(rates)
        best = time_of(shares(rates), rates)
        weights = [rng.expovariate(1) for _ in range(size)]
        others = [weight / sum(weights) for weight in weights]
        near = [max(0.0, share + rng.uniform(-0.01, 0.01)) for share in shares(rates)]
        near = [share / sum(near) for share in near]
        for found in (others, near, [1 / size] * size):
            assert time_of(found, rates) >= best * (1 - 1e-9)

    def test_of_equal_ranks_are_equal(self) -> None:
        assert shares([1.0] * 4) == pytest.approx([0.25] * 4)

    def test_of_a_rank_at_a_fifth(self) -> None:
        """It sends the buffer once, and takes no part of the sum: 1.75 times as fast as with even shares."""
        rates = [1.0] * 7 + [0.2]
        assert shares(rates) == pytest.approx([1 / 7] * 7 + [0])
        assert time_of([1 / 8] * 8, rates) / time_of(shares(rates), rates) == pytest.approx(1.75)

    @given(st.integers(0, 1 << 20), st.lists(st.integers(0, 100), min_size=3, max_size=20).filter(any))
    def test_blocks_are_whole_units(self, count: int, parts: list[int]) -> None:
        ends = [round(PARTS * sum(parts[: rank + 1]) / sum(parts)) for rank in range(len(parts))]
        path = PathPlan(tuple(end - begin for begin, end in pairwise([0, *ends])))
        found = blocks("allreduce", "direct", count, len(parts), path)
        assert [found[0].start, found[-1].stop] == [0, count]
        assert all(one.stop == other.start for one, other in pairwise(found))
        assert all(block.start % 16 == 0 or block.start == count for block in found)
        for block, share in zip(found, path.shares, strict=True):
            assert abs(block.stop - block.start - count * share / PARTS) <= 32


class TestThePlan:
    def test_of_a_lan_is_even(self) -> None:
        found = agree(reports([1e8] * 8))
        assert (found.shares, found.sites) == ((), "")

    def test_of_what_was_not_measured_is_even(self) -> None:
        assert agree([PathReport(0.0, (0.0,) * 4)] * 4) == EVEN

    def test_of_two_ranks_is_even(self) -> None:
        assert agree(reports([1e8, 1e6], ((0, 1),))) == EVEN

    @given(st.lists(st.floats(0.75e8, 1e8), min_size=3, max_size=8))
    def test_changes_nothing_for_what_is_noise(self, rates: list[float]) -> None:
        assert agree(reports(rates, (tuple(range(len(rates))),))).shares == ()

    def test_stays_while_it_is_nearly_as_good(self) -> None:
        first = agree(reports([1e8] * 7 + [2e7]))
        assert first.shares[7] == 0
        again = agree(reports([1.1e8, 0.9e8, 1e8, 1.2e8, 1e8, 1e8, 1e8, 2.4e7]), first)
        assert again.shares == first.shares

    def test_changes_when_another_rank_is_slow(self) -> None:
        first = agree(reports([1e8] * 7 + [2e7]))
        second = agree(reports([2e7] + [1e8] * 7), first)
        assert (second.shares[0], second.shares[7] > 0) == (0, True)

    def test_is_the_same_whoever_makes_it_and_of_nearly_the_same_rates(self) -> None:
        assert agree(reports([1e8] * 7 + [2.05e7])) == agree(reports([1.02e8] * 7 + [1.98e7]))

    def test_finds_sites(self) -> None:
        assert agree(reports([1e7] * 8, THREE)).sites == "0-1/2-4/5-7"
        apart = ((0, 3, 6), (1, 4, 7), (2, 5))
        assert agree(reports([1e7] * 8, apart)).sites == "0+3+6/1+4+7/2+5"

    def test_has_no_sites_where_all_ranks_are_apart_or_together(self) -> None:
        assert agree(reports([1e7] * 4, ((0,), (1,), (2,), (3,)))).sites == ""
        assert agree(reports([1e7] * 8)).sites == ""

    def test_has_no_sites_where_the_difference_is_small(self) -> None:
        """A LAN whose switch delays some paths more than others is no WAN."""
        rtts = [[0.006 - 0.002 * (abs(one - other) == 1) for other in range(4)] for one in range(4)]
        assert agree([PathReport(1e8, tuple(each)) for each in rtts]).sites == ""

    def test_a_slow_rank_speaks_for_no_site(self) -> None:
        found = agree(reports([1.25e7] * 7 + [2.5e6], THREE))
        assert found.sites == "0-1/2-4/5-6(7)"
        assert found.shares == () or found.shares[7] == 0

    def test_knows_what_a_path_holds(self) -> None:
        assert agree(reports([12.5e6] * 4, ((0,), (1,), (2,), (3,)))).delay_bytes == 1 << 18  # 312,500 bytes
        assert agree([PathReport(0.0, (0.0,) * 4)] * 4).delay_bytes == 0

    def test_says_what_it_is(self) -> None:
        assert str(EVEN) == "even"
        text = str(agree(reports([1e8] * 7 + [2e7])))
        assert text.startswith("shares 14.")
        assert text.endswith(" 14.3% 0%")


class TestTheChoice:
    def test_between_sites(self) -> None:
        path = PathPlan(sites="0-1/2-4/5-7")
        for collective in ("allreduce", "reduce", "reduce_scatter", "allgather", "bcast"):
            assert choose(collective, 1 << 24, 8, "", path) == "sites:0-1/2-4/5-7"
            assert choose(collective, 1 << 24, 8, "bounded:10", path) == "sites:0-1/2-4/5-7"
            assert choose(collective, 1000, 8, "", path) == choose(collective, 1000, 8)
        assert choose("allreduce", 1 << 24, 8, "rht:4", path) == "direct", "it would round partial sums"

    def test_with_shares(self) -> None:
        path = agree(reports([1e8] * 7 + [2e7]))
        assert choose("allreduce", 1 << 30, 8, "", path) == choose("reduce", 1 << 30, 8, "", path) == "direct"
        assert choose("allgather", 1 << 30, 8, "", path) == "ring", "its blocks are the caller's"

    def test_rings_are_for_blocks_that_take_longer_than_the_delay(self) -> None:
        path = PathPlan(delay_bytes=1 << 20)
        assert choose("allreduce", 8 << 20, 8, "", path) == "direct"
        assert choose("allreduce", (8 << 20) + 1, 8, "", path) == "ring"


class TestSites:
    @pytest.mark.parametrize(
        "wrong",
        ["0-1", "0-1/2", "0-1/1-3", "0-1/2-9", "0-1/x", "0-1/2+", "0-1/2(3", "/0-3", "0-3/", "-1/0-3", "0-/1-3"],
    )
    def test_what_are_none(self, wrong: str) -> None:
        with pytest.raises(ValueError, match=r"sites|rank"):
            plan("allreduce", f"sites:{wrong}", 0, 4)

    @given(st.integers(2, 20), st.integers(2, 5), st.integers(0, 1 << 32))
    def test_text_and_back(self, size: int, count: int, seed: int) -> None:
        rng, count = Random(seed), min(count, size)
        homes = [*range(count), *(rng.randrange(count) for _ in range(size - count))]
        members = [tuple(rank for rank in range(size) if homes[rank] == site) for site in range(count)]
        found = tuple(Site(ranks, tuple(sorted(rng.sample(ranks, rng.randint(1, len(ranks)))))) for ranks in members)
        assert sites.parse(sites.text(found), size) == found

    def test_between_two_sites_a_block_moves_once(self) -> None:
        """And back: by two sites of four, an eighth of what `direct` moves between them."""
        home = {rank: site for site, ranks in enumerate(THREE) for rank in ranks}
        moved: dict[str, Counter[tuple[int, int]]] = {}
        for name in ("direct", "sites:0-1/2-4/5-7"):
            steps = [(rank, step) for rank in range(8) for step in plan("allreduce", name, rank, 8)]
            sent = [(rank, step) for rank, step in steps if isinstance(step, SendBlock)]
            far = [(rank, step) for rank, step in sent if home[rank] != home[step.peer]]
            moved[name] = Counter((home[rank], step.block) for rank, step in far)
        assert sum(moved["direct"].values()) == 2 * (2 * 6 + 3 * 5 + 3 * 5)
        by_sites = moved["sites:0-1/2-4/5-7"]
        assert all(count == (2 if home[block] == site else 1) for (site, block), count in by_sites.items())
        assert sum(by_sites.values()) == 2 * 2 * 8
