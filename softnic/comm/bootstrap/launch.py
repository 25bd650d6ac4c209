"""Which rank of how many this process is, and where the ranks are: read from the environment.

The first launcher in this order that has set its rank wins, and `Launch.source` says which one it was:

1. SOFTNIC_RANK, SOFTNIC_WORLD_SIZE (`softnic run`, `softnic.Cluster`)
2. RANK, WORLD_SIZE (torchrun)
3. OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE (Open MPI's mpirun)
4. PMI_RANK, PMI_SIZE (MPICH, Intel MPI)
5. SLURM_PROCID, SLURM_NTASKS (srun)

None of them: one rank, alone.

Where SOFTNIC_NIC is set, rank r is at 10.77.0.(r+1), unless SOFTNIC_PEERS lists an address for every rank
("10.1.0.1,10.1.0.2"); SOFTNIC_IP is this rank's own address and must be the one that the list or the rule says.
Rank r listens at port SOFTNIC_PORT (29477) + r. Where SOFTNIC_NIC is not set, NICs start by themselves, and the ranks
find each other as finding.py says.

SOFTNIC_RENDEZVOUS_TIMEOUT (60) is how many seconds ranks wait for one whose process they cannot see (presence.py).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from softnic.comm.errors import LaunchError

LAUNCHERS = (
    ("softnic", "SOFTNIC_RANK", "SOFTNIC_WORLD_SIZE"),
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI", "PMI_RANK", "PMI_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
)
DEFAULT_PORT = 29477
DEFAULT_TIMEOUT_S = 60.0
NOWHERE = ("", 0)
"""Where a rank is, as long as nobody knows."""
_FIRST_ADDRESS = ipaddress.IPv4Address("10.77.0.1")
_MAX_SIZE = 65534
"""Ranks that the default /16 has addresses for."""


@dataclass(frozen=True)
class Launch:
    """This rank, and the address that every rank listens at, in rank order."""

    rank: int
    addresses: tuple[tuple[str, int], ...]
    source: str
    timeout_s: float = DEFAULT_TIMEOUT_S
    found: str = "addresses that the environment says"
    """How the ranks find each other, for people (finding.py)."""

    @property
    def size(self) -> int:
        return len(self.addresses)


def from_environment(environment: Mapping[str, str]) -> Launch:
    """Reads the variables above. Raises LaunchError, naming the variable, where they contradict each other."""
    rank, size, source = _rank_and_size(environment)
    port = _integer(environment, "SOFTNIC_PORT", DEFAULT_PORT)
    if not 1 <= port <= 65536 - size:
        raise LaunchError(f"SOFTNIC_PORT={port} leaves no valid port for each of {size} ranks")
    hosts = _hosts(environment, size)
    own = environment.get("SOFTNIC_IP", "").strip()
    if own and size > 1 and own != hosts[rank]:
        raise LaunchError(f"SOFTNIC_IP={own}, but rank {rank} is at {hosts[rank]}: set SOFTNIC_PEERS to every rank's")
    addresses = tuple((host, port + index) for index, host in enumerate(hosts))
    return Launch(rank, addresses, source, _seconds(environment, "SOFTNIC_RENDEZVOUS_TIMEOUT", DEFAULT_TIMEOUT_S))


def _rank_and_size(environment: Mapping[str, str]) -> tuple[int, int, str]:
    for source, rank_name, size_name in LAUNCHERS:
        if rank_name not in environment:
            continue
        if size_name not in environment:
            raise LaunchError(f"{rank_name} is set and {size_name} is not")
        rank, size = _integer(environment, rank_name, 0), _integer(environment, size_name, 0)
        if not 0 <= rank < size <= _MAX_SIZE:
            raise LaunchError(f"{rank_name}={rank} and {size_name}={size}: a rank is 0 or more and less than the size")
        return rank, size, source
    return 0, 1, "none"


def _hosts(environment: Mapping[str, str], size: int) -> list[str]:
    peers = environment.get("SOFTNIC_PEERS", "").strip()
    if not peers:
        return [str(_FIRST_ADDRESS + index) for index in range(size)]
    hosts = [host.strip() for host in peers.split(",")]
    if len(hosts) != size:
        raise LaunchError(f"SOFTNIC_PEERS has {len(hosts)} addresses for {size} ranks")
    for host in hosts:
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise LaunchError(f"SOFTNIC_PEERS: {host!r} is no IPv4 address") from None
    return hosts


def _integer(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text and name not in environment:
        return default
    try:
        return int(text)
    except ValueError:
        raise LaunchError(f"{name}={text!r} is no integer") from None


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise LaunchError(f"{name}={text!r} is no number of seconds")
    return value
