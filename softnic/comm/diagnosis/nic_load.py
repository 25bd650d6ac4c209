"""NICs that are short of CPU time: they answer late, or wait for a CPU, more than the others of the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from softnic.comm.diagnosis.samples import NicSample

_LATE_REPLY_S = 0.03
_TIMES = 4.0
"""By which a NIC's figure exceeds the median of the others."""
_WAITED = 0.5
"""Share of the time that a NIC waited for a CPU."""


def busy_nics(samples: Sequence[NicSample]) -> Mapping[str, list[str]]:
    """Return the evidence for each NIC that is short of CPU time, by its address."""
    replies, waited, ips = _figures(samples)
    found: dict[str, list[str]] = {}
    for nic, ip in ips.items():
        evidence = []
        if _stands_out(nic, replies, _LATE_REPLY_S):
            evidence.append(f"the NIC takes {replies[nic] * 1e3:.0f} ms to answer")
        if _stands_out(nic, waited, _WAITED, times=2.5):
            evidence.append(f"the NIC waited for a CPU for {waited[nic]:.0%} of the time")
        if evidence:
            found[ip] = evidence
    return found


def _figures(samples: Sequence[NicSample]) -> tuple[dict[str, float], dict[str, float], dict[str, str]]:
    """Return median reply times, shares of time waited for a CPU, and addresses, by control socket."""
    replies: dict[str, float] = {}
    waited: dict[str, float] = {}
    ips: dict[str, str] = {}
    for nic in {nic for sample in samples for nic in sample.reply_s}:
        replies[nic] = median([sample.reply_s[nic] for sample in samples if nic in sample.reply_s])
        answers = [sample.answers[nic] for sample in samples if nic in sample.answers]
        if answers:
            ips[nic] = answers[-1].ip
            passed = answers[-1].time - answers[0].time
            waited[nic] = (answers[-1].waited_s - answers[0].waited_s) / passed if passed > 0 else 0.0
    return replies, waited, ips


def _stands_out(nic: str, figures: Mapping[str, float], least: float, times: float = _TIMES) -> bool:
    others = [figure for other, figure in figures.items() if other != nic]
    own = figures.get(nic, 0.0)
    return own >= least and own >= times * median(others or [0.0])
