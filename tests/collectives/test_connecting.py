"""Ranks that are connected after operations were posted: these wait, and give what they give otherwise."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.collectives import CollectiveEngine, schedule
from softnic.collectives.engine import GONE_S
from softnic.collectives.stream import CODING_BLOCK
from softnic.ipc.work_queue import RecvRequest, SendRequest
from softnic.tcp.peer_stream import peer_streams
from tests.collectives.group import Array, Group, raw


class LateGroup(Group):
    """A group of which engines know the ranks of a tree at first."""

    def __init__(self, size: int, *, seed: int = 0, **options: Any) -> None:
        super().__init__(size, seed=seed, **options)
        self.late: list[tuple[int, int]] = []
        """Ranks, and others that they are to be connected with."""
        for member in self.members:
            first = schedule.peers("allreduce", "tree", member.rank, size)
            ends = [peer_streams({r: end for r, end in each[member.rank].items() if r in first}) for each in self.kinds]
            control, data, *pair = ends
            pairs = {rank: (pair[0][rank], pair[1][rank]) for rank in first} if pair else None
            member.executor = CollectiveEngine(member.rank, size, control, data, pairs)
            self.late += [(member.rank, other) for other in range(size) if other not in (*first, member.rank)]
        random.Random(seed).shuffle(self.late)

    @property
    def kinds(self) -> list[Any]:
        """The connections by kind, rank and other rank."""
        return [self.words, self.data, *self.messages]

    def connect_next(self) -> None:
        """Give one engine its streams to one more rank."""
        rank, other = self.late.pop()
        control, data, *pair = (peer_streams({other: each[rank][other]})[other] for each in self.kinds)
        engine = self.members[rank].executor
        assert engine is not None
        engine.connect(self.clock.now, other, control, data, pair)


def sums(group: Group, algorithm: str, calls: int = 2) -> list[bytes]:
    """Post sums on all ranks, connect those that are not, and return the bits of all results."""
    size = len(group.members)
    memory = [[gradient(rank, call) for rank in range(size)] for call in range(calls)]
    for call in range(calls):
        for rank in range(size):
            own = memory[call][rank]
            group.post(rank, own, own, "allreduce", algorithm=algorithm, op="SUM", codec="bounded:10" if call else "")
    while isinstance(group, LateGroup) and group.late:
        group.connect_next()
        if len(group.late) % 3 == 0:
            group.clock.run(group.members, lambda: True)
    group.run()
    return [each.tobytes() for call in memory for each in call]


def gradient(rank: int, call: int) -> Array:
    return np.random.default_rng((rank, call)).standard_normal(1000).astype(np.float32)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "hierarchical"])
@given(st.integers(0, 1000))
def test_results_do_not_depend_on_when_ranks_are_connected(algorithm: str, seed: int) -> None:
    size = 3 + seed % 5
    assert sums(LateGroup(size, seed=seed), algorithm) == sums(Group(size), algorithm)


def test_what_is_posted_waits_for_its_ranks_and_a_tree_does_not() -> None:
    group = LateGroup(6)
    ring = [gradient(rank, 0) for rank in range(6)]
    tree = [gradient(rank, 1) for rank in range(6)]
    for rank in range(6):
        group.post(rank, tree[rank], tree[rank], "allreduce", algorithm="tree", op="SUM")
    group.run()
    for rank in range(6):
        group.post(rank, ring[rank], ring[rank], "allreduce", algorithm="ring", op="SUM")
    group.clock.run_for(group.members, 1.0)
    assert [member.completed for member in group.members] == [[1]] * 6
    while group.late:
        group.connect_next()
    group.run()
    assert [member.completed for member in group.members] == [[1, 2]] * 6


def test_messages_wait_for_their_rank() -> None:
    group = LateGroup(5, messages=True)
    sent, received = raw(np.arange(100, dtype=np.float32)), raw(np.zeros(100, np.float32))
    sender, receiver = (group.members[rank].executor for rank in (1, 4))
    assert sender is not None
    assert receiver is not None
    sender.post_message(SendRequest(-1, "Send", 4, (0, 0), len(sent)), sent)
    receiver.post_message(RecvRequest(-1, "Recv", 1, (0, 0), len(received)), received)
    group.clock.run_for(group.members, 0.5)
    assert not group.members[4].completed
    while group.late:
        group.connect_next()
    group.clock.run(group.members, lambda: bool(group.members[1].completed and group.members[4].completed))
    assert received == sent
    assert len(sent) % CODING_BLOCK == 16


def test_a_rank_that_ends_without_a_word_is_an_error_for_those_that_have_no_connection_with_it() -> None:
    """Ranks 1 and 5 are connected with rank 0 alone, or with rank 4."""
    group = LateGroup(6)
    for rank in (0, 1, 2, 3, 4):
        own = gradient(rank, 0)
        group.post(rank, own, own, "allreduce", algorithm="ring", op="SUM")
    ended = group.members[5].executor
    assert ended is not None
    ended.leave(group.clock.now, has_said_so=False)
    began = group.clock.now
    group.clock.run(group.members, lambda: all(each.failures for each in group.members[:5]))
    assert group.clock.now - began < GONE_S + 0.1
    assert {(each.failures[0].rank, each.failures[0].text) for each in group.members[:5]} == {
        (5, "rank 5 is gone: it closed its connection")
    }


def test_a_rank_that_leaves_in_good_order_is_no_error_for_those_that_need_it_no_more() -> None:
    group = LateGroup(6)
    left = group.members[5].executor
    assert left is not None
    left.leave(group.clock.now)
    group.clock.run_for(group.members, 2 * GONE_S)
    assert not any(each.failures for each in group.members)


def test_what_waits_ends_with_the_engine() -> None:
    group = LateGroup(4)
    own = gradient(1, 0)
    group.post(1, own, own, "allreduce", algorithm="ring", op="SUM")
    group.clock.run_for(group.members, 0.1)
    engine = group.members[1].executor
    assert engine is not None
    engine.fail(group.clock.now, 1, "rank 1 gives up")
    group.clock.run(group.members, lambda: all(each.failures for each in group.members))
    group.connect_next()  # gets the reason as well
    assert {each.failures[0].text for each in group.members} == {"rank 1 gives up"}


@pytest.mark.parametrize("rank", [-1, 1, 0, 4])
def test_unfit_ranks_are_refused(rank: int) -> None:
    """Not one of the communicator, this one, and one that is connected."""
    group = LateGroup(4)
    engine = group.members[1].executor
    assert engine is not None
    streams = peer_streams({0: group.words[1][0]})[0], peer_streams({0: group.data[1][0]})[0]
    with pytest.raises(ValueError, match=f"takes no connections to rank {rank}"):
        engine.connect(group.clock.now, rank, *streams)
