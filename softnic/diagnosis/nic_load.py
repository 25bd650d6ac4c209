"""NICs that are short of CPU time: they answer late, or wait for a CPU, more than the others of the same run."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from softnic.diagnosis.samples import NicSample
from softnic.ipc.collectives_info import CollectivesInfo

_LATE_REPLY_S = 0.03
_TIMES = 4.0
"""By which a NIC's figure exceeds the median of the others."""
_WAITED = 0.5
"""Share of the time that a NIC waited for a CPU."""


def busy_nics(samples: Sequence[NicSample]) -> Mapping[str, list[str]]:
    """Return the evidence for each NIC that is short of CPU time, by its address."""
    replies, waited, ips = _figures(samples)
    by_reply, by_wait = sorted(replies.values()), sorted(waited.values())
    found: dict[str, list[str]] = {}
    for nic, ip in ips.items():
        evidence = []
        if _stands_out(replies.get(nic, 0.0), by_reply, _LATE_REPLY_S):
            evidence.append(f"the NIC takes {replies[nic] * 1e3:.0f} ms to answer")
        if _stands_out(waited.get(nic, 0.0), by_wait, _WAITED, times=2.5):
            evidence.append(f"the NIC waited for a CPU for {waited[nic]:.0%} of the time")
        if evidence:
            found[ip] = evidence
    return found


def _figures(samples: Sequence[NicSample]) -> tuple[dict[str, float], dict[str, float], dict[str, str]]:
    """Return median reply times, shares of time waited for a CPU, and addresses, by control socket."""
    replies: dict[str, float] = {}
    waited: dict[str, float] = {}
    ips: dict[str, str] = {}
    took: defaultdict[str, list[float]] = defaultdict(list)
    answers: defaultdict[str, list[CollectivesInfo]] = defaultdict(list)
    for sample in samples:
        for nic, reply_s in sample.reply_s.items():
            took[nic].append(reply_s)
        for nic, answer in sample.answers.items():
            answers[nic].append(answer)
    for nic, times in took.items():
        replies[nic] = median(times)
        if theirs := answers[nic]:
            ips[nic] = theirs[-1].ip
            passed = theirs[-1].time - theirs[0].time
            waited[nic] = (theirs[-1].waited_s - theirs[0].waited_s) / passed if passed > 0 else 0.0
    return replies, waited, ips


def _stands_out(own: float, figures: Sequence[float], least: float, times: float = _TIMES) -> bool:
    """Return whether one of these figures, which are in order, exceeds the median of the others."""
    if own < least:
        return False
    at, count = bisect_left(figures, own), len(figures) - 1
    middle = [figures[index + (index >= at)] for index in {(count - 1) // 2, count // 2}] if count else [0.0]
    return own >= times * median(middle)
