"""Many nodes on one machine: a NIC process for each, joined by UDP over the loopback interface, with emulated links.

    with softnic.Cluster(nodes=4, rate="1gbit", seed=7) as cluster:
        ranks = [subprocess.Popen(command, env=os.environ | cluster.env(rank)) for rank in range(4)]

Node r has the address 10.77.0.(r+1), which exists between the NICs only. All processes of a cluster belong to a
ProcessSupervisor, so that none outlives this process, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

from softnic import underlay
from softnic.cluster.nic_process import (
    MAX_NODES,
    START_S,
    ClusterError,
    Mode,
    last_line,
    nic_command,
    nic_flags,
    node_ip,
    read_stats,
    start_nic,
    wait_for_nic,
)
from softnic.cluster.supervisor import ProcessSupervisor, SupervisedProcess
from softnic.ipc.client import Client
from softnic.ipc.control import AddPeer, NicStats, queues_for

_NOWHERE = "127.0.0.1:{port}"
"""Where nobody listens: privileged ports from 1 on, another one for each node."""
_ATTEMPTS = 3
"""Another process may take a UDP port between its choice and the NIC's start."""


class Cluster:
    """Starts a NIC for each node, and returns when all are ready.

    Parameters
    ----------
    nodes : int
        The number of nodes.
    rate, delay, jitter, loss, duplicate, reorder, corrupt, limit : str, optional
        The emulated egress link of each node: rate ("1gbit"), delay and its variation ("50us"), probabilities of faults
        ("0.1%"), and the limit of the queue ("256kb"). None: not emulated.
    codec : str, optional
        The codec of the tag 0x28. Default: the NIC's.
    mode : {"fill", "packet"}
        Compress, then cut into packets; or cut first, as hardware does.
    mtu : int, optional
        Bytes of IPv4 in a frame.
    seed : int, optional
        Seed of all randomness; node r gets seed + r.
    key : bool
        Encrypt all frames with a key that is made for this cluster.
    poll : str, optional
        For how long each NIC polls before it sleeps ("20us"). None: not at all.
    queues : int or "auto"
        Queues of each NIC, for machines with cores to spare; "auto": the cores divided by the nodes.

    Attributes
    ----------
    directory : Path
        Has the control sockets (node0.sock) and the logs (node0.log) until the cluster stops.
    controls : list of Path
        The control socket of each node's NIC.
    nics : list of SupervisedProcess
        The NICs' processes.

    Raises
    ------
    ValueError
        For an invalid argument.
    ClusterError
        If a NIC does not start.
    """

    def __init__(
        self,
        nodes: int = 4,
        *,
        rate: str | None = None,
        delay: str | None = None,
        jitter: str | None = None,
        loss: str | None = None,
        duplicate: str | None = None,
        reorder: str | None = None,
        corrupt: str | None = None,
        limit: str | None = None,
        codec: str | None = None,
        mode: Mode = "fill",
        mtu: int | None = None,
        seed: int | None = None,
        key: bool = False,
        poll: str | None = None,
        queues: int | Literal["auto"] = 1,
    ) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"{nodes} nodes: a cluster has 1 to {MAX_NODES}")
        flags = nic_flags(
            mode=mode,
            mtu=mtu,
            codec=codec,
            poll=poll,
            queues=_queues(nodes) if queues == "auto" else queues,
            rate=rate,
            delay=delay,
            jitter=jitter,
            loss=loss,
            duplicate=duplicate,
            reorder=reorder,
            corrupt=corrupt,
            limit=limit,
        )
        self.nodes = nodes
        self._seed = seed
        self._store_port = _free_tcp_port()
        self._secret = secrets.token_hex(32)
        self._supervisor = ProcessSupervisor()
        self.directory = self._supervisor.directory
        self.controls = [self.directory / f"node{node}.sock" for node in range(nodes)]
        self.nics: list[SupervisedProcess] = []
        self._wire_addresses: Sequence[str] = ()
        if key:
            flags += ["--key", str(self._make_key())]
        try:
            self._start(flags)
        except BaseException:
            self.stop()
            raise

    def env(self, rank: int) -> dict[str, str]:
        """Return the environment variables of a process of a rank.

        MASTER_ADDR and MASTER_PORT are a free address for rank 0 of torch.distributed.
        """
        if not 0 <= rank < self.nodes:
            raise ValueError(f"rank {rank}: there are {self.nodes} nodes")
        return {
            "SOFTNIC_NIC": str(self.controls[rank]),
            "SOFTNIC_RANK": str(rank),
            "SOFTNIC_WORLD_SIZE": str(self.nodes),
            "SOFTNIC_IP": node_ip(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._store_port),
            "SOFTNIC_JOB_SECRET": self._secret,
        }

    def spawn(
        self, rank: int, argv: Sequence[str], fds: Sequence[int], env: Mapping[str, str] | None = None
    ) -> SupervisedProcess:
        """Start a process of a rank, which ends with the cluster, and return it.

        Parameters
        ----------
        rank
            The rank, which is the node.
        argv
            Command and arguments.
        fds
            File descriptors, which become 0, 1, 2, ... of the process.
        env
            Its environment besides `self.env(rank)`. Default: that of this process.

        Raises
        ------
        OSError
            If the process cannot be started.
        """
        environment = {**(os.environ if env is None else env), **self.env(rank)}
        return self._supervisor.start(self.command(rank, argv), fds, environment)

    def command(self, node: int, argv: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        """Return the command that runs `argv` on a node. Subclasses with nodes in network namespaces override this."""
        return argv

    def nic_arguments(self, node: int) -> list[str]:  # noqa: ARG002
        """Return further flags of a node's NIC. Subclasses override this."""
        return []

    def wires(self) -> list[str]:
        """Return HOST:PORT of each NIC's UDP socket. Subclasses override this."""
        return [f"127.0.0.1:{port}" for port in _free_ports(self.nodes)]

    def peers(self, node: int, wires: Sequence[str]) -> dict[str, str]:
        """Return where a node reaches the others. Subclasses whose nodes have different ways override this.

        Parameters
        ----------
        node
            The node.
        wires
            HOST:PORT of each NIC's UDP socket.

        Returns
        -------
        dict of str
            HOST:PORT by the address of the other node.
        """
        return {node_ip(peer): wire for peer, wire in enumerate(wires) if peer != node}

    def stats(self, node: int) -> NicStats:
        """Return the counters and all streams of a node's NIC. Raises OSError if it has ended."""
        return read_stats(self.controls[node])

    def cut(self, node: int) -> None:
        """Cut a node off: its frames and those for it are lost, until `mend`. Raises OSError if a NIC has ended."""
        for other in self._others(node):
            self._point(node, other, _NOWHERE.format(port=1 + other))
            self._point(other, node, _NOWHERE.format(port=1 + node))

    def mend(self, node: int) -> None:
        """End what `cut` has begun. Raises OSError if a NIC has ended."""
        for other in self._others(node):
            self._point(node, other, self.peers(node, self._wire_addresses)[node_ip(other)])
            self._point(other, node, self.peers(other, self._wire_addresses)[node_ip(node)])

    def _others(self, node: int) -> list[int]:
        return [other for other in range(self.nodes) if other != node]

    def _point(self, node: int, peer: int, wire: str) -> None:
        """Tell a NIC where another one is."""
        with contextlib.closing(Client(self.controls[node])) as client:
            client.call(AddPeer(node_ip(peer), *underlay.parse(wire)))

    def last_log_line(self, node: int) -> str:
        """Return the last line in the log of a node's NIC."""
        return last_line(self.directory / f"node{node}.log")

    complaint = last_log_line
    """Former name of last_log_line."""

    def lost_nic(self) -> str | None:
        """Return which NIC has ended unexpectedly, and how; None if all run."""
        for node, nic in enumerate(self.nics):
            if (code := nic.poll()) is not None:
                how = nic.ending() if code < 0 else f"ended: {self.last_log_line(node)}"
                return f"the NIC of node {node} {how}"
        return None

    def stop(self) -> None:
        """End all processes of the cluster, and wait for them. Idempotent."""
        self._supervisor.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and (lost := self.lost_nic()):
            error.add_note(lost)
        self.stop()

    def _make_key(self) -> Path:
        path = self.directory / "key"
        path.touch(0o600, exist_ok=False)
        path.write_text(secrets.token_hex(32))
        return path

    def _start(self, flags: list[str]) -> None:
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._start_nics(flags)
                break
            except ClusterError as error:
                if not left or os.strerror(errno.EADDRINUSE) not in str(error):
                    raise
                for nic in self.nics:
                    nic.signal(signal.SIGKILL)
                    nic.wait()
                self.nics.clear()

    def _start_nics(self, flags: list[str]) -> None:
        self._wire_addresses = wires = self.wires()
        ready_fds = [self._start_nic(node, wires, flags) for node in range(self.nodes)]
        deadline = time.monotonic() + START_S
        try:
            for node, ready in enumerate(ready_fds):
                name, log = f"the NIC of node {node}", self.directory / f"node{node}.log"
                wait_for_nic(self.nics[node], ready, deadline, name, log)
        finally:
            for ready in ready_fds:
                os.close(ready)

    def _start_nic(self, node: int, wires: list[str], flags: list[str]) -> int:
        """Start one NIC. Returns the file descriptor that reports when it is ready."""
        argv = nic_command(self.controls[node], node_ip(node), wires[node], self.peers(node, wires))
        argv += self.nic_arguments(node)
        for other, path in enumerate(self.controls):
            argv += ["--host", f"{path.stem}={node_ip(other)}"]
        if self._seed is not None:
            argv += ["--seed", str(self._seed + node)]
        log = self.directory / f"node{node}.log"
        nic, ready = start_nic(self._supervisor, self.command(node, [*argv, *flags]), log)
        self.nics.append(nic)
        return ready


def _free_ports(count: int) -> list[int]:
    """Return different free UDP ports of 127.0.0.1."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _free_tcp_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _queues(nodes: int) -> int:
    """Return the number of queues of each NIC, where all share this machine's cores."""
    cores = len(os.sched_getaffinity(0))
    return queues_for(cores // nodes) if cores > 2 else 1
