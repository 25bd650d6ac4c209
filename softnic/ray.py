"""NICs on the nodes of a Ray cluster, started by one call; the workers of Ray Train use the one of their node.

    ray.init()
    with softnic.ray.nics(codec="rht:4"):
        TorchTrainer(train, torch_config=TorchConfig(backend="softnic"), scaling_config=ScalingConfig(8)).fit()

Each node gets an actor that owns the NIC and uses no CPU of Ray's count. The NIC ends with the actor, however that
ends: by `stop`, with the driver, or with the node. Frames travel as VXLAN over UDP between the addresses of the Ray
nodes. The backend of a worker finds the actor of its node by name (`find`) before it connects to the other ranks.

Without this call, the workers start NICs themselves. Use it for NICs that outlive a run, for links and codecs other
than the defaults, and to read counters.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from softnic import underlay
from softnic.cluster.nic_process import (
    LINK,
    MAX_NODES,
    Mode,
    nic_command,
    nic_flags,
    node_ip,
    read_stats,
    run_nic,
)
from softnic.cluster.supervisor import ProcessSupervisor
from softnic.ipc.control import NicStats

_NAMESPACE = "softnic"
"""Ray's namespace of the actors, each of which is named by the id of its node."""


class _NicActor:
    """The actor of a node, which owns its NIC."""

    def __init__(self) -> None:
        self._supervisor = ProcessSupervisor()
        self._control = Path()
        address = underlay.numeric(ray.util.get_node_ip_address())
        self._port = socket.socket(underlay.family(address), socket.SOCK_DGRAM)
        self._port.bind((address, 0))

    def wire(self) -> str:
        """Return HOST:PORT of the UDP port that is reserved for the NIC."""
        return underlay.text(underlay.of_socket(self._port.getsockname()))

    def start(self, node: int, wires: Sequence[str], flags: Sequence[str]) -> None:
        """Start the NIC, and return when it is ready. Raises ClusterError and OSError."""
        self._control = self._supervisor.directory / f"node{node}.sock"
        peers = {node_ip(peer): wire for peer, wire in enumerate(wires) if peer != node}
        argv = [*nic_command(self._control, node_ip(node), wires[node], peers), *flags]
        log = self._control.with_suffix(".log")
        self._port.close()
        run_nic(self._supervisor, argv, log, f"the NIC of {wires[node]}")

    def control(self) -> str:
        """Return the path of the NIC's control socket on this node."""
        return str(self._control)

    def stats(self) -> NicStats:
        """Return the counters and streams of the NIC."""
        return read_stats(self._control)


class Nics:
    """A NIC on every node that was alive when this was created, until `stop`."""

    def __init__(self, flags: Sequence[str]) -> None:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        if len(nodes) > MAX_NODES:
            raise ValueError(f"{len(nodes)} nodes: NICs can be started on {MAX_NODES} at most")
        self._actors: list[Any] = []
        try:
            for node in nodes:
                self._actors.append(_create_actor(node["NodeID"]))
            self.wires: list[str] = ray.get([actor.wire.remote() for actor in self._actors])
            """HOST:PORT of each NIC's UDP socket."""
            ray.get([actor.start.remote(node, self.wires, flags) for node, actor in enumerate(self._actors)])
        except BaseException:
            self.stop()
            raise

    def stats(self) -> list[NicStats]:
        """Return the counters and streams of every NIC, in the order of `wires`.

        Raises
        ------
        ray.exceptions.RayError, OSError
            If a NIC or its actor has ended.
        """
        found: list[NicStats] = ray.get([actor.stats.remote() for actor in self._actors])
        return found

    def stop(self) -> None:
        """End the NICs. Idempotent."""
        while self._actors:
            ray.kill(self._actors.pop())

    def __str__(self) -> str:
        return ", ".join(f"{node_ip(node)} at {wire}" for node, wire in enumerate(self.wires))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def nics(
    *,
    codec: str | None = None,
    mode: Mode = "fill",
    mtu: int | None = None,
    queues: int | Literal["auto"] = 1,
    **link: str | None,
) -> Nics:
    """Start a NIC on every node of the Ray cluster to which this process is connected.

    Parameters
    ----------
    codec, mode, mtu, queues, **link
        As in softnic.Cluster; `link` has rate="1gbit", delay="50us", loss="0.1%" and so on.

    Returns
    -------
    Nics
        A context manager; all NICs are ready.

    Raises
    ------
    ValueError, TypeError
        For invalid arguments. ValueError also if NICs of an earlier call are running.
    ray.exceptions.RayError
        If a NIC does not start, with the last line of its log.
    """
    if unknown := sorted(set(link) - set(LINK)):
        raise TypeError(f"nics() got an unexpected keyword argument {unknown[0]!r}: a link has {', '.join(LINK)}")
    return Nics(nic_flags(mode=mode, mtu=mtu, codec=codec, queues=queues, **link))


def find() -> str | None:
    """Return the control socket of the NIC that `nics` started on this worker's node.

    Returns
    -------
    str or None
        None without such a NIC, or if Ray is not initialized in this process.
    """
    if not ray.is_initialized():
        return None
    try:
        actor = ray.get_actor(ray.get_runtime_context().get_node_id(), namespace=_NAMESPACE)
    except ValueError:
        return None
    path: str = ray.get(actor.control.remote())
    return path


def _create_actor(node_id: str) -> Any:
    try:
        ray.get_actor(node_id, namespace=_NAMESPACE)
    except ValueError:
        where = NodeAffinitySchedulingStrategy(node_id, soft=False)
        options = {"name": node_id, "namespace": _NAMESPACE, "num_cpus": 0, "scheduling_strategy": where}
        return ray.remote(_NicActor).options(**options).remote()
    raise ValueError("NICs run on this Ray cluster already: stop them, or use those")
