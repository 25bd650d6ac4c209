"""The node of a job that this host is: a NIC that meets the others, and what the ranks beside it need to know.

with closing(JoinedNode(supervisor, plan)) as node:
    node.wait(time.monotonic() + 60, print)
    supervisor.start(argv, [0, 1, 2], os.environ | node.environment(0))
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from softnic import underlay
from softnic.cluster.nic_process import ClusterError, last_line, nic_command, node_ip, run_nic
from softnic.cluster.supervisor import ProcessSupervisor
from softnic.ipc.client import Client
from softnic.ipc.control import NicStats, QueryStats
from softnic.link.reach.token import Token
from softnic.underlay import Address

MTU_BYTES = 1500 - underlay.overhead(underlay.IPV6, encrypted=True)
"""Of the NIC unless its flags say another: packets of Ethernet's size, over IPv4 and IPv6."""
MASTER_PORT = 29500
"""Port of the first node at which torch.distributed meets: its own default."""
LOOK_S = 0.05
"""Between looks at the NIC while it finds ways to its peers."""
DRAIN_S = 10.0
"""Time limit for data that programs have left to the NIC when they end."""
_MOST_NAMED = 256
"""Nodes of a job whose names NICs know: node0, node1, ..."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """What a node of a job is started with."""

    token: Token
    identity: Path
    """The file of the node's private key."""
    number: int
    """Its overlay number."""
    wire: Address
    """What its UDP socket is bound to."""
    name: str = ""
    """Name of its NIC; empty: node and the number."""
    flags: Sequence[str] = ()
    """More flags of softnicd."""
    ranks: int = 1
    """Ranks on each node."""


class JoinedNode:
    """A NIC that meets the nodes of a job, from now until its supervisor stops.

    Parameters
    ----------
    supervisor : ProcessSupervisor
        Starts the NIC. Its directory gets the control socket, the log, and the token.
    plan : JoinPlan
        The node.

    Raises
    ------
    ClusterError
        If the NIC does not start.
    OSError
        If a file cannot be written.
    """

    def __init__(self, supervisor: ProcessSupervisor, plan: JoinPlan) -> None:
        self.plan = plan
        self.ip = node_ip(plan.number)
        directory = supervisor.directory
        self.control, self._log = directory / f"node{plan.number}.sock", directory / f"node{plan.number}.log"
        token = directory / "token"
        token.touch(0o600)
        token.write_text(plan.token.text())
        argv = nic_command(self.control, self.ip, underlay.text(plan.wire), {})
        argv += ["--meet", str(token), "--identity", str(plan.identity), "--mtu", str(MTU_BYTES)]
        for node in range(min(plan.token.nodes, _MOST_NAMED)):
            argv += ["--host", f"node{node}={node_ip(node)}"]
        if plan.name:
            argv += ["--name", plan.name]
        self.nic = run_nic(supervisor, [*argv, *plan.flags], self._log, "the NIC")
        self._client = Client(self.control)

    def close(self) -> None:
        """Let the data that programs have left to the NIC arrive, for at most DRAIN_S."""
        until = time.monotonic() + DRAIN_S
        with suppress(OSError):
            while self.nic.poll() is None and time.monotonic() < until and self._stats().info.unacknowledged:
                time.sleep(LOOK_S)
        self._client.close()

    def _stats(self) -> NicStats:
        found: NicStats = self._client.call(QueryStats())
        return found

    def wait(self, deadline: float, on_progress: Callable[[NicStats], None]) -> NicStats:
        """Return the NIC's statistics once it has a way to all other nodes of the job, or at the deadline.

        Parameters
        ----------
        deadline : float
            Of `time.monotonic()`.
        on_progress : callable
            Takes the statistics, about every LOOK_S.

        Raises
        ------
        ClusterError
            If the NIC ends, or another node has its number.
        """
        while True:
            if (ending := self.nic.ending()) is not None:
                raise ClusterError(f"the NIC {ending}: {last_line(self._log)}")
            stats = self._stats()
            on_progress(stats)
            if is_connected(stats) or time.monotonic() >= deadline:
                return stats
            if stats.meeting is not None and stats.meeting.number not in (-1, self.plan.number):
                raise ClusterError(f"another node of the job has number {self.plan.number}: join again")
            time.sleep(LOOK_S)

    def environment(self, rank_here: int) -> dict[str, str]:
        """Return the variables of a rank of this node.

        Parameters
        ----------
        rank_here : int
            From 0 to the number of ranks on each node, exclusive.
        """
        plan = self.plan
        peers = [node_ip(node) for node in range(plan.token.nodes) for _ in range(plan.ranks)]
        return {
            **self._common(),
            "SOFTNIC_IP": self.ip,
            "SOFTNIC_PEERS": ",".join(peers),
            "SOFTNIC_RANK": str(plan.number * plan.ranks + rank_here),
            "SOFTNIC_WORLD_SIZE": str(plan.token.nodes * plan.ranks),
            "MASTER_ADDR": node_ip(0),
            "MASTER_PORT": str(MASTER_PORT),
        }

    def launcher_environment(self) -> dict[str, str]:
        """Return the variables of torchrun, one on each node, without those of its sockets (softnic/preload.py)."""
        plan = self.plan
        made = {
            **self._common(),
            "PET_NNODES": str(plan.token.nodes),
            "PET_NODE_RANK": str(plan.number),
            "PET_MASTER_ADDR": node_ip(0),
            "PET_MASTER_PORT": str(MASTER_PORT),
        }
        return made | ({"PET_NPROC_PER_NODE": str(plan.ranks)} if plan.ranks > 1 else {})

    def _common(self) -> dict[str, str]:
        return {"SOFTNIC_NIC": str(self.control), "SOFTNIC_JOB_SECRET": self.plan.token.derive(b"ranks").hex()}


def is_connected(stats: NicStats) -> bool:
    """Return whether a NIC that meets has a way to all other nodes of its job."""
    found = stats.meeting
    return found is not None and found.number >= 0 and found.direct + found.relayed >= found.nodes - 1


def nic_flags_of(environment: Mapping[str, str]) -> list[str]:
    """Return the flags of SOFTNIC_NIC_FLAGS. Raises ValueError if a quote is not closed."""
    return shlex.split(environment.get("SOFTNIC_NIC_FLAGS", ""))
