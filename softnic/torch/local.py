"""The ranks of a host in a process group, and how they exchange the shares of their sums (local_sum.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from softnic.torch import local_memory, local_nccl
from softnic.torch.encoded import Steps
from softnic.torch.exchange import Place
from softnic.torch.exec_context import ExecContext
from softnic.torch.hosts import Hosts, RankPlace, have_own_gpus

CONNECT_S = 60.0
"""Time limit for the ranks of a host to connect, unless the timeout of the group is shorter."""


class ShareExchange(Protocol):
    """Copies tensors among the ranks of a host: flat ones, in the order of the ranks."""

    numbers: int
    """Of the context (exec_context.py), that a sum takes for both."""

    def scatter(self, context: ExecContext, number: int, source: torch.Tensor, target: torch.Tensor) -> Steps:
        """Give every rank its part of each rank's `source`.

        `number` is the first one of the sum. All ranks make the first step in the order of their sums.
        """

    def gather(self, context: ExecContext, number: int, source: torch.Tensor, target: torch.Tensor) -> Steps:
        """Give every rank each rank's `source`, after `scatter` of this sum."""

    def close(self) -> None:
        """Free what is used, when the process group ends."""


class LocalGroup:
    """The ranks of this host, by the hosts of a process group."""

    def __init__(self, hosts: Hosts, rank: int, shares: ShareExchange) -> None:
        self.hosts = hosts
        self.ranks = host_of(hosts, rank)
        self.listed = ", ".join(map(str, self.ranks))
        place = self.ranks.index(rank)
        self.across: Place = hosts.index(self.ranks), [ranks[place] for ranks in hosts]
        """The ranks with the same share, one of each host."""
        self.shares = shares


def host_of(hosts: Hosts, rank: int) -> tuple[int, ...]:
    """Return the ranks of the host that a rank is on."""
    return next(ranks for ranks in hosts if rank in ranks)


def connect(
    store: Any, hosts: Hosts, rank: int, places: Sequence[RankPlace], device: torch.device, limit_s: float
) -> LocalGroup:
    """Connect the ranks of this host. All of them call this. Raises CommError."""
    ranks = host_of(hosts, rank)
    place, theirs = ranks.index(rank), [places[each] for each in ranks]
    shares: ShareExchange
    if have_own_gpus(theirs):
        shares = local_nccl.connect(store, ranks, place, theirs[0].token, device, limit_s)
    else:
        shares = local_memory.connect(ranks, place, theirs, device)
    return LocalGroup(hosts, rank, shares)
