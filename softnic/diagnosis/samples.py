"""Samples: the answers of all NICs at about one time, and the ranks in them that belong to one communicator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from softnic.ipc.collectives_info import CollectivesInfo, CommunicatorInfo, RankLinkInfo

Ports = tuple[tuple[str, int], tuple[str, int]]
Owned = TypeVar("Owned")


@dataclass(frozen=True)
class NicSample:
    """What the NICs answered to one question. `answers` has no NIC that did not answer in time."""

    answers: Mapping[str, CollectivesInfo]
    """By control socket."""
    reply_s: Mapping[str, float] = field(default_factory=dict)
    """How long each NIC took to answer; of one that has not answered yet, how long it has been asked for."""
    taken_at: float = 0.0
    """By this host's clock, in seconds since 1970."""


@dataclass(frozen=True)
class Member:
    """A rank of a communicator, as its NIC sees it."""

    nic: str
    """Control socket."""
    ip: str
    info: CommunicatorInfo

    @cached_property
    def _links(self) -> Mapping[int, RankLinkInfo]:
        return {link.rank: link for link in reversed(self.info.links)}

    @property
    def process(self) -> tuple[str, int]:
        """What identifies the process of the rank."""
        return self.nic, self.info.pid

    def link(self, rank: int) -> RankLinkInfo | None:
        """What it exchanges with another rank; None: nothing yet."""
        return self._links.get(rank)

    def has(self, number: int) -> bool:
        """Whether an operation is in progress here."""
        return any(operation.number == number for operation in self.info.operations)


@dataclass(frozen=True)
class CommunicatorView:
    """The ranks of one communicator whose NICs answered, by rank."""

    members: Mapping[int, Member]

    @property
    def processes(self) -> set[tuple[str, int]]:
        return {member.process for member in self.members.values()}

    def ip(self, rank: int) -> str:
        """Address of a rank's node; empty: not known."""
        if (member := self.members.get(rank)) is not None:
            return member.ip
        return self._remote_ips.get(rank, "")

    @cached_property
    def _remote_ips(self) -> Mapping[int, str]:
        """By rank, the address that the first other rank with a link to it knows."""
        found: dict[int, str] = {}
        for member in self.members.values():
            for link in member.info.links:
                found.setdefault(link.rank, link.remote[0])
        return found

    def call(self, number: int) -> str:
        """The call of an operation, as a rank posted it."""
        calls = {each.number: each.call for member in self.members.values() for each in member.info.operations}
        return calls.get(number, "")

    def age_s(self, number: int) -> float:
        """For how long the first rank has waited in an operation."""
        ages = (
            each.age_s for member in self.members.values() for each in member.info.operations if each.number == number
        )
        return max(ages, default=0.0)


def communicators(sample: NicSample) -> list[CommunicatorView]:
    """Return the communicators of a sample. Their ranks find each other by the ports of their streams."""
    members = [Member(nic, answer.ip, info) for nic, answer in sample.answers.items() for info in answer.communicators]
    groups = joined((member, [(link.local, link.remote) for link in member.info.links]) for member in members)
    return [CommunicatorView({member.info.rank: member for member in group}) for group in groups]


def joined(owners: Iterable[tuple[Owned, Sequence[Ports]]]) -> list[list[Owned]]:
    """Return the owners in groups: two are in one if a stream goes from one to the other."""
    group_of: dict[Ports, list[Owned]] = {}
    ports_of: dict[int, list[Ports]] = {}
    """By the identity of a group, its streams."""
    groups: dict[int, list[Owned]] = {}
    for owner, ports in owners:
        group = [owner]
        groups[id(group)], ports_of[id(group)] = group, []
        for pair in ports:
            key = min(pair, pair[::-1])
            other = group_of.get(key)
            if other is None:
                group_of[key] = group
                ports_of[id(group)].append(key)
            elif other is not group:
                small, group = sorted((group, other), key=lambda each: len(ports_of[id(each)]) + len(each))
                group += small
                for moved in ports_of[id(small)]:
                    group_of[moved] = group
                ports_of[id(group)] += ports_of.pop(id(small))
                del groups[id(small)]
    return list(groups.values())
