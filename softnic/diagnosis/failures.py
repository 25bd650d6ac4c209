"""Communicators that have ended by an error: which rank made another call than the others, or failed first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from softnic.diagnosis.result import Kind, WaitFinding
from softnic.diagnosis.samples import NicSample, joined
from softnic.ipc.collectives_info import FailedCommunicatorInfo

_RECENT_S = 10.0
_REMEMBERED_S = 600.0
_OLD_SHARE = 0.2
"""Of a failure that is not recent: what is in progress comes first."""


def failures(samples: Iterable[NicSample]) -> Iterator[WaitFinding]:
    """Return a finding for each communicator that has ended, as the NICs remember it in their last answers."""
    for group in _ended(samples):
        yield _failure(group)


def mismatched_calls(samples: Iterable[NicSample]) -> Mapping[int, str]:
    """Return what each rank called in the first communicator that ended because these calls differ; empty: none did."""
    differing = [group for group in _ended(samples) if any(failed.mismatched for _, failed in group)]
    return _calls(differing[0]) if differing else {}


def _ended(samples: Iterable[NicSample]) -> list[list[tuple[str, FailedCommunicatorInfo]]]:
    """Return the ends of each communicator on its ranks, each with the address of the rank's node."""
    answers = {nic: answer for sample in samples for nic, answer in sample.answers.items()}
    found = [
        ((answer.ip, failed), failed.ports)
        for answer in answers.values()
        for failed in answer.failed
        if failed.age_s < _REMEMBERED_S
    ]
    return joined(found)


def _failure(group: Sequence[tuple[str, FailedCommunicatorInfo]]) -> WaitFinding:
    by_rank = {failed.rank: (ip, failed) for ip, failed in group}
    first = max((failed for _, failed in group), key=lambda failed: failed.age_s)
    share = 1.0 if first.age_s < _RECENT_S else _OLD_SHARE
    ended = f"{first.age_s:.1f} s ago: {first.text}"
    if any(failed.mismatched for _, failed in group):
        calls = _calls(group)
        rank = _odd_rank(calls, first.at_fault)
        evidence = [f"rank {each} called {call}" for each, call in sorted(calls.items())]
        if not _has_majority(calls):
            evidence.append("no call was made by more ranks than another, so it may not be this rank's that is wrong")
        kind, call = Kind.MISMATCHED_CALL, calls.get(rank, "")
    else:
        rank, evidence, kind = first.at_fault, [], Kind.FAILED_RANK
        call = first.operations[0].call if first.operations else ""
    where = f"rank {rank}" if rank >= 0 else "no single rank"
    ip = by_rank[rank][0] if rank in by_rank else ""
    return WaitFinding(kind, share, rank, ip, call, where, (*evidence, ended))


def _calls(group: Sequence[tuple[str, FailedCommunicatorInfo]]) -> dict[int, str]:
    """Return what each rank called as the first operation in which they differ."""
    by_number: dict[int, dict[int, str]] = {}
    for _, failed in group:
        for operation in failed.operations:
            by_number.setdefault(operation.number, {})[failed.rank] = operation.call
    for _, calls in sorted(by_number.items()):
        if len(set(calls.values())) > 1:
            return calls
    return {}


def _has_majority(calls: Mapping[int, str]) -> bool:
    return len(set(Counter(calls.values()).values())) > 1


def _odd_rank(calls: Mapping[int, str], noticed: int) -> int:
    """Return the rank whose call is made by fewest; among equals, the one that another rank noticed first."""
    made = Counter(calls.values())
    return min(calls, key=lambda rank: made[calls[rank]]) if _has_majority(calls) else noticed
