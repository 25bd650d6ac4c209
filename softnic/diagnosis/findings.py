"""The result of all samples: what makes the steps of a run slow or stuck, the most likely cause first.

Each sample gives the ends of the chains of waiting one vote in all. A link's votes go to a NIC that is short of CPU
time at one of its ends. What is left of a link's votes is a lossy link where segments are sent again, else a slow one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

from softnic.diagnosis.failures import failures
from softnic.diagnosis.nic_load import busy_nics
from softnic.diagnosis.result import Kind, WaitFinding
from softnic.diagnosis.samples import Member, NicSample
from softnic.diagnosis.waiting import Blame, End, Wait, waits
from softnic.ipc.collectives_info import RankLinkInfo

_LEAST_SHARE = 0.25
"""Of the votes, for a finding."""
_LEAST_LINK_SHARE = 0.4
"""Of the votes, for a slow link: where all links are alike, the network is the limit, and no link is at fault."""
_Node: TypeAlias = str | int
"""The address of a node, or the rank where it is not known."""
_LOSS = 0.01
"""Segments sent again, of those sent, from which a link is lossy."""


@dataclass
class _Votes:
    samples: int = 0
    """With anything in progress."""
    by_blame: defaultdict[Blame, float] = field(default_factory=lambda: defaultdict(float))
    last: dict[Blame, tuple[Wait, Member | None]] = field(default_factory=dict)


def diagnose(samples: Sequence[NicSample]) -> list[WaitFinding]:
    """Return the findings, the most likely first; none: nothing was waited for, or nothing stands out."""
    votes = _count(samples)
    busy = busy_nics(samples)
    found = [*failures(samples)]
    if votes.samples:
        found += _active(samples, votes, busy)
    return sorted(found, key=lambda finding: -finding.share)


def _count(samples: Sequence[NicSample]) -> _Votes:
    votes = _Votes()
    for sample in samples:
        for wait in waits(sample):
            if wait.blames:
                votes.samples += 1
            late = {each.info.rank: each for each in wait.late}
            for blame in wait.blames:
                votes.by_blame[blame] += 1 / len(wait.blames)
                votes.last[blame] = wait, late.get(blame.rank)
    return votes


def _active(samples: Sequence[NicSample], votes: _Votes, busy: Mapping[str, list[str]]) -> Iterator[WaitFinding]:
    """Return the findings of operations in progress."""
    left: dict[Blame, float] = dict(votes.by_blame)
    by_ip: defaultdict[str, list[Blame]] = defaultdict(list)
    for blame in left:
        for ip in {blame.ip, blame.peer_ip}:
            by_ip[ip].append(blame)
    for ip, evidence in busy.items():
        touched = [blame for blame in by_ip[ip] if blame in left]
        share = sum(left[blame] for blame in touched) / votes.samples
        if share < _LEAST_SHARE:
            continue
        first = max(touched, key=lambda blame: left[blame])
        rank = first.rank if first.ip == ip else first.peer
        call = votes.last[first][0].call
        yield WaitFinding(Kind.BUSY_NIC, share, rank, ip, call, f"rank {rank}", tuple(evidence))
        for blame in touched:
            del left[blame]
    links = {blame: count for blame, count in left.items() if blame.end is End.LINK}
    for blame, count in left.items():
        if blame.end is not End.LINK and count / votes.samples >= _LEAST_SHARE:
            yield _process(samples, blame, count / votes.samples, *votes.last[blame])
    yield from _links(samples, links, votes)


def _process(samples: Sequence[NicSample], blame: Blame, share: float, wait: Wait, late: Member | None) -> WaitFinding:
    if blame.end is End.ORDER:
        text = f"ranks {blame.rank} and {blame.peer} wait for each other in calls of two communicators"
        return WaitFinding(Kind.MISMATCHED_CALL, share, blame.rank, blame.ip, wait.call, f"rank {blame.rank}", (text,))
    waited = f"others have waited for it for {wait.age_s:.1f} s"
    if late is None:
        evidence = [waited, "its NIC has not been asked, or does not answer"]
    else:
        info = late.info
        evidence = [waited, f"its last request was {info.idle_s:.1f} s ago", _process_use(samples, late)]
    stopped = late is not None and late.info.state in ("T", "t")
    kind = Kind.STOPPED_PROCESS if stopped else Kind.LATE_RANK
    return WaitFinding(kind, share, blame.rank, blame.ip, wait.call, f"rank {blame.rank}", tuple(evidence))


def _process_use(samples: Sequence[NicSample], late: Member) -> str:
    """Describe what the process of a late rank does."""
    seen = [
        (answer.time, info.cpu_s)
        for sample in samples
        if (answer := sample.answers.get(late.nic)) is not None
        for info in answer.communicators
        if info.pid == late.info.pid
    ]
    text = f"its process {late.info.pid} is in state {late.info.state or '?'}"
    if len(seen) > 1 and seen[-1][0] > seen[0][0]:
        text += f" and used {(seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]):.0%} of a CPU"
    return text


def _links(samples: Sequence[NicSample], links: Mapping[Blame, float], votes: _Votes) -> Iterator[WaitFinding]:
    """Return the finding of one link, of all links out of a node, or of all into one."""
    if not links:
        return
    sums: defaultdict[tuple[_Node | None, _Node | None], float] = defaultdict(float)
    for blame, count in links.items():
        one, other = _nodes(blame)
        sums[one, other] += count
        sums[one, None] += count
        sums[None, other] += count
    single = max((ends for ends in sums if None not in ends), key=lambda ends: sums[ends])
    wide = max((ends for ends in sums if None in ends), key=lambda ends: sums[ends])
    ends = single if sums[single] >= 0.75 * sums[wide] else wide
    share = sums[ends] / votes.samples
    those = [
        blame for blame in links if all(end in (None, node) for end, node in zip(ends, _nodes(blame), strict=True))
    ]
    first = max(those, key=lambda blame: links[blame])
    sent, again, least_s, srtt_s = _counters(samples, those)
    evidence = [f"{again:,} of {sent:,} segments were sent again" if again else f"{sent:,} segments, none sent again"]
    if srtt_s:
        evidence.append(f"round trip {srtt_s * 1e3:.2g} ms, at the least {least_s * 1e3:.2g} ms")
    evidence.append(f"{share:.0%} of the time something waited for its bytes")
    lossy = again >= 3 and again >= _LOSS * sent
    if share < (_LEAST_SHARE if lossy else _LEAST_LINK_SHARE):
        return
    to = f"rank {first.peer}" if ends[1] is not None else "all ranks"
    where = f"{f'rank {first.rank}' if ends[0] is not None else 'all ranks'} to {to}"
    rank, ip = (first.rank, first.ip) if ends[0] is not None else (first.peer, first.peer_ip)
    kind = Kind.LOSSY_LINK if lossy else Kind.SLOW_LINK
    yield WaitFinding(kind, share, rank, ip, votes.last[first][0].call, where, tuple(evidence))


def _nodes(blame: Blame) -> tuple[_Node, _Node]:
    """Return the nodes at the ends of a link."""
    return blame.ip or blame.rank, blame.peer_ip or blame.peer


def _counters(samples: Sequence[NicSample], blames: Sequence[Blame]) -> tuple[int, int, float, float]:
    """Return frames sent and segments sent again during the samples, the least round trip, and the latest one."""
    first: dict[tuple[object, ...], RankLinkInfo] = {}
    last: dict[tuple[object, ...], RankLinkInfo] = {}
    wanted = {(blame.ip, blame.peer_ip) for blame in blames}
    for sample in samples:
        for answer in sample.answers.values():
            for info in answer.communicators:
                for link in info.links:
                    if (answer.ip, link.remote[0]) in wanted:
                        first.setdefault((link.local, link.remote), link)
                        last[link.local, link.remote] = link
    sent = sum(last[key].frames_sent - first[key].frames_sent for key in last)
    again = sum(last[key].retransmits - first[key].retransmits for key in last)
    if sent < 20:  # too few to tell: all since the connection began
        sent = sum(link.frames_sent for link in last.values())
        again = sum(link.retransmits for link in last.values())
    least = min((link.min_rtt_s for link in last.values() if link.min_rtt_s), default=0.0)
    return sent, again, least, median([link.srtt_s for link in last.values()] or [0.0])
