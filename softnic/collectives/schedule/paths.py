"""What schedules make of links that differ: blocks by the rates of ranks, and sites by the delays between them.

Each rank reports what its NIC has measured (`PathReport`). From the reports of all, every rank computes the same
`PathPlan`, so all choose alike. On a LAN of equal hosts there is nothing to plan, and blocks are even.

- **Sites.** Two ranks are in one site if the least round trip between them is under 5 ms, or if each is in one site
  with a third rank. Sites count where the longest round trip is four times as long as any within a site.
- **Shares.** In `direct`, rank i of n with the share s_i of the buffer sends 1 + (n - 2) s_i of it: all but its share
  once, and its share to n - 1 others. The shares that make the slowest rank as fast as possible, at rates b_i, solve a
  linear program: with T the time at which all end, s_i = (T b_i - 1) / (n - 2) or 0, and their sum is 1 (`shares`).
  Between K sites the same holds for sites; within one, shares are as the rates of its members.
- **Long paths.** A ring of blocks that take less time than the path delays them waits in each of its steps; `direct`
  does not (`PathPlan.delay_bytes`).

A plan replaces another one only if that takes a fifth longer than the best would: measurements vary, and with the
plan the order of additions changes. For the same reason rates that are near the median or above it count as that, and
lower ones are rounded to quarters of an octave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from softnic.collectives.schedule import sites
from softnic.collectives.schedule.sites import Site
from softnic.collectives.schedule.steps import UNIT

LARGE_BYTES = 1 << 20
"""All-reduces from here on are worth a plan, and measure what it is made of."""
SITE_RTT_S = 0.005
"""Shorter least round trips are within a site. BBR begins at the same (softnic/tcp/auto.py)."""
_FAR = 4.0
"""How much longer than any round trip within a site the longest one is, at least, if sites count."""
_WORTH = 1.2
"""By how much the present plan takes longer than the best before that replaces it."""
_ALIKE = 0.6
"""Part of the median: rates from there on count as the same. Short calls measure too little."""
_SPEAKS = 0.5
"""A member with less than this part of its site's highest rate does not speak for it in others' blocks."""
PARTS = 1024
"""Shares are multiples of its inverse."""


class PathReport(NamedTuple):
    """What one rank's NIC has measured."""

    rate: float
    """Of its link, to all ranks together, in bytes per second; 0: not known."""
    rtts: tuple[float, ...]
    """Least round trip to each rank, in seconds; 0: to itself, or not known."""


@dataclass(frozen=True, slots=True)
class PathPlan:
    """What ranks have agreed on. The default is for links that are alike."""

    shares: tuple[int, ...] = ()
    """Of each rank, in PARTS; empty: all have the same."""
    sites: str = ""
    """Parameter of the algorithm `sites`; empty: there is one site."""
    delay_bytes: int = 0
    """What a link carries while a byte is on its way to another rank: a power of 2, or 0."""

    def blocks(self, count: int) -> tuple[int, ...]:
        """Return the elements of each rank's block of `count`: multiples of UNIT, but for the last one."""
        units, done, passed = -(-count // UNIT), 0, 0
        found = []
        for share in self.shares:
            passed += share
            end = min(count, UNIT * (units * passed // PARTS))
            found.append(end - done)
            done = end
        return tuple(found)

    def __str__(self) -> str:
        parts = [f"sites {self.sites}"] if self.sites else []
        if self.shares:
            parts.append("shares " + " ".join(f"{100 * share / PARTS:.3g}%" for share in self.shares))
        return ", ".join(parts) or "even"


EVEN = PathPlan()


def plan(reports: Sequence[PathReport], present: PathPlan = EVEN) -> PathPlan:
    """Return the plan for what the ranks have reported, in the order of ranks; `present` if that is nearly as good."""
    size = len(reports)
    if size < 3:
        return EVEN
    groups = _groups(reports)
    rates = _rates(reports)
    found = _sites(groups, rates) if len(groups) > 1 else ()
    named = sites.text(found) if found else ""
    best = _shares_by_sites(found, rates) if found else shares(rates)
    even = tuple(1 / size for _ in rates)
    now = tuple(share / PARTS for share in present.shares) or even
    if named == present.sites and _time(now, found, rates) <= _WORTH * _time(best, found, rates):
        chosen = present.shares
    elif _time(even, found, rates) <= _WORTH * _time(best, found, rates):
        chosen = ()
    else:
        chosen = _in_parts(best)
    return PathPlan(chosen, named, _delay_bytes(reports))


def shares(rates: Sequence[float]) -> tuple[float, ...]:
    """Return the share of each rank that makes `direct` fastest, three ranks or more. Their sum is 1.

    Ranks are left out as long as they would have less than nothing: they send the buffer once, whatever the others do.
    """
    size, active = len(rates), set(range(len(rates)))
    while True:
        time = (size - 2 + len(active)) / sum(rates[rank] for rank in active)
        without = {rank for rank in active if time * rates[rank] < 1}
        if not without:
            break
        active -= without
    return tuple((time * rate - 1) / (size - 2) if rank in active else 0.0 for rank, rate in enumerate(rates))


def time_of(parts: Sequence[float], rates: Sequence[float]) -> float:
    """Return how long `direct` takes with these shares, for a buffer that takes a second at the rate 1."""
    size = len(rates)
    return max((1 + (size - 2) * share) / rate for share, rate in zip(parts, rates, strict=True))


def _time(parts: Sequence[float], found: Sequence[Site], rates: Sequence[float]) -> float:
    if not found:
        return time_of(parts, rates)
    times = []
    for site in found:
        passed_on = (1 - sum(parts[rank] for rank in site.members)) / len(site.speakers)
        for rank in site.members:
            sent = (len(found) - 1) * parts[rank] + (passed_on if rank in site.speakers else 0.0)
            times.append(sent / rates[rank])
    return max(times)


def _groups(reports: Sequence[PathReport]) -> list[list[int]]:
    """Return the ranks of each site, the site of rank 0 first; all in one if sites do not count."""
    size = len(reports)
    rtts = [[max(reports[one].rtts[other], reports[other].rtts[one]) for other in range(size)] for one in range(size)]
    home = list(range(size))
    for one in range(size):
        for other in range(one):
            if rtts[one][other] < SITE_RTT_S and home[one] != home[other]:
                old, new = max(home[one], home[other]), min(home[one], home[other])
                home = [new if each == old else each for each in home]
    groups = [[rank for rank in range(size) if home[rank] == first] for first in sorted(set(home))]
    within = max((rtts[one][other] for group in groups for one in group for other in group), default=0.0)
    longest = max(map(max, rtts))
    apart = 1 < len(groups) < size and longest >= _FAR * within
    return groups if apart else [list(range(size))]


def _rates(reports: Sequence[PathReport]) -> list[float]:
    """Return the rates as parts of their median, 1 at most; those that are not known as 1."""
    known = [report.rate for report in reports if report.rate]
    usual = median(known) if known else 1.0
    return [_rounded(report.rate / usual) if report.rate else 1.0 for report in reports]


def _rounded(part: float) -> float:
    return 1.0 if part >= _ALIKE else float(2.0 ** (round(4 * math.log2(part)) / 4))


def _sites(groups: Sequence[Sequence[int]], rates: Sequence[float]) -> tuple[Site, ...]:
    found = []
    for group in groups:
        highest = max(rates[rank] for rank in group)
        found.append(Site(tuple(group), tuple(rank for rank in group if rates[rank] >= _SPEAKS * highest)))
    return tuple(found)


def _shares_by_sites(found: Sequence[Site], rates: Sequence[float]) -> tuple[float, ...]:
    """Return the share of each rank: those of sites by their rates, and within a site those of its speakers."""
    of_sites = [sum(rates[rank] for rank in site.speakers) for site in found]
    total = sum(of_sites)
    parts = shares(of_sites) if len(found) > 2 else tuple(rate / total for rate in of_sites)
    by_rank = dict.fromkeys(range(len(rates)), 0.0)
    for site, share, rate in zip(found, parts, of_sites, strict=True):
        by_rank.update({rank: share * rates[rank] / rate for rank in site.speakers})
    return tuple(by_rank.values())


def _in_parts(parts: Sequence[float]) -> tuple[int, ...]:
    """Return shares in PARTS, which they add up to."""
    ends, passed = [], 0.0
    for share in parts:
        passed += share
        ends.append(round(PARTS * passed))
    ends[-1] = PARTS
    return tuple(end - begin for begin, end in zip([0, *ends], ends, strict=False))


def _delay_bytes(reports: Sequence[PathReport]) -> int:
    """Return rate times delay: of the slowest link that is known, and half the longest round trip."""
    known = [report.rate for report in reports if report.rate]
    longest = max(max(report.rtts) for report in reports)
    carried = min(known) * longest / 2 if known else 0.0
    return 1 << round(math.log2(carried)) if carried >= 1 else 0
