"""Sites: groups of ranks that are close together, as `sites:0-1/2-4/5-6+9(7-8)`. Between two sites a block moves once.

Blocks go straight to one member of each site, as in `direct`, and from these to their owner; and the same way back. So
between sites, where a path is long or slow, each site sends what one rank would, spread over its members: a buffer of
S bytes costs a site of K sites S + (K - 2) times its own blocks. Ranks in parentheses speak for their site in no block
but their own: their links are slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from softnic.collectives.schedule.steps import RecvBlock, Schedule, SendBlock, Step, mirrored, to_root, with_last

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


class Site(NamedTuple):
    members: tuple[int, ...]
    speakers: tuple[int, ...]
    """Those that speak for the site in other ranks' blocks."""

    def speaker(self, block: int) -> int:
        """Return the member that other sites exchange rank `block`'s block with."""
        return block if block in self.members else self.speakers[block % len(self.speakers)]


def text(sites: Sequence[Site]) -> str:
    """Return sites as the parameter of the algorithm."""
    return "/".join(_ranges(site.speakers) + _silent_text(site) for site in sites)


def _silent_text(site: Site) -> str:
    silent = [rank for rank in site.members if rank not in site.speakers]
    return f"({_ranges(silent)})" if silent else ""


def _ranges(ranks: Sequence[int]) -> str:
    found: list[list[int]] = []
    for rank in ranks:
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return "+".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


@lru_cache(maxsize=64)
def parse(parameter: str, size: int) -> tuple[Site, ...]:
    """Return the sites of a parameter. Raises ValueError unless each of `size` ranks is in one of two sites or more."""
    sites = []
    for part in parameter.split("/"):
        speaking, opened, rest = part.partition("(")
        if opened and not rest.endswith(")"):
            raise ValueError(f"sites:{parameter} has no ) where one is needed")
        speakers = tuple(_ranks(speaking, size))
        silent = tuple(_ranks(rest[:-1], size)) if opened else ()
        sites.append(Site(tuple(sorted(speakers + silent)), speakers))
    if len(sites) < 2 or sorted(rank for site in sites for rank in site.members) != list(range(size)):
        raise ValueError(f"sites:{parameter} does not place each of {size} ranks in one of several sites")
    return tuple(sites)


def _ranks(ranges: str, size: int) -> Iterator[int]:
    for each in ranges.split("+"):
        match = _RANGE.fullmatch(each)
        if match is None:
            raise ValueError(f"{each!r} is not a range of ranks, as in sites:0-1/2-4")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= size:
            raise ValueError(f"there is no rank {last} among {size}")
        yield from range(first, last + 1)


def reduce_scatter(rank: int, size: int, sites: str) -> Schedule:
    """Brings block r to rank r.

    1. In each site, every member sends a block to the one that speaks for the site in it.
    2. Those of other sites send what they have to the owner.
    """
    found = parse(sites, size)
    home = next(place for place, site in enumerate(found) if rank in site.members)
    steps: list[tuple[int, int, int, Step]] = []
    """With phase, distance, and block: an order that all ranks share."""
    for block in range(size):
        speakers = [site.speaker(block) for site in found]
        members, own = found[home].members, found[home].speaker(block)
        steps += ((1, *each) for each in _to_one(rank, members, own, block))
        if rank == own:
            steps += ((2, *each) for each in _to_one(rank, speakers, block, block))
    return with_last([step for *_, step in sorted(steps, key=lambda each: each[:3])], rank)


def _to_one(rank: int, senders: Sequence[int], target: int, block: int) -> Iterator[tuple[int, int, Step]]:
    """What a rank has to do so that `senders` send a block to one of them; with their distance, and the block."""
    size, place = len(senders), senders.index(target)
    if rank != target:
        yield (place - senders.index(rank)) % size, block, SendBlock(target, block)
        return
    for distance in range(1, size):
        yield distance, block, RecvBlock(senders[(place - distance) % size], block, combine=True)


def allgather(rank: int, size: int, sites: str) -> Schedule:
    """The same way back: from the owner to the speakers, and from each to its site."""
    return mirrored(reduce_scatter(rank, size, sites))


def allreduce(rank: int, size: int, sites: str) -> Schedule:
    return reduce_scatter(rank, size, sites) + allgather(rank, size, sites)


def reduce(rank: int, size: int, root: int, sites: str) -> Schedule:
    """The bits of `allreduce`, for the root alone."""
    return reduce_scatter(rank, size, sites) + to_root(rank, size, root)


def bcast(rank: int, size: int, root: int, sites: str) -> Schedule:
    """The root sends the one block there is to its own site, and to one member of each other site, which does too."""
    found = parse(sites, size)
    first = [root if root in site.members else site.speakers[0] for site in found]
    home = next(place for place, site in enumerate(found) if rank in site.members)
    if rank != first[home]:
        return (RecvBlock(first[home], 0),)
    others = first if rank == root else ()
    steps: list[Step] = [] if rank == root else [RecvBlock(root, 0)]
    steps += [SendBlock(other, 0) for other in (*others, *found[home].members) if other != rank]
    return tuple(steps)
