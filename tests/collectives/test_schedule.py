"""Every schedule, run in memory in any order that the rules of softnic/collectives/schedule allow."""

from __future__ import annotations

from collections import Counter
from math import ceil, log, log2
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.collectives.schedule import (
    ALGORITHMS,
    COLLECTIVES,
    RecvBlock,
    Schedule,
    SendBlock,
    blocks,
    choose,
    offsets,
    partition,
    plan,
    ring,
    sites,
    tree,
)
from softnic.collectives.schedule.hierarchical import groups
from tests.collectives.interpreter import Interpreter, common_order, ranks_in, roundings

SIZES = range(1, 18)
NAMES = (*ALGORITHMS, "hierarchical:1", "hierarchical:3", "hierarchical:40", "2 sites", "3 sites", "slow sites")
ALL = [(collective, name) for collective in COLLECTIVES for name in NAMES]


def placed(name: str, size: int) -> str:
    """Return the algorithm of a name of NAMES: sites are of ranks that lie apart, as ranks of one site often do not."""
    if not name.endswith("sites"):
        return name
    count = min(size, 3 if name == "slow sites" else int(name[0]))
    members = [tuple(range(site, size, count)) for site in range(count)]
    speakers = [ranks[-1:] if name == "slow sites" else ranks for ranks in members]
    found = [sites.Site(*each) for each in zip(members, speakers, strict=True)]
    return f"sites:{sites.text(found)}" if size > 1 else "direct"


def plans(collective: str, name: str, size: int, root: int = -1) -> list[Schedule]:
    return [plan(collective, placed(name, size), rank, size, root) for rank in range(size)]


def count_of(collective: str, name: str, size: int) -> int:
    return len(blocks(collective, placed(name, size), 100, size))


def played(collective: str, name: str, size: int, root: int = -1, seed: int = 0, rounded: bool = True) -> Interpreter:
    schedules = plans(collective, name, size, root)
    interpreter = Interpreter(schedules, count_of(collective, name, size), rounded=rounded)
    interpreter.run(Random(seed))
    return interpreter


def results(collective: str, interpreter: Interpreter, root: int) -> list[list[str]]:
    """What stands where the collective promises a result: by block, the chunks of all ranks that have it."""
    ranks = interpreter.ranks
    match collective:
        case "reduce":
            return [ranks[root].memory[block] for block in ranks[root].memory]
        case "reduce_scatter":
            return [rank.memory[number] for number, rank in enumerate(ranks)]
        case _:
            return [[chunk for rank in ranks for chunk in rank.memory[block]] for block in ranks[0].memory]


@pytest.mark.parametrize(("collective", "name"), ALL)
def test_every_rank_ends_with_the_same_bits_of_everybody(collective: str, name: str) -> None:
    """Whatever the order of events, and though connections hold one chunk at a time."""
    for size in SIZES:
        root = size // 2
        found = [results(collective, played(collective, name, size, root, seed), root) for seed in range(3)]
        assert found[0] == found[1] == found[2], "another order of events gave other bits"
        for block, chunks in enumerate(found[0]):
            if collective in ("bcast", "allgather") and size > 1:
                whose = root if collective == "bcast" else block
                assert {chunk.strip("[]") for chunk in chunks} == {f"{whose}"}
            else:
                assert len(set(chunks)) == 1
                assert ranks_in(chunks[0]) == [*range(size)]


@pytest.mark.parametrize(("collective", "name"), ALL)
def test_messages_have_a_common_order(collective: str, name: str) -> None:
    assert all(common_order(plans(collective, name, size, size - 1)) for size in SIZES)


@given(st.integers(2, 17), st.sampled_from(ALL), st.data(), st.integers(1, 4))
def test_any_root_any_order_any_room(size: int, which: tuple[str, str], data: st.DataObject, room: int) -> None:
    collective, name = which
    root = data.draw(st.integers(0, size - 1))
    interpreter = Interpreter(plans(collective, name, size, root), count_of(collective, name, size), room=room)
    interpreter.run(Random(data.draw(st.integers(0, 1 << 32))))
    expected = played(collective, name, size, root, rounded=False)
    assert results(collective, interpreter, root) == results(collective, expected, root)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["ring", "direct", "hierarchical", "hierarchical:2", "3 sites", "slow sites"])
def test_reduce_has_the_bits_of_allreduce(name: str, size: int) -> None:
    everywhere = played("allreduce", name, size).ranks[0].memory
    assert played("reduce", name, size, size - 1).ranks[size - 1].memory == everywhere


@pytest.mark.parametrize("size", SIZES)
def test_one_algorithm_rounds_less_often_than_another(size: int) -> None:
    """What each module says of itself: the most that any contribution is rounded in an all-reduce."""
    found = {name: roundings(played("allreduce", name, size).ranks[0].memory[0][0]) for name in ALGORITHMS}
    if size == 1:
        assert set(found.values()) == {0}
        return
    parts = groups(size)
    assert found["ring"] == size
    assert found["direct"] == found["wa"] == 2
    assert found["tree"] <= ceil(log(size, tree.RADIX)) + 1
    assert found["hierarchical"] <= max(map(len, parts)) + len(parts) - 1


@pytest.mark.parametrize("size", range(2, 18))
@pytest.mark.parametrize("name", ["ring", "direct", "hierarchical", "hierarchical:2"])
def test_no_rank_of_an_allreduce_sends_more_blocks_than_one_of_a_ring(name: str, size: int) -> None:
    sent = [sum(isinstance(step, SendBlock) for step in schedule) for schedule in plans("allreduce", name, size)]
    assert sum(sent) == 2 * (size - 1) * size
    equal = name in ("ring", "direct") or len({*map(len, groups(size, 2 if ":" in name else 0))}) == 1
    assert max(sent) <= 2 * (size - 1) + (not equal)


@pytest.mark.parametrize("size", range(2, 18))
def test_a_tree_sends_the_fewest_messages(size: int) -> None:
    schedules = plans("allreduce", "tree", size)
    assert sum(isinstance(step, SendBlock) for schedule in schedules for step in schedule) == 2 * (size - 1)
    levels = ceil(log(size, tree.RADIX))
    sent = [sum(isinstance(step, SendBlock) for step in schedule) for schedule in schedules]
    assert max(sent) <= (tree.RADIX - 1) * levels + 1
    halving = plans("reduce_scatter", "tree", size)
    assert max(len({step.peer for step in schedule}) for schedule in halving) <= ceil(log2(size)) + 2


@pytest.mark.parametrize("size", range(2, 18))
def test_in_each_step_of_direct_every_rank_is_sent_to_once(size: int) -> None:
    schedules = plans("allreduce", "direct", size)
    for step in range(0, 4 * (size - 1), 2):
        to = [
            next(each.peer for each in schedule[step : step + 2] if isinstance(each, SendBlock))
            for schedule in schedules
        ]
        assert Counter(to) == Counter(range(size))


def test_allreduce_of_four_is_figure_6_of_the_paper() -> None:
    steps = plan("allreduce", "ring", 0, 4)
    sends, receives = steps[::2], steps[1::2]
    assert list(sends) == [SendBlock(1, block) for block in (0, 3, 2, 1, 0, 3)]
    assert receives[0] == RecvBlock(3, 3, combine=True)
    assert receives[2] == RecvBlock(3, 1, combine=True, last=True)
    assert list(receives[3:]) == [RecvBlock(3, block) for block in (0, 3, 2)]
    assert plan("allreduce", "ring", 3, 4)[6] == SendBlock(0, 0)  # step 4: worker[3] sends blk[0] to worker[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("owned", [0, 1])
def test_a_ring_leaves_one_block_with_each_rank(size: int, owned: int) -> None:
    interpreter = Interpreter([ring.reduce_scatter(rank, size, owned) for rank in range(size)], size)
    interpreter.run(Random(1))
    for number, rank in enumerate(interpreter.ranks):
        assert ranks_in(rank.memory[(number + owned) % size][0]) == [*range(size)]


@pytest.mark.parametrize("size", [*range(1, 70), 251, 256])
@pytest.mark.parametrize("group", [0, 1, 2, 5, 300])
def test_groups_are_near_equal(size: int, group: int) -> None:
    parts = groups(size, group)
    assert [rank for part in parts for rank in part] == [*range(size)]
    lengths = [*map(len, parts)]
    assert max(lengths) - min(lengths) <= 1
    if group:
        assert max(lengths) <= group
    else:
        assert size**0.5 / 2 <= len(parts) <= 2 * size**0.5
        could_be_equal = any(size % count == 0 and size <= 4 * count**2 <= 16 * size for count in range(1, size + 1))
        assert len({*lengths}) == 1 or not could_be_equal


@pytest.mark.parametrize(("collective", "name"), ALL)
def test_one_rank_has_no_steps(collective: str, name: str) -> None:
    assert plan(collective, placed(name, 1), 0, 1, 0) == ()


@pytest.mark.parametrize(
    "name", ["", "Ring", "star", "ring:2", "sites", "sites:", "hierarchical:", "hierarchical:0", "hierarchical:-1"]
)
def test_what_is_no_algorithm(name: str) -> None:
    with pytest.raises(ValueError, match="algorithm is"):
        plan("allreduce", name, 0, 2)
    with pytest.raises(ValueError, match="algorithm is"):
        blocks("allreduce", name, 10, 2)
    with pytest.raises(ValueError, match="no collective 'allscan'"):
        plan("allscan", "ring", 0, 2)


def test_how_buffers_are_cut() -> None:
    for name in (placed(each, 3) for each in NAMES):
        assert blocks("bcast", name, 10, 3) == (slice(0, 10),)
        assert blocks("reduce_scatter", name, 10, 3) == blocks("allgather", name, 10, 3) == partition(10, 3)
        cut = (slice(0, 165),) if name in ("tree", "wa") else (slice(0, 64), slice(64, 128), slice(128, 165))
        assert blocks("allreduce", name, 165, 3) == blocks("reduce", name, 165, 3) == cut


def test_few_elements_are_not_cut() -> None:
    assert blocks("allreduce", "ring", 10, 3) == (slice(0, 10), slice(10, 10), slice(10, 10))
    assert blocks("allreduce", "ring", 0, 2) == (slice(0, 0), slice(0, 0))


class TestTheInterpreter:
    """It notices what is wrong with a schedule."""

    def play(self, *schedules: Schedule, blocks: int = 2) -> None:
        Interpreter(schedules, blocks).run(Random(0))

    def test_a_lost_message(self) -> None:
        with pytest.raises(AssertionError, match=r"nobody receives|cannot send"):
            self.play((SendBlock(1, 0),), ())

    def test_a_receive_of_nothing(self) -> None:
        with pytest.raises(AssertionError, match="wait for ever"):
            self.play((), (RecvBlock(0, 0),))

    def test_another_block(self) -> None:
        with pytest.raises(AssertionError, match="another message"):
            self.play((SendBlock(1, 0),), (RecvBlock(0, 1),))

    def test_a_last_that_is_not(self) -> None:
        with pytest.raises(AssertionError, match="not the last one"):
            self.play((SendBlock(1, 0),), (RecvBlock(0, 0, combine=True, last=True),), ())

    def test_two_orders(self) -> None:
        """Each rank passes on what it is yet to get from the other, or what is behind that on the same connection."""
        crossed: list[Schedule] = [
            (RecvBlock(1, 0), SendBlock(1, 0), SendBlock(1, 1)),
            (RecvBlock(0, 0), RecvBlock(0, 1, combine=True), SendBlock(0, 0)),
        ]
        assert not common_order(crossed)
        with pytest.raises(AssertionError, match="wait for ever"):
            self.play(*crossed)

    def test_memory_that_is_overwritten_before_it_was_read(self) -> None:
        """Rank 0 gets block 0 from rank 1 while it is still sending its own to rank 2, who may be slow."""
        early = ((SendBlock(2, 0), RecvBlock(1, 0)), (SendBlock(0, 0),), (RecvBlock(0, 0),))
        ends = set()
        for seed in range(20):
            interpreter = Interpreter(early, 1)
            interpreter.run(Random(seed))
            ends.add(tuple(interpreter.ranks[2].memory[0]))
        assert len(ends) > 1


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_partition_covers_everything_in_near_equal_blocks(count: int, size: int) -> None:
    parts = partition(count, size)
    lengths = [part.stop - part.start for part in parts]
    assert [index for part in parts for index in range(count)[part]] == list(range(count))
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


def test_offsets_lie_one_behind_the_other() -> None:
    assert offsets([2, 0, 3]) == (slice(0, 2), slice(2, 2), slice(2, 5))


class TestTheChoice:
    def test_is_an_algorithm_whatever_is_asked(self) -> None:
        for collective in COLLECTIVES:
            for power in range(31):
                for size in (1, 2, 4, 9, 17, 100):
                    for codec in ("", "raw", "bounded:10", "bfp:7", "auto", "auto:truncate:16"):
                        assert choose(collective, 1 << power, size, codec) in ALGORITHMS

    def test_by_size(self) -> None:
        """Short buffers go by a tree, long ones round rings, the others directly."""
        sizes = [0, 65_535, 65_536, 4 << 20, (4 << 20) + 1]
        assert [choose("allreduce", size, 9) for size in sizes] == ["tree", "tree", "direct", "direct", "ring"]
        assert [choose("reduce", size, 9) for size in sizes] == ["tree", "tree", "direct", "direct", "ring"]
        assert [choose("reduce_scatter", size, 9) for size in sizes] == ["direct"] * 4 + ["ring"]
        assert [choose("allgather", size, 9) for size in sizes] == ["direct"] * 4 + ["ring"]
        assert [choose("bcast", size, 9) for size in sizes] == ["tree", "tree", "ring", "ring", "ring"]

    def test_by_ranks(self) -> None:
        assert [choose("allreduce", 1 << 30, ranks) for ranks in (2, 8, 9, 16, 17, 64)] == [
            "ring", "ring", "ring", "ring", "hierarchical", "hierarchical"
        ]  # fmt: skip

    def test_codecs_whose_error_is_relative_do_not_go_round_rings(self) -> None:
        for codec in ("bfp:7", "inceptionn:10", "truncate:16", "rht:4", "mx:e2m1", "auto:bfp:7"):
            assert choose("allreduce", 1 << 30, 16, codec) == choose("allreduce", 1 << 30, 64, codec) == "direct"
        for codec in ("", "raw", "bounded:10", "auto"):
            assert choose("allreduce", 1 << 30, 9, codec) == "ring"

    def test_short_buffers_with_such_codecs_go_to_one_rank_while_it_receives_little(self) -> None:
        sizes = [0, 1 << 14, (1 << 14) + 1024, 65_535, 65_536]
        for codec in ("rht:4", "auto:bfp:7"):
            assert [choose("allreduce", size, 4, codec) for size in sizes] == ["tree"] * 4 + ["direct"]
            assert [choose("reduce", size, 16, codec) for size in sizes] == ["wa"] * 4 + ["direct"]
            assert [choose("allreduce", size, 64, codec) for size in sizes] == ["wa"] * 2 + ["direct"] * 3

    @pytest.mark.parametrize("collective", ["allreduce", "reduce", "reduce_scatter"])
    def test_such_codecs_round_contributions_and_the_whole_sum_and_no_more(self, collective: str) -> None:
        """For every size, and every number of ranks: no partial sum is rounded."""
        for size in SIZES:
            for name in {choose(collective, 1 << power, size, "rht:4") for power in range(31)}:
                interpreter = played(collective, name, size, root=0)
                found = results(collective, interpreter, 0)
                assert max(roundings(content) for chunks in found for content in chunks) <= 2
