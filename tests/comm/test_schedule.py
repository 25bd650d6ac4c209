"""Schedules run by hand: every rank's steps in an order that only the rules of schedule.py promise."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.comm.schedule import (
    Receive,
    Schedule,
    Send,
    offsets,
    partition,
    ring,
)

SIZES = range(1, 10)
Held = list[dict[int, frozenset[int]]]
"""By rank and block: whose contributions it holds."""


def play(schedules: list[Schedule], held: Held) -> list[set[int]]:
    """Runs all ranks' steps to the end; returns, by rank, the blocks whose last contribution it added.

    A rank takes its steps one after the other here; messages between two ranks keep their order. A message that
    nobody receives, or a receive that nothing comes for, is an error.
    """
    wires: dict[tuple[int, int], deque[tuple[int, frozenset[int]]]] = defaultdict(deque)
    places = [0] * len(schedules)
    owned: list[set[int]] = [set() for _ in schedules]
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(schedules):
            if places[rank] == len(steps):
                continue
            step = steps[places[rank]]
            assert step.peer != rank
            if isinstance(step, Send):
                wires[rank, step.peer].append((step.block, held[rank][step.block]))
            else:
                if not (queue := wires[step.peer, rank]):
                    continue
                block, content = queue.popleft()
                assert block == step.block
                if step.combine:
                    assert not content & held[rank][block], "a contribution is counted twice"
                    content |= held[rank][block]
                    assert step.last == (len(content) == len(schedules))
                held[rank][block] = content
                if step.last:
                    owned[rank].add(block)
            places[rank] += 1
            moved = True
    assert places == [len(steps) for steps in schedules], "some rank waits for ever"
    assert not any(wires.values()), "something was sent that nobody receives"
    return owned


def own_contributions(size: int) -> Held:
    return [{block: frozenset([rank]) for block in range(size)} for rank in range(size)]


@pytest.mark.parametrize("size", SIZES)
def test_allreduce_brings_all_contributions_to_all_ranks_once(size: int) -> None:
    held = own_contributions(size)
    owned = play([ring.allreduce(rank, size) for rank in range(size)], held)
    everyone = frozenset(range(size))
    assert all(held[rank][block] == everyone for rank in range(size) for block in range(size))
    if size > 1:
        assert owned == [{(rank + 1) % size} for rank in range(size)]


def test_allreduce_of_four_is_figure_6_of_the_paper() -> None:
    steps = ring.allreduce(0, 4)
    sends, receives = steps[::2], steps[1::2]
    assert list(sends) == [Send(1, block) for block in (0, 3, 2, 1, 0, 3)]
    assert receives[0] == Receive(3, 3, combine=True)
    assert receives[2] == Receive(3, 1, combine=True, last=True)
    assert list(receives[3:]) == [Receive(3, block) for block in (0, 3, 2)]
    assert ring.allreduce(3, 4)[6] == Send(0, 0)  # step 4: worker[3] sends blk[0] to worker[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("owned", [0, 1])
def test_reduce_scatter_leaves_one_block_with_each_rank(size: int, owned: int) -> None:
    held = own_contributions(size)
    play([ring.reduce_scatter(rank, size, owned) for rank in range(size)], held)
    for rank in range(size):
        assert held[rank][(rank + owned) % size] == frozenset(range(size))


@pytest.mark.parametrize("size", SIZES)
def test_allgather_brings_every_block_to_every_rank(size: int) -> None:
    held: Held = [{block: frozenset([rank] if block == rank else []) for block in range(size)} for rank in range(size)]
    play([ring.allgather(rank, size, owned=0) for rank in range(size)], held)
    assert all(held[rank][block] == {block} for rank in range(size) for block in range(size))


@pytest.mark.parametrize(("size", "root"), [(size, root) for size in SIZES for root in range(size)])
def test_reduce_brings_all_contributions_to_the_root(size: int, root: int) -> None:
    held = own_contributions(size)
    play([ring.reduce(rank, size, root) for rank in range(size)], held)
    assert all(held[root][block] == frozenset(range(size)) for block in range(size))


@pytest.mark.parametrize(("size", "root"), [(size, root) for size in SIZES for root in range(size)])
def test_broadcast_reaches_every_rank(size: int, root: int) -> None:
    held: Held = [{0: frozenset([rank])} for rank in range(size)]
    play([ring.bcast(rank, size, root) for rank in range(size)], held)
    assert all(blocks[0] == {root} for blocks in held)


@pytest.mark.parametrize("size", SIZES)
def test_one_rank_sends_no_more_than_the_ring_must(size: int) -> None:
    steps = ring.allreduce(0, size)
    assert sum(isinstance(step, Send) for step in steps) == 2 * (size - 1)


def test_one_rank_has_no_steps() -> None:
    assert ring.allreduce(0, 1) == ring.reduce(0, 1, 0) == ring.bcast(0, 1, 0) == ()


def test_the_player_notices_a_lost_message() -> None:
    with pytest.raises(AssertionError, match="nobody receives"):
        play([(Send(1, 0),), ()], own_contributions(2))
    with pytest.raises(AssertionError, match="waits for ever"):
        play([(), (Receive(0, 0),)], own_contributions(2))


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_partition_covers_everything_in_near_equal_blocks(count: int, size: int) -> None:
    blocks = partition(count, size)
    lengths = [block.stop - block.start for block in blocks]
    assert [index for block in blocks for index in range(count)[block]] == list(range(count))
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


def test_offsets_lie_one_behind_the_other() -> None:
    assert offsets([2, 0, 3]) == (slice(0, 2), slice(2, 2), slice(2, 5))
