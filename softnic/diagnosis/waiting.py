"""Who is waited for in one sample: the ends of all chains of waiting.

Of the operations in progress of a communicator, the oldest one decides: the others come behind it. A rank that takes
part waits for a peer that has not announced the call, or for a block of a peer that has. The chain goes on where that
peer's block waits for a third rank's, and ends

- at a rank that has not posted the operation, or whose process still copies its contribution: it is late;
- at a link, with bytes on their way.

A late rank whose process has an operation in progress in another communicator waits there: that communicator's ends
count. If that leads back, the processes wait for each other, because they called in different orders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from softnic.diagnosis.samples import CommunicatorView, Member, NicSample, communicators
from softnic.ipc.collectives_info import RankLinkInfo

_MOST_ELSEWHERE = 64
"""Waits of one process that are looked at: it has one for each thread that waits."""


class End(Enum):
    """What a chain of waiting ends at."""

    RANK = "rank"
    LINK = "link"
    ORDER = "order"
    """Processes that wait for each other in two communicators."""


@dataclass(frozen=True)
class Blame:
    """An end of a chain of waiting. `peer` is the receiving end of a link, or the other process of an ORDER."""

    end: End
    rank: int
    ip: str
    peer: int = -1
    peer_ip: str = ""


@dataclass(frozen=True)
class Wait:
    """What a communicator waits for: the ends of all its chains."""

    call: str
    number: int
    age_s: float
    blames: tuple[Blame, ...]
    late: tuple[Member, ...] = ()
    """The late ranks whose NICs answered."""
    waiting: tuple[int, ...] = ()
    """Ranks with the operation in progress."""


def waits(sample: NicSample) -> list[Wait]:
    """Return what each communicator with operations in progress waits for."""
    views = communicators(sample)
    found = [(view, wait) for view in views if (wait := _wait(view)) is not None]
    waiting: defaultdict[tuple[str, int], list[tuple[CommunicatorView, Wait]]] = defaultdict(list)
    for view, wait in found:
        for rank in wait.waiting:
            waiting[view.members[rank].process].append((view, wait))
    return [_followed(view, wait, waiting) for view, wait in found]


def _wait(view: CommunicatorView) -> Wait | None:
    number = _oldest(view)
    if number is None:
        return None
    blames = tuple(dict.fromkeys(_ends(view, number)))
    late = {blame.rank for blame in blames if blame.end is End.RANK}
    members = view.members.values()
    return Wait(
        view.call(number),
        number,
        view.age_s(number),
        blames,
        tuple(member for member in members if member.info.rank in late),
        tuple(sorted(member.info.rank for member in members if member.has(number))),
    )


def _oldest(view: CommunicatorView) -> int | None:
    """Return the number of the operation that all others come behind; messages count where there are no collectives."""
    numbers = [operation.number for member in view.members.values() for operation in member.info.operations]
    return min((number for number in numbers if number > 0), default=max(numbers, default=None))


def _ends(view: CommunicatorView, number: int) -> Iterator[Blame]:
    for rank, member in view.members.items():
        if not member.has(number):
            continue
        for link in member.info.links:
            yield from _ends_of_link(view, member, link, number)
        left = next(operation.left for operation in member.info.operations if operation.number == number)
        for link in member.info.links if not left else ():
            if link.unacknowledged:  # all is done but for the acknowledgements
                yield Blame(End.LINK, rank, member.ip, link.rank, view.ip(link.rank))


def _ends_of_link(view: CommunicatorView, member: Member, link: RankLinkInfo, number: int) -> Iterator[Blame]:
    """Return where the chains end that begin with a wait of `member` for the rank at the other end of `link`."""
    rank, ip, peer = link.rank, view.ip(link.rank), view.members.get(link.rank)
    inward = Blame(End.LINK, rank, ip, member.info.rank, member.ip)
    if link.held_by == member.info.rank and link.sending == number:
        yield Blame(End.RANK, member.info.rank, member.ip)
    if 0 < link.expected <= number:
        announced = peer is not None and peer.info.posted >= number
        yield inward if announced else Blame(End.RANK, rank, ip)
    elif link.receiving == number:
        if number < 0 or peer is None:
            yield inward
            return
        theirs = peer.link(member.info.rank)
        if theirs is None:
            return
        is_held = theirs.sending == number and theirs.held_by >= 0
        if not is_held and (theirs.unacknowledged or 0 < theirs.sending <= number):
            yield inward


def _followed(
    view: CommunicatorView,
    wait: Wait,
    found: Mapping[tuple[str, int], Sequence[tuple[CommunicatorView, Wait]]],
) -> Wait:
    """Return a wait with the ends of other communicators in place of ranks that wait there.

    `found` has the waits of each process.
    """
    waiting = {view.members[rank].process: rank for rank in wait.waiting}
    blames: dict[Blame, None] = {}
    late: dict[tuple[str, int], Member] = {}
    for blame in wait.blames:
        member = view.members.get(blame.rank) if blame.end is End.RANK else None
        if member is None:
            blames[blame] = None
            continue
        ends = _elsewhere(member, view, found.get(member.process, ())[:_MOST_ELSEWHERE], waiting)
        if not ends:
            late[member.process] = member
        blames.update(dict.fromkeys(ends or (blame,)))
    return Wait(wait.call, wait.number, wait.age_s, tuple(blames), tuple(late.values()), wait.waiting)


def _elsewhere(
    member: Member,
    view: CommunicatorView,
    found: Sequence[tuple[CommunicatorView, Wait]],
    waiting: Mapping[tuple[str, int], int],
) -> tuple[Blame, ...]:
    """Return the ends of the communicator that a late rank's process waits in; none: it waits in no other one.

    `found` are its process's waits, `waiting` the processes that wait for it, with their ranks.
    """
    for other, wait in found:
        if other is view:
            continue
        for blame in wait.blames:
            theirs = other.members.get(blame.rank) if blame.end is End.RANK else None
            if theirs is not None and theirs.process in waiting:
                rank = waiting[theirs.process]
                return (Blame(End.ORDER, member.info.rank, member.ip, rank, view.ip(rank)),)
        ends = tuple(blame for blame in wait.blames if blame.ip != member.ip or blame.end is not End.RANK)
        if ends:
            return ends
    return ()
