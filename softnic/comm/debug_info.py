"""SOFTNIC_DEBUG=info: what a communicator runs on, in one line a rank, as NCCL_DEBUG prints it.

The line is printed on standard error when the ranks have joined, which a process group of torch and a subcommunicator
do too. `warn`, the default, prints nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from softnic import codecs
from softnic.collectives import schedule
from softnic.ipc.control import NicInfo

VARIABLE = "SOFTNIC_DEBUG"
LEVELS = ("warn", "info")
MAX_PEERS = 8
"""Ranks whose addresses are named."""
_SIZES = tuple(1 << power for power in range(10, 30))
"""Bytes of the buffers whose algorithms are named."""
_warned: set[str] = set()
"""Values of the variable that this process has warned of."""


@dataclass(frozen=True)
class RankDescription:
    """One rank of a communicator that is about to be used."""

    rank: int
    size: int
    launcher: str
    """Who says which rank this is, as in `torchrun`."""
    peers: Mapping[int, str]
    """Addresses of the other ranks."""
    nic: NicInfo | None
    """None: a rank that is alone uses no NIC."""
    control: str
    """The NIC's control socket."""
    codec: str
    """Of compressed calls that name none."""


def level(environment: Mapping[str, str]) -> str:
    """Return the level that the environment asks for. An unknown one is warned of once, and is `warn`."""
    given = environment.get(VARIABLE, "")
    if not given or given.lower() in LEVELS:
        return given.lower() or "warn"
    if given not in _warned:
        _warned.add(given)
        print(f"softnic: {VARIABLE}={given} is neither {' nor '.join(LEVELS)}: taken as warn", file=sys.stderr)
    return "warn"


def describe(rank: RankDescription) -> str:
    """Return the line of a rank."""
    launcher = "no launcher" if rank.launcher == "none" else rank.launcher
    place = f"softnic: rank {rank.rank} of {rank.size} ({launcher})"
    nic = rank.nic
    if nic is None:
        return f"{place}: alone, no NIC, simd {codecs.simd()}"
    shown = [f"{other} {address}" for other, address in list(rank.peers.items())[:MAX_PEERS]]
    more = [f"{len(rank.peers) - MAX_PEERS} more"] if len(rank.peers) > MAX_PEERS else []
    parts = [
        f"NIC {nic.name} {nic.ip} at {rank.control} (pid {nic.pid})",
        f"codec {rank.codec or 'none'}",
        f"compressed allreduce {algorithms(rank.size, rank.codec)}",
        f"mtu {nic.mtu}",
        f"mode {nic.mode}",
        f"simd {codecs.simd()}",
        f"peers {', '.join(shown + more)}",
        f"log {log_of(nic.pid) or 'not known'}",
    ]
    return f"{place}: {'; '.join(parts)}"


def algorithms(size: int, codec: str) -> str:
    """Return the algorithms of compressed all-reduces by size, as in `tree below 64 KiB, direct below 8 MiB, ring`."""
    chosen = [schedule.choose("allreduce", nbytes, size, codec) for nbytes in _SIZES]
    ends = [at for at in range(1, len(_SIZES)) if chosen[at] != chosen[at - 1]]
    return ", ".join([*(f"{chosen[at - 1]} below {_binary(_SIZES[at])}" for at in ends), chosen[-1]])


def log_of(pid: int) -> str:
    """Return the file that a process writes its log to; empty: a terminal, a pipe, or a process of another user."""
    try:
        target = Path(f"/proc/{pid}/fd/2").readlink()
    except OSError:
        return ""
    return str(target) if target.is_file() else ""


def announce(rank: RankDescription) -> None:
    """Print the line of a rank, in one write, so that lines of several ranks do not mix."""
    sys.stderr.write(f"{describe(rank)}\n")
    sys.stderr.flush()


def wanted() -> bool:
    """Return whether this process prints what its communicators run on."""
    return level(os.environ) == "info"


def _binary(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
