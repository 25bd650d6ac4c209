"""Lanes: an engine each for its part of a collective, which together give the bits of one engine for all of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.collectives import schedule
from softnic.collectives.collective_op import LANE_GRAIN, WHOLE, LanePart
from softnic.collectives.operations import AVG, SUM
from softnic.collectives.schedule import SCANS
from softnic.ipc.work_queue import StagedPart, WorkRequest
from softnicd.lanes import Lanes
from tests.slow import slow_after

from .group import Group, Member, raw
from .test_engine import ALL, CODECS, Array, contributions, fields_of

SIZES, LANES = st.integers(0, 1 << 40), st.integers(1, 8)
CASES = (*ALL, *((scan, "ring") for scan in SCANS))


# The parts of a block


@given(SIZES, LANES)
def test_the_parts_of_all_lanes_tile_a_block(size: int, lanes: int) -> None:
    ends = [LanePart(lane, lanes).of(size) for lane in range(lanes)]
    assert ends[0][0] == 0
    assert ends[-1][1] == size
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))
    assert all(begin <= end for begin, end in ends)


@given(SIZES, LANES)
def test_parts_are_cut_between_coding_blocks(size: int, lanes: int) -> None:
    cuts = [LanePart(lane, lanes).of(size)[0] for lane in range(lanes)]
    assert all(cut % LANE_GRAIN == 0 for cut in cuts)


@given(SIZES, LANES)
def test_parts_are_of_about_one_size(size: int, lanes: int) -> None:
    for lane in range(lanes):
        begin, end = LanePart(lane, lanes).of(size)
        assert abs((end - begin) - size / lanes) < 2 * LANE_GRAIN


@given(SIZES)
def test_one_lane_has_the_whole_block(size: int) -> None:
    assert WHOLE.of(size) == (0, size)


# Collectives


@cache
def group(size: int, lane: int) -> Group:
    """Return the engines of a lane, which are used again: requests are independent of each other."""
    return Group(size, seed=lane)


def results_on(
    lanes: int, collective: str, algorithm: str, sources: list[Array], in_place: bool, codec: str
) -> list[bytes]:
    """Execute a collective on `lanes` lanes, one after the other in any order. Return what each rank has of it."""
    size = len(sources)
    fields = fields_of(collective, size, AVG if codec == "bounded:10" else SUM)
    memory = [source.copy() for source in sources]
    in_place = in_place or collective in ("allgather", "bcast")
    results = memory if in_place else [np.full_like(source, 77) for source in sources]
    for lane in random.Random(size).sample(range(lanes), lanes):
        members = group(size, lane)
        for rank, pair in enumerate(zip(memory, results, strict=True)):
            part = LanePart(lane, lanes)
            members.post(rank, *pair, collective, algorithm=algorithm, codec=codec, part=part, **fields)
        members.run()
        assert not [member.failures for member in members.members if member.failures]
    return promised(collective, algorithm, results, fields.get("root", -1))


def promised(collective: str, algorithm: str, results: list[Array], root: int) -> list[bytes]:
    """Return what a collective gives its ranks, without the blocks that are of no meaning to them."""
    size = len(results)
    blocks = schedule.blocks(collective, algorithm, results[0].size, size)
    if collective == "reduce":
        return [results[root].tobytes()]
    own = {"reduce_scatter": blocks, "exscan": [blocks[-1]] * size}.get(collective, [slice(None)] * size)
    return [result[block].tobytes() for result, block in zip(results, own, strict=True)][collective == "exscan" :]


@pytest.mark.parametrize("lanes", slow_after(1, [4, 3, 2]))
@pytest.mark.parametrize(("collective", "algorithm"), CASES)
def test_results_do_not_depend_on_the_number_of_lanes(collective: str, algorithm: str, lanes: int) -> None:
    for index, codec in enumerate(("", *CODECS)):
        size = 2 + (index + len(algorithm) + len(collective)) % 4
        for count in (9_002, 60_012)[index % 2 :]:
            call = (collective, algorithm, contributions(size, count, seed=count), index % 2 == 0, codec)
            assert results_on(lanes, *call) == results_on(1, *call), (size, count, codec)


# Contributions that come in parts after the post


class LaneOf:
    """The engine of a further lane."""

    def __init__(self, member: Member) -> None:
        assert member.executor is not None
        self._engine = member.executor
        self.begin = self._engine.post
        self.stage = self._engine.stage

    def start_rank(self, rank: int, now: float) -> None:
        raise AssertionError(f"rank {rank} was connected at {now}")

    def fail(self, rank: int, text: str) -> None:
        raise AssertionError(f"rank {rank}: {text}")

    def end(self) -> None:
        raise AssertionError


def at_once(call: Callable[[], object]) -> None:
    """Post to a queue that waits for nothing."""
    call()


def staged_on(lanes: int, collective: str, algorithm: str, sources: list[Array], codec: str) -> list[bytes]:
    """Execute a collective on `lanes` lanes at the same time, whose contributions come in parts of any sizes. Return
    what each rank has of it."""
    size, fields = len(sources), fields_of(collective, len(sources))
    groups = [Group(size, seed=lane) for lane in range(lanes)]
    blocks = schedule.blocks(collective, algorithm, sources[0].size, size)
    counts = tuple(block.stop - block.start for block in blocks)
    call = (1, "I", collective, algorithm, "float32", counts, (0, 0), (0, 0))
    request = WorkRequest(*call, codec=codec, staged=True, **fields)
    draw, memory = random.Random(size), [np.full_like(source, 77) for source in sources]
    parts: list[tuple[int, int]] = []
    own: list[Lanes] = []
    for rank, result in enumerate(memory):
        first, *further = (each.members[rank] for each in groups)
        own.append(Lanes([(LaneOf(each), at_once) for each in further], 1))
        assert first.executor is not None
        first.executor.post(request, raw(result), raw(result), own[rank].part_of(request))
        own[rank].begin(request, raw(result), raw(result))
        contributed = {"allgather": [rank], "bcast": [0] * (rank == fields.get("root")), "exscan": [0]}
        parts += [(rank, block) for block in contributed.get(collective, range(len(blocks)))]
    for group_ in groups:
        for member in group_.members:
            member.posted = 1
    there = dict.fromkeys(parts, 0)
    while parts:
        rank, block = part = draw.choice(parts)
        count, begin = counts[block], blocks[block].start
        end = min(count, there[part] + 16 * draw.randrange(1, 300))
        if end == count:
            parts.remove(part)
        if end > there[part]:
            span = slice(begin + there[part], begin + end)
            memory[rank][span] = sources[rank][span]
            there[part] = end
            staged = own[rank].stage(StagedPart(1, block, 4 * end))
            executor = groups[0].members[rank].executor
            assert executor is not None
            if staged is not None:
                executor.stage(staged)
        for group_ in groups:
            group_.clock.run_for(group_.members, 1e-5)
    for group_ in groups:
        group_.run()
        assert not [member.failures for member in group_.members if member.failures]
    return promised(collective, algorithm, memory, fields.get("root", -1))


@pytest.mark.parametrize(("collective", "algorithm"), slow_after(4, sorted(CASES, key=lambda case: case[1] != "ring")))
def test_contributions_in_parts_reach_every_lane(collective: str, algorithm: str) -> None:
    size = 2 + len(collective) % 3
    for lanes, codec in ((2, "bounded:8"), (3, "")):
        sources = contributions(size, 30_012)
        expected = results_on(1, collective, algorithm, sources, True, codec)
        assert staged_on(lanes, collective, algorithm, sources, codec) == expected
