"""How groups end: ranks that differ, that leave, that die, that talk nonsense."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from softnic.collectives.messages import EngineAbort, header_of, pack
from softnic.ipc.work_queue import MAX_WORK_REQUESTS, CancelRequest, WorkFailed, WorkRequest
from softnic.tcp.state import State
from tests.tcp.flows import flow

from .group import Group, raw
from .test_engine import contributions

STALLED = "the NIC of rank 2 stood still for 3.5 s"


def posted(group: Group, *ranks: int, count: int = 300_000, **fields: Any) -> None:
    """These ranks post an allreduce."""
    for rank in ranks:
        source = np.ones(count, np.float32)
        group.post(rank, source, source, "allreduce", op="SUM", **fields)


def until_all_failed(group: Group, limit_s: float = 5.0) -> list[WorkFailed]:
    """What everybody who lives is told, once, and within 5 s."""
    alive = [member for member in group.members if not member.dead and member.executor is not None]
    group.clock.run(group.members, lambda: all(member.failures for member in alive), limit_s)
    group.clock.run_for(group.members, 10.0)
    assert all(len(member.failures) == 1 for member in alive)
    return [member.failures[0] for member in alive]


def leave(group: Group, rank: int) -> None:
    executor = group.members[rank].executor
    assert executor is not None
    executor.leave(group.clock.now)
    group.members[rank].executor = None


@pytest.mark.parametrize(
    "other",
    [
        {"collective": "reduce", "root": 0},
        {"count": 299_999},
        {"op": "MAX"},
        {"codec": "bfp:7"},
        {"algorithm": "direct"},
        {"algorithm": "tree"},
        {"call": "Ireduce"},
        {"count": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [2, 4, 7])
def test_ranks_that_do_different_things(size: int, other: dict[str, Any]) -> None:
    group = Group(size)
    posted(group, *range(size - 1))
    fields = {"collective": "allreduce", "op": "SUM", "count": 300_000, **other}
    count, collective = fields.pop("count"), fields.pop("collective")
    source = np.ones(count, np.float32)
    group.post(size - 1, source, source, collective, **fields)
    failures = until_all_failed(group)
    assert all(" called I" in failure.text and "rank" in failure.text for failure in failures)
    assert all(0 <= failure.rank < size for failure in failures)
    assert np.array_equal(source, np.ones(count, np.float32)) or collective == "allreduce"


def test_nothing_is_touched_before_the_head_was_right() -> None:
    group = Group(2)
    sources = [np.ones(100_000, np.float32), np.ones(100_000, np.float32)]
    results = [np.zeros(100_000, np.float32), np.zeros(100_000, np.float32)]
    group.post(0, sources[0], results[0], "allreduce", op="SUM")
    group.post(1, sources[1], results[1], "allreduce", op="PROD")
    failures = until_all_failed(group)
    assert {failure.rank for failure in failures} <= {0, 1}
    assert "op=SUM" in failures[0].text
    assert "op=PROD" in failures[0].text
    assert not any(result.any() for result in results)


def test_other_dtypes_of_as_many_bytes() -> None:
    group = Group(2)
    for rank, dtype in enumerate(("float32", "int32")):
        array = np.ones(10, dtype)
        group.post(rank, array, array, "allreduce", op="SUM")
    assert all("10 x int32" in failure.text for failure in until_all_failed(group))


@pytest.mark.parametrize("rank", range(4))
def test_cancel_ends_the_group_everywhere(rank: int) -> None:
    group = Group(4)
    posted(group, rank)
    executor = group.members[rank].executor
    assert executor is not None
    executor.cancel(CancelRequest(1), group.clock.now)
    posted(group, *(other for other in range(4) if other != rank))
    assert until_all_failed(group) == [WorkFailed(rank, f"rank {rank} cancelled Iallreduce")] * 4


def test_cancel_of_what_is_complete_does_nothing() -> None:
    group = Group(3)
    group.collective("allreduce", contributions(3, 1000), op="SUM")
    for member in group.members:
        assert member.executor is not None
        member.executor.cancel(CancelRequest(1), group.clock.now)
        member.executor.cancel(CancelRequest(99), group.clock.now)
    group.collective("allreduce", contributions(3, 1000), op="SUM")


def test_a_process_that_goes_amid_a_call() -> None:
    group = Group(4)
    posted(group, 0, 1, 2)
    group.clock.run_for(group.members, 0.01)
    posted(group, 3)
    leave(group, 3)
    failures = until_all_failed(group)
    assert failures == [WorkFailed(3, "rank 3 is gone: its process left amid Iallreduce")] * 3


def test_a_nic_that_stood_still_blames_itself_for_what_its_peers_did_meanwhile() -> None:
    group = Group(3)
    posted(group, 0, 2)
    executor = group.members[2].executor
    assert executor is not None
    executor.local_fault = STALLED
    for connections in (group.words[0][2], group.data[0][2]):  # without a word, which it could not have heard
        connections.abort(group.clock.now)
    assert until_all_failed(group)[-1] == WorkFailed(2, STALLED)


@pytest.mark.parametrize("how", ["cancel", "leave", "differ"])
def test_a_nic_that_stood_still_believes_what_another_rank_says(how: str) -> None:
    group = Group(3)
    posted(group, 0, 1, 2)
    stood, other = (group.members[rank].executor for rank in (2, 1))
    assert stood is not None
    assert other is not None
    stood.local_fault = STALLED
    if how == "cancel":
        other.cancel(CancelRequest(1), group.clock.now)
    elif how == "leave":
        leave(group, 1)
    else:
        posted(group, 0, 2)
        posted(group, 1, count=17)
    failures = until_all_failed(group)
    assert {failure.rank for failure in failures} <= ({0, 1, 2} if how == "differ" else {1})
    assert STALLED not in {failure.text for failure in failures}


def test_a_nic_that_others_say_is_gone_knows_that_it_stood_still() -> None:
    group = Group(3)
    posted(group, 0, 1)
    stood, other = (group.members[rank].executor for rank in (2, 1))
    assert stood is not None
    assert other is not None
    stood.local_fault = STALLED
    other.fail(group.clock.now, 2, "rank 2 is gone: it did not answer")
    assert until_all_failed(group)[-1] == WorkFailed(2, STALLED)


def test_a_process_that_goes_before_a_call() -> None:
    group = Group(3)
    leave(group, 2)
    group.clock.run_for(group.members, 1.0)
    assert not group.members[0].failures
    posted(group, 0, 1)
    assert {failure.rank for failure in until_all_failed(group)} == {2}


def test_what_is_complete_arrives_though_its_rank_has_left() -> None:
    """A root is done when its bytes are with its NIC; then its process may go."""
    group = Group(3, link={"delay_s": 0.05, "rate_bps": 1e8})
    buffers = [np.full(100_000, rank, np.float32) for rank in range(3)]
    for rank in (1, 2):
        group.post(rank, buffers[rank], buffers[rank], "bcast", root=0)
    group.post(0, buffers[0], buffers[0], "bcast", root=0)
    group.clock.run(group.members, lambda: bool(group.members[0].completed), 10.0)
    assert not group.members[1].completed
    leave(group, 0)
    group.clock.run(group.members, lambda: all(group.members[rank].completed for rank in (1, 2)), 10.0)
    assert not buffers[1].any()
    assert not buffers[2].any()


def test_ranks_that_leave_one_after_the_other_see_no_failure() -> None:
    group = Group(4)
    group.collective("allreduce", contributions(4, 100_000), op="SUM")
    for rank in range(4):
        leave(group, rank)
        group.clock.run_for(group.members, 0.5)
    assert not any(member.failures for member in group.members)


def test_a_rank_that_has_left_and_is_forgotten_is_no_failure() -> None:
    """Its NIC does not wait for ever for the others to leave too; what the others do without it goes on."""
    group = Group(3)
    group.collective("allreduce", contributions(3, 1000), op="SUM")
    leave(group, 2)
    group.clock.run_for(group.members, 200.0)
    for rank in (0, 1):
        assert not group.members[rank].failures
        assert group.words[rank][2].state is not State.ESTABLISHED
        array = np.full(1000, rank, np.float32)
        group.post(rank, array, array, "bcast", root=0, algorithm="ring")
    failures = until_all_failed(group)
    assert {failure.rank for failure in failures} == {2}


@pytest.mark.parametrize("amid", [False, True])
def test_a_node_that_dies(amid: bool) -> None:
    """Nothing comes from it any more, and nobody says so: the keepalive of its control stream finds out."""
    group = Group(3)
    for rank in range(3):
        for other, words in group.words[rank].items():
            assert other != rank
            words.set_user_timeout(3.0)
            words.set_keepalive((1.0, 1.0, 2), group.clock.now)
    posted(group, 0, 1)
    if amid:
        posted(group, 2)
    group.clock.run_for(group.members[:2], 1e-3)
    group.members[2].dead = True
    failures = until_all_failed(group)
    assert {failure.rank for failure in failures} == {2}
    assert all("rank 2 is gone" in failure.text for failure in failures)


def test_a_nic_that_is_restarted_resets_its_connections() -> None:
    group = Group(3)
    posted(group, 0, 1, 2)
    for connection in (*group.words[2].values(), *group.data[2].values()):
        connection.abort(group.clock.now)
    group.members[2].executor = None
    failures = until_all_failed(group)
    assert {failure.rank for failure in failures} == {2}


def test_a_data_connection_that_is_reset_alone() -> None:
    group = Group(2)
    posted(group, 0, 1)
    group.data[0][1].abort(group.clock.now)
    failures = until_all_failed(group)
    assert {failure.rank for failure in failures} <= {0, 1}


def test_the_reason_arrives_though_data_ends_first() -> None:
    group = Group(2, link={"delay_s": 0.001, "jitter_s": 0.0005})
    posted(group, 0, 1)
    group.clock.run_for(group.members, 0.002)
    group.data[0][1].abort(group.clock.now)
    group.clock.run_for(group.members, 0.01)
    assert not group.members[1].failures
    executor = group.members[0].executor
    assert executor is not None
    executor.fail(group.clock.now, 0, "the reason")
    assert until_all_failed(group)[1] == WorkFailed(0, "the reason")


HEAD = header_of(WorkRequest(1, "Iallreduce", "allreduce", "ring", "float32", (5, 5), (0, 0), (0, 0), "SUM"))


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100),
        b"\xff" * 100,
        b"\x01\x00\x00\x00\xc1",
        pack(HEAD) + pack(HEAD),
        b"".join(pack(EngineAbort(77, "who?")) for _ in range(3)),
    ],
)
def test_nonsense_on_words_ends_the_group(nonsense: bytes) -> None:
    group = Group(2)
    executor = group.members[1].executor
    group.members[1].executor = None
    group.words[1][0].send(nonsense)
    source = np.ones(10, np.float32)
    group.post(0, source, source, "allreduce", op="SUM")
    group.clock.run(group.members, lambda: bool(group.members[0].failures), 5.0)
    assert group.members[0].failures[0].rank in (1, -1)
    assert executor is not None


def test_last_words_may_be_long() -> None:
    group = Group(3)
    group.members[1].executor = None
    group.words[1][0].send(pack(msgspec.structs.replace(HEAD, call="x" * 100_000)))
    source = np.ones(10, np.float32)
    group.post(0, source, source, "allreduce", op="SUM")
    failures = until_all_failed(group)
    assert all(0 < len(failure.text) < 10_000 for failure in failures)


@pytest.mark.parametrize("message", [EngineAbort(1, "lost \x1b[2J"), msgspec.structs.replace(HEAD, call="I\x1b[2J")])
def test_text_of_others_has_no_escape_sequences(message: EngineAbort) -> None:
    group = Group(2)
    group.members[1].executor = None
    source = np.ones(10, np.float32)
    group.post(0, source, source, "allreduce", op="SUM")
    group.words[1][0].send(pack(message))
    while not group.members[0].failures:
        group.clock.run_for(group.members, 0.1)
    text = group.members[0].failures[0].text
    assert "?[2J" in text
    assert text.isprintable()


def test_heads_without_end_are_not_kept() -> None:
    group = Group(2)
    group.members[1].executor = None
    number = 0
    while not group.members[0].failures:
        for _ in range(100):
            number += 1
            group.words[1][0].send(pack(msgspec.structs.replace(HEAD, number=number)))
        group.clock.run_for(group.members, 0.1)
    assert "requests ahead" in group.members[0].failures[0].text
    assert MAX_WORK_REQUESTS < number < 3 * MAX_WORK_REQUESTS


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"number": 2}, "after request 0"),
        ({"collective": "allscan"}, "no collective"),
        ({"algorithm": "fast"}, "algorithm"),
        ({"dtype": "object"}, "element type"),
        ({"dtype": "float32,int8"}, "element type"),
        ({"counts": (5,)}, "blocks"),
        ({"counts": (5, -5)}, "elements"),
        ({"counts": (5, 6)}, "bytes for"),
        ({"op": "XOR"}, "operation"),
        ({"op": ""}, "operation"),
        ({"codec": "zip"}, "codec"),
        ({"codec": "bounded:99"}, "codec"),
        ({"codec": "bounded:10", "dtype": "int32"}, "float32"),
        ({"collective": "reduce", "root": 2}, "root"),
        ({"collective": "reduce", "root": -1}, "root"),
    ],
    ids=str,
)
def test_posts_that_no_process_makes(change: dict[str, Any], why: str) -> None:
    group = Group(2)
    fields: dict[str, Any] = {
        "number": 1, "call": "I", "collective": "allreduce", "algorithm": "ring", "dtype": "float32",
        "counts": (5, 5), "source": (0, 0), "result": (0, 0), "op": "SUM", **change,
    }  # fmt: skip
    executor = group.members[0].executor
    assert executor is not None
    memory = raw(np.zeros(10, np.float32))
    with pytest.raises(ValueError, match=why):
        executor.post(WorkRequest(**fields), memory, memory)
    assert not executor.is_busy
    group.collective("allreduce", contributions(2, 1000), op="SUM")


def test_after_a_failure_nothing_is_held_or_taken() -> None:
    group = Group(3, link={"delay_s": 0.01})
    posted(group, 0, 1, 2)
    group.clock.run_for(group.members, 0.025)
    assert all(
        flow(connection).send_buffer.zerocopy for connection in (group.data[0][1], group.data[1][2], group.data[2][0])
    )
    executor = group.members[1].executor
    assert executor is not None
    executor.fail(group.clock.now, 1, "enough")
    assert not executor.is_busy
    until_all_failed(group)
    for member in group.members:
        assert member.executor is not None
        posted(group, member.rank)
        assert not member.executor.is_busy
    for connections in group.data:
        for connection in connections.values():
            assert connection.state is State.CLOSED
            assert not connection.received
            assert not flow(connection).send_buffer.zerocopy
    assert not any(member.completed for member in group.members)
