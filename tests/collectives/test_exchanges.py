"""Exchanges, whose blocks are for one rank, and scans, by the engine in virtual time, against numpy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from softnic import codecs
from softnic.collectives.schedule import EXCHANGES, SCANS, offsets, plan
from softnic.ipc.work_queue import StagedPart, WorkRequest
from tests.collectives.group import LOSSY, Group, raw
from tests.collectives.interpreter import Interpreter, common_order

Array = npt.NDArray[Any]
SIZES = [2, 3, 5]


def lengths(size: int, seed: int) -> Array:
    """By sender and receiver, how much goes from one to the other; some of it is nothing."""
    return np.random.default_rng(seed).integers(0, 3, (size, size)) * 7_001


def data(source: int, to: int, count: int) -> Array:
    return np.random.default_rng([source, to]).standard_normal(count).astype(np.float32)


def counts_of(collective: str, rank: int, root: int, counts: Array) -> tuple[int, ...]:
    """The blocks of a rank, which knows only what is its own."""
    size = len(counts)
    if collective == "alltoall":
        return (*map(int, counts[rank]), *map(int, counts[:, rank]))
    row = counts[:, root] if collective == "gather" else counts[root]
    return tuple(int(row[each]) if rank in (root, each) else 0 for each in range(size))


def post(group: Group, rank: int, collective: str, root: int, counts: Array, codec: str, staged: bool) -> Array:
    size = len(counts)
    blocks = counts_of(collective, rank, root, counts)
    memory = np.full(sum(blocks), 77, np.float32)
    parts = offsets(blocks)
    sent = {to: to for to in range(size)} if collective == "alltoall" or rank == root else {root: rank}
    if collective == "gather":
        sent = {root: rank} if rank != root else {}
    elif collective == "scatter" and rank != root:
        sent = {}
    sent = {to: block for to, block in sent.items() if to != rank}
    member = group.members[rank]
    member.posted += 1
    request = WorkRequest(
        member.posted, "call", collective, "direct", "float32", blocks, (0, 0), (0, 0),
        root=-1 if collective == "alltoall" else root, codec=codec, staged=staged,
    )  # fmt: skip
    assert member.executor is not None
    given = {block: data(rank, to, blocks[block]) for to, block in sent.items()}
    if not staged:
        for block, floats in given.items():
            memory[parts[block]] = floats
    member.executor.post(request, raw(memory), raw(memory))
    for block, floats in given.items():
        if staged and floats.size:
            memory[parts[block]] = floats
            member.executor.stage(StagedPart(member.posted, block, floats.nbytes))
    return memory


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("collective", EXCHANGES)
def test_every_block_reaches_its_rank(collective: str, size: int, staged: bool) -> None:
    group = Group(size, link=LOSSY if size == 3 else None)
    for seed, codec in enumerate(("", "bounded:10", "")):
        root, counts = seed % size, lengths(size, seed)
        results = [post(group, rank, collective, root, counts, codec, staged) for rank in range(size)]
        group.run()
        assert not [member.failures for member in group.members if member.failures]
        for rank, memory in enumerate(results):
            parts = offsets(counts_of(collective, rank, root, counts))
            senders = [s for s in range(size) if s != rank]
            if collective != "alltoall" and rank != root:
                senders = [root] if collective == "scatter" else []
            elif collective == "scatter":
                senders = []
            for source in senders:
                block = {"alltoall": size + source, "gather": source, "scatter": rank}[collective]
                floats = data(source, rank, int(counts[source, rank]))
                if codec and floats.size:
                    made = codecs.get(codec)
                    floats = made.decode(made.encode(floats), floats.size)
                np.testing.assert_array_equal(memory[parts[block]], floats)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("collective", SCANS)
def test_scans_combine_in_rank_order(collective: str, size: int) -> None:
    group, count = Group(size), 30_011
    sources = [np.random.default_rng(rank).integers(-9, 9, count) for rank in range(size)]
    for op, function in (("SUM", np.add), ("MAX", np.maximum)):
        memory = [
            np.concatenate((source, np.full(count, 77)))[: (1 + (collective != "scan")) * count] for source in sources
        ]
        counts = (count,) if collective == "scan" else (count, count)
        for rank, buffer in enumerate(memory):
            group.post(rank, buffer, buffer, collective, op=op, counts=counts)
        group.run()
        assert not [member.failures for member in group.members if member.failures]
        for rank, expected in enumerate(accumulate(sources, function)):
            if collective == "scan":
                np.testing.assert_array_equal(memory[rank], expected)
            elif rank + 1 < size:
                np.testing.assert_array_equal(memory[rank + 1][count:], expected)


@pytest.mark.parametrize("collective", [*EXCHANGES, *SCANS])
def test_messages_have_a_common_order(collective: str) -> None:
    algorithm = "direct" if collective in EXCHANGES else "ring"
    for size in range(1, 9):
        plans = [plan(collective, algorithm, rank, size, size // 2) for rank in range(size)]
        assert common_order(plans)


def test_a_scan_combines_in_any_order_of_events() -> None:
    for size in range(1, 9):
        interpreter = Interpreter([plan("scan", "ring", rank, size) for rank in range(size)], 1)
        interpreter.run(Random(size))
        for rank, memory in enumerate(each.memory for each in interpreter.ranks):
            assert {*memory[0]} == {written(range(rank + 1))}


def written(ranks: Sequence[int]) -> str:
    """How the interpreter writes a sum in the order of a chain."""
    text = str(ranks[0])
    for rank in ranks[1:]:
        text = f"({text}+{rank})"
    return text


@pytest.mark.parametrize("collective", EXCHANGES)
def test_ranks_that_disagree_about_a_block_are_both_told(collective: str) -> None:
    group = Group(2)
    for rank in range(2):
        post(group, rank, collective, 0, np.full((2, 2), 5 + rank), "", False)
    group.run()
    texts = [member.failures[0].text for member in group.members]
    assert all("5" in text and "6" in text and "x float32" in text for text in texts), texts


@pytest.mark.parametrize(("collective", "algorithm"), [("gather", "ring"), ("alltoall", "tree"), ("scan", "direct")])
def test_other_algorithms_are_refused(collective: str, algorithm: str) -> None:
    with pytest.raises(ValueError, match=f"{collective} has"):
        plan(collective, algorithm, 0, 2)
