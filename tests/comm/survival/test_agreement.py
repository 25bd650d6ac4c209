"""Agreements in seeded worlds: ranks die at any moment, links are cut, frames take any time."""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from functools import partial

import pytest

from softnic.comm.survival.agreement import Agreement, RankReach
from softnic.comm.survival.votes import Accept, Commit, Decision, Enter, Frame, Propose, Refuse, Vote


def vote(rank: int, call: str = "Shrink", flag: int = -1, acknowledged: Iterable[int] = ()) -> Vote:
    return Vote(call, flag, list(acknowledged), (f"10.77.0.{rank + 1}", 1000 + rank))


class World:
    """`size` ranks. Frames arrive after a random time, in order on each link; deaths are noticed some time later.

    A rank whose agreement has ended closes its connections, and others cannot say whether it lives.
    """

    def __init__(
        self, size: int, seed: int, cut: Iterable[tuple[int, int]] = (), flags: list[int] | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.size = size
        self.cut = {frozenset(pair) for pair in cut}
        self.dead: set[int] = set()
        self.ended: set[int] = set()
        self.now = 0.0
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, int, Callable[[], object]]] = []
        self._arrived_at: dict[tuple[int, int], float] = {}
        flags = flags or [-1] * size
        self.ranks = [Agreement(rank, size, vote(rank, flag=flags[rank]), f"epoch{rank}") for rank in range(size)]
        for rank, other in itertools.permutations(range(size), 2):
            if frozenset((rank, other)) in self.cut:
                self.at(3.0 + self.random.random(), partial(self.ranks[rank].lost, other, dead=False), rank)
            else:
                self.at(self.random.random(), partial(self._connect, rank, other), rank)

    def at(self, delay: float, what: Callable[[], object], rank: int = -1) -> None:
        """Have something happen at a rank; -1: to the world."""
        heapq.heappush(self._events, (self.now + delay, next(self._numbers), rank, what))

    def kill(self, rank: int) -> None:
        """End a process: others notice at different times, and before that what it has sent arrives, or does not."""
        self.dead.add(rank)
        for other in range(self.size):
            if other != rank and frozenset((rank, other)) not in self.cut:
                self.at(1.5 + self.random.random(), partial(self.ranks[other].lost, rank, dead=True), other)

    def _connect(self, rank: int, other: int) -> None:
        if other in self.dead:
            self.ranks[rank].lost(other, dead=True)
        else:
            self.ranks[rank].reached(other)

    def run(self) -> None:
        for rank in range(self.size):
            if rank not in self.dead:
                self.ranks[rank].begin()
                self._send(rank)
        for _ in range(100_000):
            if not self._events:
                return
            self.now, _, rank, what = heapq.heappop(self._events)
            if rank in self.dead:
                continue
            what()
            if rank >= 0:
                self._send(rank)
        raise AssertionError("the world does not end")

    def _send(self, rank: int) -> None:
        if rank in self.dead:
            return
        for to, frame in self.ranks[rank].pending():
            if self.random.random() < 0.02 and isinstance(frame, Commit) and self._may_die():
                self.kill(rank)
                return
            if frozenset((rank, to)) in self.cut:
                continue
            self.at(self._arrival(rank, to), partial(self.ranks[to].receive, rank, frame), to)
        if self.ranks[rank].end is not None and rank not in self.ended:  # it closes its connections
            self.ended.add(rank)
            for to in range(self.size):
                if to != rank and frozenset((rank, to)) not in self.cut:
                    self.at(self._arrival(rank, to), partial(self.ranks[to].lost, rank, dead=False), to)

    def _arrival(self, rank: int, to: int) -> float:
        """How long what is sent now takes."""
        at = max(self._arrived_at.get((rank, to), 0.0), self.now + self.random.random())
        self._arrived_at[rank, to] = at
        return at - self.now

    def _may_die(self) -> bool:
        """Whether a rank may die while it tells the others what is decided."""
        return not self.cut and len(self.dead) < self.size - 1

    def decisions(self) -> dict[int, Decision | str]:
        """What each living rank has at the end."""
        found: dict[int, Decision | str] = {}
        for rank, agreement in enumerate(self.ranks):
            if rank not in self.dead:
                assert agreement.end is not None, f"rank {rank} waits for {agreement.waits_for}"
                found[rank] = agreement.end.decision or agreement.end.refused
        return found


@pytest.mark.parametrize("seed", range(300))
def test_whoever_dies_the_living_decide_the_same(seed: int) -> None:
    size = 2 + seed % 7
    chance = random.Random(seed)
    world = World(size, seed, flags=[chance.getrandbits(4) | 1 for _ in range(size)])
    for rank in chance.sample(range(size), chance.randrange(size)):
        world.at(chance.random() * 6, partial(world.kill, rank))
    world.run()
    decisions = list(world.decisions().values())
    assert all(decision == decisions[0] for decision in decisions)
    if decisions:
        decided = decisions[0]
        assert isinstance(decided, Decision)
        assert {*decided.members} >= {*range(size)} - world.dead
        assert sorted(decided.members + decided.failed) == list(range(size))
        assert decided.addresses == [vote(rank).address for rank in decided.members]
        assert decided.flag & 1


@pytest.mark.parametrize("seed", range(300))
def test_cut_links_never_make_two_groups(seed: int) -> None:
    size = 2 + seed % 7
    chance = random.Random(seed)
    pairs = list(itertools.combinations(range(size), 2))
    world = World(size, seed, cut=chance.sample(pairs, chance.randrange(1, len(pairs) + 1)))
    world.run()
    decided = [decision for decision in world.decisions().values() if isinstance(decision, Decision)]
    assert all(decision == decided[0] for decision in decided)


@pytest.mark.parametrize(("one", "goes_on"), [({3}, {0, 1, 2}), ({0}, {1, 2, 3}), ({2, 3}, {0, 1}), ({0, 3}, {0, 3})])
def test_of_two_sides_the_larger_goes_on_or_that_of_the_lowest_rank(one: set[int], goes_on: set[int]) -> None:
    world = World(4, 1, cut=[(a, b) for a in one for b in {*range(4)} - one])
    world.run()
    for rank, decision in world.decisions().items():
        if rank in goes_on:
            assert isinstance(decision, Decision)
            assert {*decision.members} == goes_on
        else:
            assert isinstance(decision, str)
            assert "ranks are silent" in decision


def test_a_rank_that_only_some_reach_is_told_that_it_is_left_out() -> None:
    world = World(3, 1, cut=[(0, 2)])
    world.run()
    found = world.decisions()
    assert isinstance(found[0], Decision)
    assert found[0] == found[1]
    assert found[0].members == [0, 1]
    assert found[2] == "the others go on without rank 2, which rank 0 did not reach"


class TestOneRank:
    """Hand-written cases, of rank 1 of 3 unless said."""

    def setup_method(self) -> None:
        self.agreement = Agreement(1, 3, vote(1), "e")

    def sent(self) -> list[tuple[int, Frame]]:
        return list(self.agreement.pending())

    def test_it_votes_for_the_lowest_rank_that_it_reaches(self) -> None:
        self.agreement.begin()
        assert self.sent() == []
        self.agreement.reached(2)
        assert self.sent() == []
        self.agreement.reached(0)
        assert self.sent() == [(0, vote(1))]

    def test_its_next_vote_has_what_it_has_accepted(self) -> None:
        decision = Decision([0, 1, 2], [], 3, [], [], "x")
        for other in (0, 2):
            self.agreement.reached(other)
        self.agreement.receive(0, Propose(decision))
        assert self.sent()[1:] == [(0, Accept())]
        self.agreement.lost(0, dead=True)  # before it could commit
        self.agreement.receive(2, vote(2))
        assert self.sent() == [(2, Propose(decision))]
        self.agreement.receive(2, Accept())
        assert self.sent() == [(2, Commit(decision))]
        assert self.agreement.end is not None
        assert self.agreement.end.decision == decision

    def test_it_does_not_listen_to_whom_it_has_given_up(self) -> None:
        self.agreement.reached(0)
        self.agreement.lost(0, dead=False)
        self.sent()
        self.agreement.receive(0, Propose(Decision([0, 1], [2], 0, [], [], "")))
        self.agreement.receive(0, Refuse("?"))
        assert self.sent() == []
        assert self.agreement.end is None
        self.agreement.reached(0)
        assert self.agreement.reach[0] is RankReach.SILENT

    def test_a_proposal_of_a_rank_whose_turn_it_is_not(self) -> None:
        self.agreement.reached(0)
        self.agreement.reached(2)
        self.sent()
        self.agreement.receive(2, Propose(Decision([1, 2], [0], 0, [], [], "")))
        self.agreement.receive(2, Refuse("?"))
        assert self.sent() == []
        assert self.agreement.end is None

    def test_a_commit_counts_whoever_sends_it(self) -> None:
        decision = Decision([0, 1, 2], [], 3, [], [], "x")
        self.agreement.reached(2)
        self.agreement.receive(2, Commit(decision))
        assert self.sent() == [(2, Commit(decision))]
        assert self.agreement.end is not None
        assert self.agreement.end.decision == decision

    def test_nonsense(self) -> None:
        with pytest.raises(ValueError, match="in the middle"):
            self.agreement.receive(0, Enter(1))

    def test_alone(self) -> None:
        alone = Agreement(0, 1, vote(0, flag=5), "e")
        alone.begin()
        assert alone.end is not None
        assert alone.end.decision == Decision([0], [], 5, [], [vote(0).address], "e")
