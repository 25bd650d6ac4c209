"""Who is blamed for what, and from which figures on: tables and properties over answers made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.diagnosis.failures import mismatched_calls
from softnic.diagnosis.findings import diagnose
from softnic.diagnosis.nic_load import busy_nics
from softnic.diagnosis.result import Kind, WaitFinding
from softnic.diagnosis.samples import NicSample
from softnic.diagnosis.waiting import waits
from softnic.ipc.collectives_info import (
    CollectivesInfo,
    CommunicatorInfo,
    FailedCommunicatorInfo,
    OperationInfo,
    RankLinkInfo,
)

CALL = "Allreduce(8 x float32, op=SUM)"


def ip(rank: int) -> str:
    return f"10.0.0.{rank + 1}"


def link(own: int, other: int, communicator: int = 0, **fields: Any) -> RankLinkInfo:
    """What rank `own` exchanges with rank `other`; the ports are those of one stream between them."""
    first = 1000 * (1 + communicator)
    return RankLinkInfo(other, (ip(own), first + other), (ip(other), first + own), **fields)


def member(rank: int, links: Sequence[RankLinkInfo], *, number: int = 1, **fields: Any) -> CommunicatorInfo:
    """A rank that has posted the operation `number`, which is in progress, unless `number` is 0."""
    operations = [OperationInfo(number, CALL, 2.0, 1, 2)] if number else []
    given = {"posted": max(0, number), "pid": 100 + rank, "state": "S", "operations": operations, "links": [*links]}
    return CommunicatorInfo(rank, 2, **{**given, **fields})


def answers(*members: Sequence[CommunicatorInfo], time: float = 1.0) -> dict[str, CollectivesInfo]:
    """One NIC for each rank, by its number as the control socket."""
    return {
        str(rank): CollectivesInfo(time, f"n{rank}", ip(rank), rank, communicators=[*infos])
        for rank, infos in enumerate(members)
    }


def on_link(sent: int = 0, again: int = 0, time: float = 1.0, **fields: Any) -> NicSample:
    """Rank 1 waits for bytes of rank 0 that are on their way."""
    counters = {"frames_sent": sent, "retransmits": again, "unacknowledged": 100, **fields}
    return NicSample(answers([member(0, [link(0, 1, **counters)])], [member(1, [link(1, 0, receiving=1)])], time=time))


def for_rank(late: int = 0, **fields: Any) -> NicSample:
    """The other rank waits for rank `late`, which has not called."""
    waiting = 1 - late
    infos = {waiting: [member(waiting, [link(waiting, late, expected=1)])]}
    infos[late] = [member(late, [link(late, waiting)], number=0, **fields)]
    return NicSample(answers(infos[0], infos[1]))


def kinds(found: Sequence[WaitFinding]) -> list[Kind]:
    return [each.kind for each in found]


# -- the ends of chains of waiting -------------------------------------------------------------------------------------


def ends(sample: NicSample) -> list[tuple[str, int, int]]:
    """The end, the rank and the peer of each blame."""
    return [(blame.end.value, blame.rank, blame.peer) for wait in waits(sample) for blame in wait.blames]


CHAINS: dict[str, tuple[dict[str, Any], dict[str, Any], int, list[tuple[str, int, int]]]] = {
    # what rank 0's link to rank 1 shows, what rank 1's link to rank 0 shows, what rank 0 has posted: who is blamed
    "not announced, and not called": ({}, {"expected": 1}, 0, [("rank", 0, -1)]),
    "not announced, but called": ({}, {"expected": 1}, 1, [("link", 0, 1)]),
    "a later call is not yet waited for": ({}, {"expected": 2}, 0, []),
    "a block on its way": ({"unacknowledged": 1}, {"receiving": 1}, 1, [("link", 0, 1)]),
    "a block in its turn": ({"sending": 1}, {"receiving": 1}, 1, [("link", 0, 1)]),
    "a block of an earlier call first": ({"sending": 1, "unacknowledged": 0}, {"receiving": 1}, 1, [("link", 0, 1)]),
    "nothing to send": ({}, {"receiving": 1}, 1, []),
    "a later block": ({"sending": 2}, {"receiving": 1}, 1, []),
    "a block behind another rank's": ({"sending": 1, "held_by": 2, "unacknowledged": 9}, {"receiving": 1}, 1, []),
    "another block behind another rank's": (
        {"sending": 2, "held_by": 2, "unacknowledged": 9}, {"receiving": 1}, 1, [("link", 0, 1)],
    ),
    "a block that its process copies": ({"sending": 1, "held_by": 0}, {"receiving": 1}, 1, [("rank", 0, -1)]),
    "a block of a later call that is copied": ({"sending": 2, "held_by": 0}, {"receiving": 1}, 1, []),
    "another receive": ({"unacknowledged": 1}, {"receiving": 2}, 1, []),
}  # fmt: skip


@pytest.mark.parametrize("what", CHAINS)
def test_a_chain_of_waiting_ends_at(what: str) -> None:
    theirs, own, posted, expected = CHAINS[what]
    sender = member(0, [link(0, 1, **theirs)], number=posted)
    assert ends(NicSample(answers([sender], [member(1, [link(1, 0, **own)])]))) == expected


def test_bytes_that_are_not_acknowledged_are_waited_for_once_all_steps_are_done() -> None:
    done = [OperationInfo(1, CALL, 2.0, 0, 2)]
    for operations, expected in ((done, [("link", 0, 1)]), ([OperationInfo(1, CALL, 2.0, 1, 2)], [])):
        sender = member(0, [link(0, 1, unacknowledged=5)], operations=operations)
        assert ends(NicSample(answers([sender], [member(1, [link(1, 0)], number=0, posted=1)]))) == expected


def test_a_peer_whose_nic_is_not_known_is_late_or_its_link_is_slow() -> None:
    for own, expected in (({"expected": 1}, ("rank", 1, -1)), ({"receiving": 1}, ("link", 1, 0))):
        assert ends(NicSample(answers([member(0, [link(0, 1, **own)])]))) == [expected]


def test_the_oldest_operation_decides_and_messages_where_there_is_none() -> None:
    both = [
        OperationInfo(3, "later", 1.0, 1, 1),
        OperationInfo(2, "first", 4.0, 1, 1),
        OperationInfo(-1, "Send", 9.0, 1, 1),
    ]
    [wait] = waits(NicSample(answers([member(0, [link(0, 1, expected=2)], operations=both)])))
    assert (wait.number, wait.call, wait.age_s) == (2, "first", 4.0)
    only = [OperationInfo(-7, "Send", 1.0, 1, 1), OperationInfo(-3, "Recv", 1.0, 1, 1)]
    [wait] = waits(NicSample(answers([member(0, [link(0, 1, receiving=-3)], operations=only)])))
    assert (wait.number, wait.call) == (-3, "Recv")


def in_two(first: int, second: int) -> NicSample:
    """Ranks of two communicators: in the first, `first` waits for the other rank, in the second, `second` does."""

    def infos(rank: int) -> list[CommunicatorInfo]:
        found = []
        for communicator, waiting in enumerate((first, second)):
            other = 1 - rank
            own = link(rank, other, communicator, expected=1 if rank == waiting else 0)
            found.append(member(rank, [own], number=1 if rank == waiting else 0))
        return found

    return NicSample(answers(infos(0), infos(1)))


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_that_wait_for_each_other_in_two_communicators_called_in_different_orders(first: int) -> None:
    found = diagnose([in_two(first, 1 - first)] * 4)
    assert set(kinds(found)) == {Kind.MISMATCHED_CALL}
    assert "wait for each other in calls of two communicators" in found[0].evidence[0]


def test_ranks_that_wait_for_the_same_rank_twice_blame_it() -> None:
    assert [(each.kind, each.rank) for each in diagnose([in_two(0, 0)] * 4)] == [(Kind.LATE_RANK, 1)]


# -- shares, and what is a loss ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["T", "t", "S", "R", ""])
@pytest.mark.parametrize("late", [0, 1])
def test_a_late_rank_is_stopped_if_its_process_is(state: str, late: int) -> None:
    kind = Kind.STOPPED_PROCESS if state in ("T", "t") else Kind.LATE_RANK
    [found] = diagnose([for_rank(late, state=state, idle_s=7.0)] * 2)
    assert (found.kind, found.rank, found.ip, found.share) == (kind, late, ip(late), 1.0)
    assert found.call == CALL
    assert found.evidence[:2] == ("others have waited for it for 2.0 s", "its last request was 7.0 s ago")


def test_what_its_process_used_of_a_cpu_is_from_the_first_to_the_last_answer() -> None:
    seen = []
    for time, cpu_s in ((10.0, 1.0), (11.0, 1.9), (14.0, 2.0)):
        late = for_rank(cpu_s=cpu_s)
        seen.append(NicSample({nic: msgspec.structs.replace(each, time=time) for nic, each in late.answers.items()}))
    [found] = diagnose(seen)
    assert found.evidence[2] == "its process 100 is in state S and used 25% of a CPU"
    assert diagnose(seen[:1])[0].evidence[2] == "its process 100 is in state S"


LOSSES = [
    # sent, sent again: lossy from three on, if they are one in a hundred
    (100, 3, True), (100, 2, False), (300, 3, True), (301, 3, False), (1000, 10, True), (1001, 10, False),
    (25, 2, False),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "again", "lossy"), LOSSES)
def test_a_link_is_lossy_from_three_retransmissions_in_a_hundred_on(sent: int, again: int, lossy: bool) -> None:
    [found] = diagnose([on_link(500, 50), on_link(500 + sent, 50 + again, 2.0)])
    assert found.kind is (Kind.LOSSY_LINK if lossy else Kind.SLOW_LINK)
    text = f"{again} of {sent:,} segments were sent again" if again else f"{sent:,} segments, none sent again"
    assert found.evidence[0] == text
    assert (found.rank, found.where) == (0, "rank 0 to rank 1")


def test_too_few_segments_of_the_samples_stand_for_all_since_the_connection_began() -> None:
    """Below 20, that is."""
    for sent, kind in ((19, Kind.LOSSY_LINK), (20, Kind.SLOW_LINK)):
        assert kinds(diagnose([on_link(500, 50), on_link(500 + sent, 50, 2.0)])) == [kind]


def test_the_round_trips_of_a_link_are_its_least_and_its_latest() -> None:
    [found] = diagnose([on_link(srtt_s=0.001, min_rtt_s=0.0005), on_link(time=2.0, srtt_s=0.004, min_rtt_s=0.0002)])
    assert found.evidence[1] == "round trip 4 ms, at the least 0.2 ms"


SHARES = [
    # of 100 samples, how many wait for a link; whether it loses; whether it is found, and the late rank of the others
    (25, True, True, True), (24, True, False, True), (39, False, False, True), (40, False, True, True),
    (75, False, True, True), (76, False, True, False), (100, False, True, False), (0, False, False, True),
]  # fmt: skip


@pytest.mark.parametrize(("count", "loses", "is_found", "late_is"), SHARES)
def test_what_is_seldom_waited_for_is_no_finding(count: int, loses: bool, is_found: bool, late_is: bool) -> None:
    """A quarter of the time; a slow link four tenths."""
    on = [on_link(1000 * n, 100 * n if loses else 0, 1.0 + n) for n in range(1, count + 1)]
    found = diagnose([*[for_rank(1)] * (100 - count), *on])
    kind = Kind.LOSSY_LINK if loses else Kind.SLOW_LINK
    expected = {kind: count / 100} if is_found else {}
    expected |= {Kind.LATE_RANK: (100 - count) / 100} if late_is else {}
    assert {each.kind: pytest.approx(each.share) for each in found} == expected
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)


def among_three(waited: dict[tuple[int, int], int]) -> list[NicSample]:
    """Samples of three ranks of which one link is waited for: by sender and receiver, in how many samples."""
    found = []
    for (sender, receiver), count in waited.items():
        infos = []
        for rank in range(3):
            links = [
                link(rank, other, receiving=1 if (other, rank) == (sender, receiver) else 0,
                     unacknowledged=9 if (rank, other) == (sender, receiver) else 0)
                for other in range(3) if other != rank
            ]  # fmt: skip
            infos.append([member(rank, links)])
        found += [NicSample(answers(*infos))] * count
    return found


PLACES = [
    ({(0, 1): 3, (0, 2): 1}, "rank 0 to rank 1", 0),
    ({(0, 1): 5, (0, 2): 2}, "rank 0 to all ranks", 0),
    ({(0, 1): 5, (2, 1): 5}, "all ranks to rank 1", 1),
    ({(0, 1): 6, (0, 2): 6, (1, 2): 1}, "rank 0 to all ranks", 0),
]


@pytest.mark.parametrize(("waited", "where", "rank"), PLACES)
def test_one_link_is_blamed_where_it_has_three_quarters_of_its_nodes_share(
    waited: dict[tuple[int, int], int], where: str, rank: int
) -> None:
    [found] = diagnose(among_three(waited))
    assert (found.where, found.rank, found.ip) == (where, rank, ip(rank))


# -- busy NICs ---------------------------------------------------------------------------------------------------------

REPLIES = [
    # a NIC's own time to answer, those of the others: four times their median and 30 ms at least
    (0.030, (0.0075, 0.0075), True), (0.030, (0.0076, 0.0076), False), (0.0299, (0.001, 0.001), False),
    (0.120, (0.030, 0.030), True), (0.119, (0.030, 0.030), False), (0.2, (0.001, 0.5), False), (0.030, (), True),
]  # fmt: skip
WAITED = [
    # the same for the share of the time in which it waited for a CPU: two and a half times, and half of the time
    (0.625, (0.25, 0.25), True), (0.6249, (0.25, 0.25), False), (0.5, (0.0, 0.0), True), (0.4999, (0.0, 0.0), False),
]  # fmt: skip


@pytest.mark.parametrize(("own", "others", "is_busy"), REPLIES)
def test_a_nic_is_busy_that_answers_late_unlike_the_others(
    own: float, others: tuple[float, ...], is_busy: bool
) -> None:
    figures = dict(enumerate((own, *others)))
    seen = NicSample(
        {str(n): CollectivesInfo(1.0, f"n{n}", ip(n), n) for n in figures}, {str(n): s for n, s in figures.items()}
    )
    assert (ip(0) in busy_nics([seen])) is is_busy
    if is_busy:
        assert busy_nics([seen])[ip(0)] == [f"the NIC takes {own * 1e3:.0f} ms to answer"]


@pytest.mark.parametrize(("own", "others", "is_busy"), WAITED)
def test_a_nic_is_busy_that_waits_for_a_cpu_unlike_the_others(
    own: float, others: tuple[float, ...], is_busy: bool
) -> None:
    shares = dict(enumerate((own, *others)))
    seen = [
        NicSample(
            {
                str(n): CollectivesInfo(now, f"n{n}", ip(n), n, waited_s=5.0 + share * (now - 1))
                for n, share in shares.items()
            },
            dict.fromkeys(map(str, shares), 0.001),
        )
        for now in (1.0, 3.0)
    ]
    assert (ip(0) in busy_nics(seen)) is is_busy
    assert ip(0) not in busy_nics(seen[:1])


@pytest.mark.parametrize("busy", [0, 1])
def test_a_link_with_a_busy_nic_at_an_end_is_that_nics_fault(busy: int) -> None:
    slow = on_link()
    found = diagnose([NicSample(slow.answers, {str(busy): 0.5, str(1 - busy): 0.001})] * 4)
    assert [(each.kind, each.rank, each.ip, each.share) for each in found] == [(Kind.BUSY_NIC, busy, ip(busy), 1.0)]


def test_a_busy_nic_that_little_waits_for_is_no_finding() -> None:
    replies = {"0": 0.5, "1": 0.001}
    for count, expected in ((24, {Kind.LATE_RANK}), (25, {Kind.LATE_RANK, Kind.BUSY_NIC})):
        seen = [NicSample(on_link().answers, replies)] * count
        late = NicSample(answers([], [member(1, [link(1, 2, expected=1)])]))
        assert set(kinds(diagnose([*seen, *[late] * (100 - count)]))) == expected


# -- ends by an error --------------------------------------------------------------------------------------------------


def ended(rank: int, call: str, *, age_s: float = 2.0, number: int = 7, at_fault: int = 1, mismatched: bool = False,
          text: str = "it ended", group: int = 0) -> CollectivesInfo:  # fmt: skip
    ports = [((f"10.{group}.0.{each}", 1), (f"10.{group}.0.{each + 1}", 2)) for each in (rank, rank + 1)]
    operations = [OperationInfo(number, call, age_s, 0, 0)] if call else []
    record = FailedCommunicatorInfo(rank, 3, at_fault, text, age_s, operations, ports, mismatched)
    return CollectivesInfo(1.0, f"n{rank}", ip(rank), rank, failed=[record])


def of(*infos: CollectivesInfo) -> list[NicSample]:
    return [NicSample({str(number): info for number, info in enumerate(infos)})]


@pytest.mark.parametrize(("age_s", "share"), [(0.0, 1.0), (9.9, 1.0), (10.0, 0.2), (599.0, 0.2), (600.0, None)])
def test_an_old_failure_comes_behind_what_is_in_progress_and_is_forgotten(age_s: float, share: float | None) -> None:
    found = diagnose(of(ended(0, CALL, age_s=age_s)))
    assert [each.share for each in found] == ([] if share is None else [share])


def test_the_first_failure_of_a_communicator_says_why() -> None:
    [found] = diagnose(of(ended(0, "B", age_s=1.0, at_fault=0, text="later"), ended(1, "A", age_s=2.0, text="first")))
    assert (found.kind, found.rank, found.ip, found.call) == (Kind.FAILED_RANK, 1, ip(1), "A")
    assert found.evidence == ("2.0 s ago: first",)


def test_a_failure_of_no_single_rank_names_none() -> None:
    [found] = diagnose(of(ended(0, "", at_fault=-1)))
    assert (found.rank, found.ip, found.call, found.where) == (-1, "", "", "no single rank")


@given(size=st.integers(3, 6), data=st.data())
def test_the_odd_call_is_that_of_fewest_ranks(size: int, data: st.DataObject) -> None:
    odd, noticed = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))
    infos = [
        ended(rank, "Bcast()" if rank == odd else "Barrier()", at_fault=noticed, mismatched=rank == noticed)
        for rank in range(size)
    ]
    [found] = diagnose(of(*infos))
    assert (found.kind, found.rank, found.ip, found.call) == (Kind.MISMATCHED_CALL, odd, ip(odd), "Bcast()")
    assert mismatched_calls(of(*infos)) == {rank: "Bcast()" if rank == odd else "Barrier()" for rank in range(size)}
    assert not any("no call was made by more ranks" in text for text in found.evidence)


def test_calls_differ_in_the_first_operation_in_which_they_do() -> None:
    first, second = ended(0, "A", mismatched=True), ended(1, "A")
    later = [OperationInfo(9, "C", 1.0, 0, 0), OperationInfo(8, "B", 1.0, 0, 0)]
    others = [OperationInfo(8, "D", 1.0, 0, 0), OperationInfo(9, "E", 1.0, 0, 0)]
    for info, more in ((first, later), (second, others)):
        info.failed[0].operations.extend(more)
    assert mismatched_calls(of(first, second)) == {0: "B", 1: "D"}
    assert mismatched_calls(of(ended(0, "A"), ended(1, "B"))) == {}
    assert mismatched_calls(of(ended(0, "A", group=1), ended(1, "B", group=2, mismatched=True))) == {}
