"""What an engine reports of operations in progress, in virtual time."""

from __future__ import annotations

import numpy as np

from softnic.collectives.progress import links_of, operations_of
from softnic.ipc.collectives_info import RankLinkInfo
from softnic.ipc.work_queue import StagedPart
from tests.collectives.group import Group

COUNT = 4000


def links(group: Group, rank: int) -> dict[int, RankLinkInfo]:
    """What a rank exchanges with each other one, by rank."""
    executor = group.members[rank].executor
    assert executor is not None
    found = links_of(executor, group.connections(rank))
    return {link.rank: link for link in found}


def post(group: Group, rank: int, **fields: object) -> None:
    group.post(rank, np.ones(COUNT, np.float32), np.empty(COUNT, np.float32), "allreduce", op="SUM", **fields)


def test_the_rank_that_has_not_posted_is_expected_by_its_neighbors_and_holds_the_others() -> None:
    group = Group(4)
    for rank in (0, 1, 3):
        post(group, rank)
    group.clock.run_for(group.members, 0.1)
    assert [links(group, rank)[2].expected for rank in (1, 3)] == [1, 1]
    assert links(group, 0)[3].expected == 0
    assert links(group, 3)[0].held_by == 2  # its block goes on once that of rank 2 has come
    assert links(group, 0)[3].receiving == 1
    post(group, 2)
    group.run()
    for rank in range(4):
        assert all(
            not link.receiving and not link.sending and not link.expected for link in links(group, rank).values()
        )


def test_operations_have_their_call_their_age_and_the_steps_that_are_left() -> None:
    group = Group(3)
    post(group, 0)
    group.clock.run_for(group.members, 0.1)
    executor = group.members[0].executor
    assert executor is not None
    [operation] = operations_of(executor, {1: 2.0}, 5.0)
    assert (operation.number, operation.age_s) == (1, 3.0)
    assert operation.call == f"Iallreduce({COUNT} x float32, op=SUM)"
    assert 0 < operation.left <= operation.total
    assert operations_of(executor, {}, 5.0)[0].age_s == 0.0


def test_a_contribution_that_is_not_there_is_held_by_the_own_rank() -> None:
    group = Group(2)
    post(group, 0, staged=True)
    post(group, 1)
    group.clock.run_for(group.members, 0.1)
    assert links(group, 0)[1].held_by == 0
    assert links(group, 1)[0].receiving == 1
    executor = group.members[0].executor
    assert executor is not None
    for block in range(2):
        executor.stage(StagedPart(1, block, COUNT * 2))
    group.run()
    assert links(group, 0)[1].held_by == -1


def test_bytes_that_the_other_node_does_not_acknowledge_are_counted() -> None:
    group = Group(2)
    group.members[1].dead = True
    post(group, 0)
    group.clock.run_for(group.members, 0.1)
    link = links(group, 0)[1]
    assert link.unacknowledged == COUNT * 2
    assert (link.sending, link.held_by) == (1, 1)  # its second block follows the first one of rank 1
    assert link.silent_s >= 0.1
    assert (link.local[0], link.remote[0]) == ("10.77.0.1", "10.77.0.2")
