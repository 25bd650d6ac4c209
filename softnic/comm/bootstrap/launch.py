"""Rank, number of ranks and addresses of this process, read from the environment.

The first launcher of `LAUNCHERS` that has set its rank wins; `Launch.source` names it. Without any, the process is the
only rank.

Where SOFTNIC_NIC is set, rank r is at 10.77.0.(r+1), unless SOFTNIC_PEERS lists an address for every rank
("10.1.0.1,10.1.0.2"). SOFTNIC_IP, the address of this rank, must agree. Rank r listens at port SOFTNIC_PORT (29477) +
r. Where SOFTNIC_NIC is not set, NICs are started and the ranks discover each other (discovery.py).

SOFTNIC_RENDEZVOUS_TIMEOUT (60) is the time in seconds for a rank whose process is not visible (presence.py).
SOFTNIC_JOB_SECRET, the same text for all ranks, keeps others out of the job (store.py, store_exchange.py, mesh.py).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from softnic.cluster.nic_process import node_ip
from softnic.comm.errors import LaunchError

SECRET_VARIABLE = "SOFTNIC_JOB_SECRET"
ATTEMPT_VARIABLE = "TORCHELASTIC_RESTART_COUNT"


class Launcher(NamedTuple):
    """The environment variables of a launcher."""

    name: str
    rank: str
    size: str
    job: tuple[str, ...]
    """Identify a job among those of this launcher."""
    ranks_here: str = ""
    """The number of ranks on this host."""
    local_rank: str = ""


LAUNCHERS = (
    Launcher("softnic", "SOFTNIC_RANK", "SOFTNIC_WORLD_SIZE", ("MASTER_ADDR", "MASTER_PORT")),
    Launcher(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", ATTEMPT_VARIABLE),
        "LOCAL_WORLD_SIZE",
        "LOCAL_RANK",
    ),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    Launcher(
        "PMI",
        "PMI_RANK",
        "PMI_SIZE",
        ("PMI_JOBID", "PMI_ID_JOB", "MASTER_ADDR", "MASTER_PORT"),
        "MPI_LOCALNRANKS",
        "MPI_LOCALRANKID",
    ),
    Launcher("Slurm", "SLURM_PROCID", "SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID"), "", "SLURM_LOCALID"),
)
"""In order of precedence. softnic is `softnic run` and `softnic.Cluster`, PMI is MPICH and Intel MPI."""
DEFAULT_PORT = 29477
DEFAULT_TIMEOUT_S = 60.0
NOWHERE = ("", 0)
"""Address of a rank that has not been discovered."""
_MAX_SIZE = 65534
"""Addresses of the default /16."""


@dataclass(frozen=True)
class Launch:
    """This rank, and the address at which each rank listens, in rank order."""

    rank: int
    addresses: tuple[tuple[str, int], ...]
    source: str
    """Name of the launcher."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    found: str = "addresses of the environment"
    """Description of how the ranks were discovered (discovery.py)."""
    secret: bytes = field(default=b"", repr=False)
    """What only processes of this job know; empty: everybody who reaches them is taken for one of them."""
    epoch: str = ""
    """Random name of this start of the ranks, which no other start has; empty: they did not agree on one."""

    @property
    def size(self) -> int:
        return len(self.addresses)

    @property
    def launcher(self) -> Launcher | None:
        """None if no launcher started this process."""
        return next((launcher for launcher in LAUNCHERS if launcher.name == self.source), None)


def from_environment(environment: Mapping[str, str]) -> Launch:
    """Read the variables above.

    Raises
    ------
    LaunchError
        If they contradict each other; the error names the variable.
    """
    rank, size, source = _rank_and_size(environment)
    port = _integer(environment, "SOFTNIC_PORT", DEFAULT_PORT)
    if not 1 <= port <= 65536 - size:
        raise LaunchError(f"SOFTNIC_PORT={port} leaves no valid port for each of {size} ranks")
    hosts = _hosts(environment, size)
    own = environment.get("SOFTNIC_IP", "").strip()
    if own and size > 1 and own != hosts[rank]:
        raise LaunchError(f"SOFTNIC_IP={own}, but rank {rank} is at {hosts[rank]}: set SOFTNIC_PEERS to every rank's")
    addresses = tuple((host, port + index) for index, host in enumerate(hosts))
    timeout_s = _seconds(environment, "SOFTNIC_RENDEZVOUS_TIMEOUT", DEFAULT_TIMEOUT_S)
    return Launch(rank, addresses, source, timeout_s, secret=job_secret(environment))


def job_secret(environment: Mapping[str, str]) -> bytes:
    """Return the secret of the job; empty: none was given."""
    return environment.get(SECRET_VARIABLE, "").strip().encode()


def ranks_here(environment: Mapping[str, str]) -> int:
    """Return the number of ranks on this host, as far as the launcher says it; 1 else."""
    for launcher in LAUNCHERS:
        text = environment.get(launcher.ranks_here, "").strip()
        if text.isascii() and text.isdecimal() and int(text):
            return int(text)
    return 1


def local_rank(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the rank among those of this host, and their number, from a launcher that says both; None without one."""
    for launcher in LAUNCHERS:
        texts = [environment.get(name, "").strip() for name in (launcher.local_rank, launcher.ranks_here)]
        if all(text.isascii() and text.isdecimal() for text in texts) and int(texts[0]) < int(texts[1]):
            return int(texts[0]), int(texts[1])
    return None


def _rank_and_size(environment: Mapping[str, str]) -> tuple[int, int, str]:
    for launcher in LAUNCHERS:
        if launcher.rank not in environment:
            continue
        if launcher.size not in environment:
            raise LaunchError(f"{launcher.rank} is set and {launcher.size} is not")
        rank, size = _integer(environment, launcher.rank, 0), _integer(environment, launcher.size, 0)
        if not 0 <= rank < size <= _MAX_SIZE:
            text = f"{launcher.rank}={rank} and {launcher.size}={size}"
            raise LaunchError(f"{text}: a rank is 0 or more and less than the size, which is at most {_MAX_SIZE}")
        return rank, size, launcher.name
    return 0, 1, "none"


def _hosts(environment: Mapping[str, str], size: int) -> list[str]:
    peers = environment.get("SOFTNIC_PEERS", "").strip()
    if not peers:
        return [node_ip(node) for node in range(size)]
    hosts = [host.strip() for host in peers.split(",")]
    if len(hosts) != size:
        raise LaunchError(f"SOFTNIC_PEERS has {len(hosts)} addresses for {size} ranks")
    for host in hosts:
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise LaunchError(f"SOFTNIC_PEERS: {host!r} is not an IPv4 address") from None
    return hosts


def _integer(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text and name not in environment:
        return default
    try:
        return int(text)
    except ValueError:
        raise LaunchError(f"{name}={text!r} is not an integer") from None


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise LaunchError(f"{name}={text!r} is not a number of seconds")
    return value
