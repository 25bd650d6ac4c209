"""Many nodes in one machine: a NIC process a node, joined by UDP over the loopback interface, each with an emulated
link of its own.

    with softnic.Cluster(nodes=4, rate="1gbit", seed=7) as cluster:
        ranks = [subprocess.Popen(command, env=os.environ | cluster.env(rank)) for rank in range(4)]

Node r is at 10.77.0.(r+1), and nothing of it can be seen from outside: the addresses exist between the NICs only.
All processes belong to a supervisor (softnic.cluster.supervisor), so none is left when this one ends, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from softnic import units
from softnic.cluster.supervisor import PREFIX, ProcessSupervisor, SupervisedProcess, base_directory
from softnic.ipc import control
from softnic.ipc.client import Client
from softnic.ipc.control import NicStats

Mode = Literal["fill", "packet"]

MAX_NODES = 250
"""Addresses of 10.77.0.0/24 that are used."""
START_S = 60.0
"""How long NICs may take to be ready."""
_ATTEMPTS = 3
"""Another program may take a UDP port between our choice and the NIC's start."""
_READY_DESCRIPTOR = 3
_END_S = 5.0
"""From a NIC's last word to its end."""


LINK: dict[str, Callable[[str], float]] = {
    "rate": units.rate_bps,
    "delay": units.time_s,
    "jitter": units.time_s,
    "loss": units.probability,
    "duplicate": units.probability,
    "reorder": units.probability,
    "corrupt": units.probability,
    "limit": units.size_bytes,
}
"""What an emulated link is described by, and what reads its text."""


class ClusterError(Exception):
    """NICs that did not start, or ended before their time."""


def node_ip(node: int) -> str:
    """The address of a node on the clusters' network."""
    return f"10.77.0.{node + 1}"


class Cluster:
    """Starts `nodes` NICs and returns when all are ready. Raises ValueError for arguments that make no sense,
    ClusterError where a NIC does not start.

    `rate` ("1gbit"), `delay` and `jitter` ("50us"), `loss`, `duplicate`, `reorder`, `corrupt` ("0.1%") and `limit`
    ("256kb", of the queue) make every link what it is, on its node's way out; what is None is not emulated. `codec`
    is what the tag 0x28 means (None: the NIC's default), `mode` how packets are filled, `mtu` the bytes of IPv4 in a
    frame, `seed` that of all randomness (node r gets seed + r). With `key`, all frames are
    sealed with a key made for this cluster.
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
    ) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"{nodes} nodes: a cluster has 1 to {MAX_NODES}")
        link = dict(rate=rate, delay=delay, jitter=jitter, limit=limit)
        link.update(loss=loss, duplicate=duplicate, reorder=reorder, corrupt=corrupt)
        flags = nic_flags(mode=mode, mtu=mtu, codec=codec, **link)
        self.nodes = nodes
        self._seed = seed
        self._store_port = _free_tcp_port()
        self._supervisor = ProcessSupervisor()
        self.directory = self._supervisor.directory
        """Holds the control sockets (node0.sock) and logs (node0.log) until the cluster stops."""
        self.controls = [self.directory / f"node{node}.sock" for node in range(nodes)]
        """The control socket of each node's NIC."""
        self.nics: list[SupervisedProcess] = []
        """The NICs' processes."""
        if key:
            flags += ["--key", str(self._make_key())]
        try:
            self._start(flags)
        except BaseException:
            self.stop()
            raise

    def env(self, rank: int) -> dict[str, str]:
        """What a process of this rank has to find in its environment, besides all else. MASTER_ADDR and MASTER_PORT are
        where rank 0 may listen for torch.distributed."""
        if not 0 <= rank < self.nodes:
            raise ValueError(f"rank {rank}: there are {self.nodes} nodes")
        return {
            "SOFTNIC_NIC": str(self.controls[rank]),
            "SOFTNIC_RANK": str(rank),
            "SOFTNIC_WORLD_SIZE": str(self.nodes),
            "SOFTNIC_IP": node_ip(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._store_port),
        }

    def spawn(
        self, rank: int, argv: Sequence[str], descriptors: Sequence[int], env: Mapping[str, str] | None = None
    ) -> SupervisedProcess:
        """Starts a process of a rank that ends with the cluster. `descriptors` become its 0, 1, 2, ...; `env` (by
        default this process's) is what its environment holds besides `self.env(rank)`. Raises OSError."""
        return self._supervisor.start(
            self.command(rank, argv), descriptors, {**(os.environ if env is None else env), **self.env(rank)}
        )

    def command(self, node: int, argv: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        """What runs `argv` where the node's NIC and programs are: here. A cluster whose nodes are in network namespaces
        of their own overrides this and `wires`."""
        return argv

    def nic_arguments(self, node: int) -> list[str]:  # noqa: ARG002
        """What a node's NIC is told besides. For clusters whose NICs have another kind of host."""
        return []

    def wires(self) -> list[str]:
        """HOST:PORT of each NIC's UDP socket."""
        return [f"127.0.0.1:{port}" for port in _free_ports(self.nodes)]

    def stats(self, node: int) -> NicStats:
        """The counters of a node's NIC and all its streams. Raises OSError where it is gone."""
        return read_stats(self.controls[node])

    def complaint(self, node: int) -> str:
        """The last line that a node's NIC logged, or that it said nothing."""
        return last_line(self.directory / f"node{node}.log")

    def lost_nic(self) -> str | None:
        """Which NIC has ended before its time, and how; None: all run."""
        for node, nic in enumerate(self.nics):
            if (code := nic.poll()) is not None:
                how = nic.ending() if code < 0 else f"ended: {self.complaint(node)}"
                return f"the NIC of node {node} {how}"
        return None

    def stop(self) -> None:
        """Ends everything that runs in the cluster, and waits for it. May be called twice."""
        self._supervisor.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                self._try_start(flags)
                break
            except ClusterError as error:
                if not left or os.strerror(errno.EADDRINUSE) not in str(error):
                    raise
                for nic in self.nics:
                    nic.signal(signal.SIGKILL)
                    nic.wait()
                self.nics.clear()

    def _try_start(self, flags: list[str]) -> None:
        wires = self.wires()
        readiness = [self._start_nic(node, wires, flags) for node in range(self.nodes)]
        deadline = time.monotonic() + START_S
        try:
            for node, ready in enumerate(readiness):
                who, log = f"the NIC of node {node}", self.directory / f"node{node}.log"
                wait_for_nic(self.nics[node], ready, deadline, who, log)
        finally:
            for ready in readiness:
                os.close(ready)

    def _start_nic(self, node: int, wires: list[str], flags: list[str]) -> int:
        """Returns the descriptor that tells of its readiness."""
        peers = {node_ip(peer): wire for peer, wire in enumerate(wires) if peer != node}
        argv = nic_command(self.controls[node], node_ip(node), wires[node], peers) + self.nic_arguments(node)
        if self._seed is not None:
            argv += ["--seed", str(self._seed + node)]
        nic, ready = start_nic(
            self._supervisor, self.command(node, [*argv, *flags]), self.directory / f"node{node}.log"
        )
        self.nics.append(nic)
        return ready


def nic_flags(
    *, mode: Mode = "fill", mtu: int | None = None, codec: str | None = None, **link: str | None
) -> list[str]:
    """A NIC's flags for what a Cluster is described by. Raises ValueError for text that describes no link."""
    flags = ["--mode", mode]
    for name, text in link.items():
        if text is not None:
            LINK[name](text)
            flags += [f"--{name}", text]
    if mtu is not None:
        flags += ["--mtu", str(mtu)]
    if codec is not None:
        flags += ["--offload", f"0x28={codec}"]
    return flags


def nic_command(control: Path, ip: str, wire: str, peers: Mapping[str, str]) -> list[str]:
    """What starts the NIC of a node, named as its control socket is. `wire` is HOST:PORT of its UDP socket, `peers` has
    those of the others by their nodes' addresses."""
    argv = [
        *(sys.executable, "-P", "-m", "softnicd"),
        *("--name", control.stem, "--ip", ip, "--control", str(control)),
        *("--wire", wire, "--ready-fd", str(_READY_DESCRIPTOR)),
    ]
    for peer, theirs in peers.items():
        argv += ["--peer", f"{peer}={theirs}"]
    return argv


def start_nic(supervisor: ProcessSupervisor, argv: Sequence[str], log: Path) -> tuple[SupervisedProcess, int]:
    """The process, and a descriptor that tells of its readiness (`wait_for_nic`). Raises OSError."""
    ready, theirs = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return supervisor.start(argv, [null, written, written, theirs]), ready
    except BaseException:
        os.close(ready)
        raise
    finally:
        for descriptor in (theirs, null, written):
            os.close(descriptor)


def wait_for_nic(nic: SupervisedProcess, ready: int, deadline: float, who: str, log: Path) -> None:
    """Until `deadline` of the monotonic clock. Raises ClusterError, with what the NIC said last."""
    if not select.select([ready], [], [], max(0.0, deadline - time.monotonic()))[0]:
        raise ClusterError(f"{who} was not ready in {START_S:.0f} s: is the machine very busy, or the process stopped?")
    if not os.read(ready, 1):
        code = nic.wait(_END_S)
        killed = f"it {nic.ending()}" if code is not None and code < 0 else last_line(log)
        raise ClusterError(f"{who} did not start: {killed}")


def last_line(log: Path) -> str:
    """What a NIC has logged last, or that it said nothing."""
    with contextlib.suppress(OSError):
        if said := [line.strip() for line in log.read_text(errors="replace").split("\n") if line.strip()]:
            return said[-1]
    return "it said nothing"


def read_stats(path: Path) -> NicStats:
    """Counters and all streams of the NIC at this control socket. Raises OSError where there is none."""
    client = Client(path)
    try:
        streams: list[control.StreamInfo] = []
        events: list[control.NicEvent] = []
        while True:
            stats: NicStats = client.call(control.Stats(after=streams[-1].stream if streams else 0))
            streams += stats.streams
            events += stats.events
            if not stats.more or not stats.streams:
                return NicStats(stats.info, stats.counters, streams, events=events)
    finally:
        client.close()


def running_nics() -> list[Path]:
    """Control sockets of the clusters that this user runs, by cluster and node."""
    found = []
    for directory in sorted(base_directory().glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            if directory.stat().st_uid == os.getuid():
                found += sorted(directory.glob("node*.sock"), key=lambda path: int("0" + path.stem[4:]))
    return found


def _free_ports(count: int) -> list[int]:
    """UDP ports of 127.0.0.1 that nobody has, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _free_tcp_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
