"""NICs on the nodes of a Ray cluster, started by one call; the workers of Ray Train use the one of their node.

    ray.init()
    with softnic.ray.nics(codec="bounded:10"):
        TorchTrainer(train, torch_config=TorchConfig(backend="softnic"), scaling_config=ScalingConfig(8)).fit()

Each node gets an actor that takes no CPU of Ray's count and owns the node's NIC: it ends when the actor does, however
that ends, so with `stop`, the driver, or the node. Frames go as VXLAN over UDP between the addresses by which the nodes
know each other. The backend of a worker asks for its node's actor by name (`find`) before it meets the others.

Without this call the workers start NICs themselves. It is for NICs that outlive a run, for links and codecs other than
the defaults, and for looking at counters.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from softnic.cluster import (
    LINK,
    MAX_NODES,
    START_S,
    Mode,
    nic_command,
    nic_flags,
    node_ip,
    read_stats,
    start_nic,
    wait_for_nic,
)
from softnic.cluster.supervisor import ProcessSupervisor
from softnic.ipc.control import NicStats

_NAMESPACE = "softnic"
"""Of Ray's actor names; there the actor of a node is named by the node's id."""


class _Keeper:
    """The actor of a node."""

    def __init__(self) -> None:
        self._supervisor = ProcessSupervisor()
        self._control = Path()
        self._port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._port.bind((ray.util.get_node_ip_address(), 0))

    def wire(self) -> str:
        """HOST:PORT that is kept free for the NIC."""
        host, port = self._port.getsockname()
        return f"{host}:{port}"

    def start(self, node: int, wires: Sequence[str], flags: Sequence[str]) -> None:
        """Returns when the NIC is ready. Raises ClusterError and OSError."""
        self._control = self._supervisor.directory / f"node{node}.sock"
        peers = {node_ip(peer): wire for peer, wire in enumerate(wires) if peer != node}
        argv = [*nic_command(self._control, node_ip(node), wires[node], peers), *flags]
        log = self._control.with_suffix(".log")
        self._port.close()
        nic, ready = start_nic(self._supervisor, argv, log)
        with os.fdopen(ready, "rb"):
            wait_for_nic(nic, ready, time.monotonic() + START_S, f"the NIC of {wires[node]}", log)

    def control(self) -> str:
        """The path of the NIC's control socket, on this node."""
        return str(self._control)

    def stats(self) -> NicStats:
        return read_stats(self._control)


class Nics:
    """A NIC on every node that was alive when they were made, until `stop`."""

    def __init__(self, flags: Sequence[str]) -> None:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        if len(nodes) > MAX_NODES:
            raise ValueError(f"{len(nodes)} nodes: NICs can be started on {MAX_NODES} at most")
        self._keepers: list[Any] = []
        try:
            for node in nodes:
                self._keepers.append(_keeper(node["NodeID"]))
            self.wires: list[str] = ray.get([keeper.wire.remote() for keeper in self._keepers])
            """HOST:PORT of each NIC's UDP socket."""
            ray.get([keeper.start.remote(node, self.wires, flags) for node, keeper in enumerate(self._keepers)])
        except BaseException:
            self.stop()
            raise

    def stats(self) -> list[NicStats]:
        """Counters and streams of every NIC, in the order of `wires`. Raises ray.exceptions.RayError and OSError."""
        found: list[NicStats] = ray.get([keeper.stats.remote() for keeper in self._keepers])
        return found

    def stop(self) -> None:
        """Ends the NICs. May be called twice."""
        while self._keepers:
            ray.kill(self._keepers.pop())

    def __str__(self) -> str:
        return ", ".join(f"{node_ip(node)} at {wire}" for node, wire in enumerate(self.wires))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def nics(*, codec: str | None = None, mode: Mode = "fill", mtu: int | None = None, **link: str | None) -> Nics:
    """Starts a NIC on every node of the Ray cluster that this process is connected to, and returns when all are ready.

    `codec` is what the tag 0x28 means, `mode` and `mtu` and `link` (rate="1gbit", delay="50us", loss="0.1%", ...) are
    those of softnic.Cluster. Raises ValueError and TypeError for arguments that make no sense, ValueError too where
    NICs of a former call still run, and ray.exceptions.RayError, with the NIC's last words, where one does not start.
    """
    if unknown := sorted(set(link) - set(LINK)):
        raise TypeError(f"nics() got an unexpected keyword argument {unknown[0]!r}: a link has {', '.join(LINK)}")
    return Nics(nic_flags(mode=mode, mtu=mtu, codec=codec, **link))


def find() -> str | None:
    """The control socket of the NIC that `nics` started on this worker's node; None: there is none, or this is no
    process of Ray's."""
    if not ray.is_initialized():
        return None
    try:
        keeper = ray.get_actor(ray.get_runtime_context().get_node_id(), namespace=_NAMESPACE)
    except ValueError:
        return None
    path: str = ray.get(keeper.control.remote())
    return path


def _keeper(node_id: str) -> Any:
    try:
        ray.get_actor(node_id, namespace=_NAMESPACE)
    except ValueError:
        where = NodeAffinitySchedulingStrategy(node_id, soft=False)
        options = {"name": node_id, "namespace": _NAMESPACE, "num_cpus": 0, "scheduling_strategy": where}
        return ray.remote(_Keeper).options(**options).remote()
    raise ValueError("NICs run on this Ray cluster already: stop them, or use those")
