"""Causes of slow and stuck steps: found in the answers of engines in virtual time, and of NICs as a table."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic.collectives.progress import links_of, operations_of
from softnic.diagnosis.explanation import of_process, why_mismatched, why_stuck
from softnic.diagnosis.findings import diagnose
from softnic.diagnosis.result import Kind, WaitFinding
from softnic.diagnosis.sample_files import MAX_FILE_BYTES, decoded, encoded, merged
from softnic.diagnosis.samples import NicSample, joined
from softnic.ipc.collectives_info import (
    CollectivesInfo,
    CommunicatorInfo,
    FailedCommunicatorInfo,
    OperationInfo,
    RankLinkInfo,
)
from softnic.packet import ipv4
from tests.collectives.group import BASE_IP, Group

COUNT = 40_000


def post(group: Group, rank: int) -> None:
    group.post(rank, np.ones(COUNT, np.float32), np.empty(COUNT, np.float32), "allreduce", op="SUM")


def answer(group: Group, rank: int, state: str) -> CollectivesInfo:
    """What the NIC of a rank would answer now."""
    executor, now = group.members[rank].executor, group.clock.now
    assert executor is not None
    operations = operations_of(executor, dict.fromkeys(range(1, 100), now - 1.0), now)
    links = links_of(executor, group.connections(rank))
    size = len(group.members)
    own = CommunicatorInfo(rank, size, 100 + rank, state, posted=executor.posted, operations=operations, links=links)
    return CollectivesInfo(now, f"n{rank}", ipv4.text(BASE_IP + rank), rank, communicators=[own])


def samples(group: Group, *, known: tuple[int, ...], state: str = "S", each_s: float = 2e-3) -> list[NicSample]:
    found = []
    for _ in range(20):
        group.clock.run_for(group.members, each_s)
        found.append(NicSample({str(rank): answer(group, rank, state) for rank in known}))
    return found


def first(found: list[WaitFinding]) -> tuple[Kind, int]:
    assert found
    return found[0].kind, found[0].rank


@settings(max_examples=15, deadline=None)
@given(size=st.integers(2, 5), data=st.data(), stopped=st.booleans())
def test_the_rank_that_has_not_called_is_found_whoever_is_asked(size: int, data: st.DataObject, stopped: bool) -> None:
    late = data.draw(st.integers(0, size - 1))
    asked = data.draw(st.sets(st.integers(0, size - 1), min_size=1)) | {late, (late + 1) % size}
    group = Group(size)
    for rank in range(size):
        if rank != late:
            post(group, rank)
    found = diagnose(samples(group, known=tuple(sorted(asked)), state="T" if stopped else "S"))
    assert first(found) == (Kind.STOPPED_PROCESS if stopped else Kind.LATE_RANK, late)
    assert found[0].call == f"Iallreduce({COUNT} x float32, op=SUM)"


def test_a_rank_alone_names_the_neighbor_that_has_not_called() -> None:
    group = Group(3)
    for rank in (0, 1):
        post(group, rank)
    assert first(diagnose(samples(group, known=(0,)))) == (Kind.LATE_RANK, 2)


@pytest.mark.parametrize("bad", [0, 2])
def test_a_slow_link_is_found(bad: int) -> None:
    group = Group(4, links={bad: {"delay_s": 1e-4, "rate_bps": 2e6}}, link={"delay_s": 1e-4})
    for rank in range(4):
        for _ in range(10):
            post(group, rank)
    found = diagnose(samples(group, known=(0, 1, 2, 3), each_s=1e-2))
    assert first(found) == (Kind.SLOW_LINK, bad)
    assert found[0].where == f"rank {bad} to rank {(bad + 1) % 4}"


def failed(rank: int, call: str, ports: int, *, mismatched: bool = False) -> CollectivesInfo:
    """The NIC of a rank whose communicator has ended; the ports of its streams are those of `ports` and the next."""
    pairs = [((f"10.0.0.{each}", 1), (f"10.0.0.{each + 1}", 2)) for each in (ports, ports + 1)]
    record = FailedCommunicatorInfo(rank, 3, 1, "it ended", 2.0, [OperationInfo(7, call, 2.0, 0, 0)], pairs, mismatched)
    return CollectivesInfo(1.0, f"n{rank}", f"10.77.0.{rank + 1}", rank, failed=[record])


def test_the_call_that_fewest_ranks_made_is_the_mismatched_one() -> None:
    answers = {"a": failed(0, "Bcast()", 1), "c": failed(2, "Barrier()", 3)}
    answers["b"] = failed(1, "Barrier()", 2, mismatched=True)
    [finding] = diagnose([NicSample(answers)])
    assert (finding.kind, finding.rank, finding.call) == (Kind.MISMATCHED_CALL, 0, "Bcast()")
    assert finding.evidence[:2] == ("rank 0 called Bcast()", "rank 1 called Barrier()")


def test_two_calls_made_by_as_many_ranks_are_said_to_be_equal() -> None:
    answers = {"a": failed(0, "Bcast()", 1), "b": failed(1, "Barrier()", 2, mismatched=True)}
    [finding] = diagnose([NicSample(answers)])
    assert (finding.kind, finding.rank) == (Kind.MISMATCHED_CALL, 1)
    assert "may not be this rank's" in " ".join(finding.evidence)


def test_a_failure_is_found_in_the_last_answer_of_each_nic() -> None:
    answers = {"a": failed(0, "Bcast()", 1), "b": failed(1, "Barrier()", 2, mismatched=True)}
    answers["c"] = failed(2, "Barrier()", 3)
    [finding] = diagnose([NicSample(answers), NicSample({"b": answers["b"]})])
    assert (finding.kind, finding.rank) == (Kind.MISMATCHED_CALL, 0)


def test_a_rank_that_failed_is_named_as_its_nic_reported_it() -> None:
    [finding] = diagnose([NicSample({"a": failed(0, "Bcast()", 1), "c": failed(2, "Bcast()", 2)})])
    assert (finding.kind, finding.rank) == (Kind.FAILED_RANK, 1)


def test_a_nic_that_answers_late_is_blamed_for_what_waits_for_it() -> None:
    group = Group(3)
    for rank in (0, 1):
        post(group, rank)
    seen = [NicSample(each.answers, {"0": 0.001, "1": 0.002, "2": 0.1}) for each in samples(group, known=(0, 1, 2))]
    assert first(diagnose(seen)) == (Kind.BUSY_NIC, 2)


def test_nothing_is_found_where_nothing_waits() -> None:
    assert diagnose(samples(Group(3), known=(0, 1, 2))) == []
    assert diagnose([]) == []


def test_only_the_communicators_that_a_process_depends_on_count_for_its_error() -> None:
    """Processes 100 and 101 are ranks of one, 200 and 201 of another."""
    own, other = Group(2), Group(2)
    post(own, 0)
    post(other, 1)
    mine, theirs = samples(own, known=(0, 1)), samples(other, known=(0, 1))
    seen = []
    for one, another in zip(mine, theirs, strict=True):
        moved = {}
        for nic, found in another.answers.items():
            info = msgspec.structs.replace(found.communicators[0], pid=200 + found.communicators[0].rank, links=[])
            moved[f"other {nic}"] = msgspec.structs.replace(found, communicators=[info])
        seen.append(NicSample({**one.answers, **moved}))
    kept = of_process(seen, "0", 100)
    assert {info.pid for sample in kept for each in sample.answers.values() for info in each.communicators} == {
        100,
        101,
    }
    assert first(diagnose(kept)) == (Kind.LATE_RANK, 1)
    assert of_process(seen, "0", 999) == kept  # a process of another PID namespace


def test_an_explanation_of_a_nic_that_is_gone_is_empty(tmp_path: Path) -> None:
    assert why_stuck(str(tmp_path / "no.sock")) == why_mismatched(str(tmp_path / "no.sock")) == ""


# -- several hosts -----------------------------------------------------------------------------------------------------


def on_hosts(seen: list[NicSample], hosts: tuple[tuple[int, ...], ...], apart_s: float = 0.0) -> list[bytes]:
    """The file of each host, of the NICs of these ranks, whose paths are the same on all hosts."""
    files = []
    for number, ranks in enumerate(hosts):
        own = [
            NicSample(
                {f"node{n}": sample.answers[str(rank)] for n, rank in enumerate(ranks)},
                {f"node{n}": 0.001 for n in range(len(ranks))},
                1000.0 + 0.05 * index + number * apart_s,
            )
            for index, sample in enumerate(seen)
        ]
        files.append(encoded(f"host{number}", own))
    return files


@pytest.mark.parametrize("apart_s", [0.02, 100.0])
def test_the_files_of_two_hosts_tell_more_than_either(apart_s: float) -> None:
    group = Group(4)
    for rank in range(3):
        post(group, rank)
    files = on_hosts(samples(group, known=(0, 1, 2, 3), state="T"), ((0, 1), (2, 3)), apart_s)
    [alone] = diagnose(merged([decoded(files[0])])[0])
    assert (alone.kind, alone.rank) == (Kind.LATE_RANK, 3)
    assert "its NIC has not been asked, or does not answer" in alone.evidence
    both, together = merged([decoded(file) for file in files])
    assert first(diagnose(both)) == (Kind.STOPPED_PROCESS, 3)
    assert together is (apart_s < 1)


def test_a_slow_link_between_two_hosts_is_found_in_their_files() -> None:
    group = Group(4, links={1: {"delay_s": 1e-4, "rate_bps": 2e6}}, link={"delay_s": 1e-4})
    for rank in range(4):
        for _ in range(10):
            post(group, rank)
    files = on_hosts(samples(group, known=(0, 1, 2, 3), each_s=1e-2), ((0, 1), (2, 3)), 0.01)
    both, _ = merged([decoded(file) for file in files])
    assert first(diagnose(both)) == (Kind.SLOW_LINK, 1)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}", b"[1]", b'{"schema": 2, "host": "a", "samples": []}', b"\xff", b'{"host": "\xff"}'),
        *(b"[" * 5000, b'{"schema": 1, "host": "a", "x": ' + b"[" * 5000, b'{"schema": 1e999}'),
        b'{"schema": 1, "host": "a", "samples": []}'.ljust(MAX_FILE_BYTES + 1),
    ],
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        decoded(data)


def test_no_files_and_empty_ones_have_no_samples() -> None:
    empty = decoded(encoded("a", []))
    assert merged([]) == ([], True)
    assert merged([empty, empty]) == ([], False)


def link(rank: int, port: int, ip: str = "10.0.0.9", **given: int) -> RankLinkInfo:
    return RankLinkInfo(rank, ("10.0.0.1", port), (ip, port + 1), **given)


def waiting(rank: int, links: Sequence[RankLinkInfo], call: str = "Allreduce", pid: int = 5) -> CommunicatorInfo:
    operations = [OperationInfo(1, call, 1.0, 1, 2)]
    return CommunicatorInfo(rank, 2, pid, "S", posted=1, operations=operations, links=list(links))


def of(communicators: Sequence[CommunicatorInfo], ip: str = "10.0.0.1") -> CollectivesInfo:
    return CollectivesInfo(1.0, "node", ip, 1, communicators=list(communicators))


@pytest.mark.parametrize("ips", [("", ""), ("10.0.0.1", ""), ("", "10.0.0.2")])
def test_a_link_without_a_known_address_is_blamed_by_its_ranks(ips: tuple[str, str]) -> None:
    sample = NicSample({"a": of([waiting(0, [link(1, 7, ips[1], receiving=1)])], ips[0])})
    [found] = diagnose([sample] * 5)
    assert (found.kind, found.where, found.ip) == (Kind.SLOW_LINK, "rank 1 to rank 0", ips[1])


Keys = list[tuple[tuple[str, int], tuple[str, int]]]


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4), max_size=12))
def test_owners_are_joined_by_their_streams(pairs: list[list[tuple[int, int]]]) -> None:
    """As by looking at every pair of owners until nothing changes."""
    ports: list[Keys] = [[(("a", one), ("a", other)) for one, other in own] for own in pairs]
    undirected = [{frozenset(pair) for pair in own} for own in ports]
    group = list(range(len(ports)))
    for _ in ports:
        for one in range(len(ports)):
            for other in range(one):
                if undirected[one] & undirected[other]:
                    low = min(group[one], group[other])
                    group = [low if each in (group[one], group[other]) else each for each in group]
    found = joined(list(enumerate(ports)))
    assert sorted(owner for those in found for owner in those) == list(range(len(ports)))
    assert {frozenset(those) for those in found} == {
        frozenset(owner for owner in range(len(ports)) if group[owner] == each) for each in set(group)
    }


def many_communicators(count: int) -> list[NicSample]:
    """All of them late, of one process, and of other ones."""
    own = [waiting(0, [link(1, 2 * number, expected=1)], pid=number if number % 2 else 5) for number in range(count)]
    return [NicSample({"a": of(own)})]


def one_large_communicator(count: int) -> list[NicSample]:
    members = {
        str(rank): of([waiting(rank, [link((rank + 1) % count, 2 * rank, expected=1, receiving=1)], pid=rank)])
        for rank in range(count)
    }
    return [NicSample(members, dict.fromkeys(members, 0.5))]


def many_samples(count: int) -> list[NicSample]:
    own = [NicSample({str(number): of([])}, {str(number): 0.5, "a": 1.0}, number * 0.05) for number in range(count)]
    return merged([decoded(encoded("a", own)), decoded(encoded("b", own[::-1]))])[0]


@pytest.mark.parametrize("made", [many_communicators, one_large_communicator, many_samples])
def test_large_files_take_linear_time(made: Callable[[int], list[NicSample]]) -> None:
    def cost(count: int) -> float:
        gc.collect()
        gc.disable()  # what it costs depends on all that other tests have left
        began = time.process_time()
        diagnose(made(count))
        took = time.process_time() - began
        gc.enable()
        return took

    cost(100)
    large, small = (min(cost(count) for _ in range(3)) for count in (16_000, 4000))  # other programs slow some of them
    assert large < 12 * max(0.05, small), "16 times as long where it is quadratic"
