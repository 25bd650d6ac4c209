"""Starts softnicd processes, waits until they are ready, and reads their counters."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from softnic import units
from softnic.cluster.supervisor import PREFIX, ProcessSupervisor, SupervisedProcess, base_directory
from softnic.ipc.client import Client
from softnic.ipc.control import QUEUES, NicStats
from softnic.link.reach.numbers import overlay_ip

Mode = Literal["fill", "packet"]

MAX_NODES = 250
"""Limit of one cluster, whose addresses are in 10.77.0.0/24."""
START_S = 60.0
"""Time limit for NICs to become ready."""
_READY_FD = 3
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Of a NIC: numpy's BLAS, which a NIC does not use, starts a thread on each core, which spins for a while."""
_END_S = 5.0
"""Time limit for a NIC that failed to exit."""

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
"""Properties of an emulated link, with the parsers of their texts."""


class ClusterError(Exception):
    """A NIC did not start, or ended unexpectedly."""


def node_ip(node: int) -> str:
    """Return the address of a node in the network of a cluster."""
    return overlay_ip(node)


def nic_flags(
    *,
    mode: Mode = "fill",
    mtu: int | None = None,
    codec: str | None = None,
    poll: str | None = None,
    queues: int | Literal["auto"] = 1,
    **link: str | None,
) -> list[str]:
    """Return the flags of softnicd for parameters of Cluster. Raises ValueError for an invalid one."""
    flags = ["--mode", mode]
    for name, text in link.items():
        if text is not None:
            LINK[name](text)
            flags += [f"--{name}", text]
    if mtu is not None:
        flags += ["--mtu", str(mtu)]
    if codec is not None:
        flags += ["--offload", f"0x28={codec}"]
    if poll is not None:
        units.time_s(poll)
        flags += ["--poll", poll]
    if queues != "auto" and queues not in QUEUES:
        raise ValueError(f"{queues} queues: a NIC has {', '.join(map(str, QUEUES))}, or auto")
    if queues != 1:
        flags += ["--queues", str(queues)]
    return flags


def nic_command(control: Path, ip: str, wire: str, peers: Mapping[str, str]) -> list[str]:
    """Return the command that starts the NIC of a node.

    Parameters
    ----------
    control
        The control socket; its name is the node's.
    ip
        The address of the node.
    wire
        HOST:PORT of the UDP socket.
    peers
        HOST:PORT of the other nodes' UDP sockets by the addresses of the nodes.
    """
    argv = [
        *(sys.executable, "-P", "-m", "softnicd"),
        *("--name", control.stem, "--ip", ip, "--control", str(control)),
        *("--wire", wire, "--ready-fd", str(_READY_FD)),
    ]
    for peer, theirs in peers.items():
        argv += ["--peer", f"{peer}={theirs}"]
    return argv


def start_nic(supervisor: ProcessSupervisor, argv: Sequence[str], log: Path) -> tuple[SupervisedProcess, int]:
    """Start a NIC. Returns the process and the file descriptor for `wait_for_nic`. Raises OSError."""
    ready, ready_write = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return supervisor.start(argv, [null, output, output, ready_write], {**os.environ, **_ENVIRONMENT}), ready
    except BaseException:
        os.close(ready)
        raise
    finally:
        for fd in (ready_write, null, output):
            os.close(fd)


def run_nic(supervisor: ProcessSupervisor, argv: Sequence[str], log: Path, name: str) -> SupervisedProcess:
    """Start a NIC and return when it is ready. Raises OSError and ClusterError, which calls it `name`."""
    nic, ready = start_nic(supervisor, argv, log)
    try:
        wait_for_nic(nic, ready, time.monotonic() + START_S, name, log)
    finally:
        os.close(ready)
    return nic


def wait_for_nic(nic: SupervisedProcess, ready: int, deadline: float, name: str, log: Path) -> None:
    """Wait until a NIC is ready.

    Parameters
    ----------
    nic, ready
        As `start_nic` returned them.
    deadline
        Of `time.monotonic()`.
    name
        Names the NIC in errors.
    log
        The NIC's log.

    Raises
    ------
    ClusterError
        With the last line of the log, if the NIC ends or is not ready in time.
    """
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
        raise ClusterError(
            f"{name} was not ready in {START_S:.0f} s: is the machine very busy, or the process stopped?"
        )
    if not os.read(ready, 1):
        code = nic.wait(_END_S)
        reason = f"it {nic.ending()}" if code is not None and code < 0 else last_line(log)
        raise ClusterError(f"{name} did not start: {reason}")


def last_line(log: Path) -> str:
    """Return the last line of a log, or that there is none."""
    with suppress(OSError):
        if lines := [line.strip() for line in log.read_text(errors="replace").split("\n") if line.strip()]:
            return lines[-1]
    return "it logged nothing"


def read_stats(path: Path) -> NicStats:
    """Return the statistics of the NIC at a control socket. Raises OSError if there is none."""
    client = Client(path)
    try:
        return client.stats()
    finally:
        client.close()


def running_nics() -> list[Path]:
    """Return the control sockets of all clusters of this user, by cluster and node."""
    found = []
    for directory in sorted(base_directory().glob(f"{PREFIX}*")):
        with suppress(OSError):
            if directory.stat().st_uid == os.getuid():
                found += sorted(directory.glob("node*.sock"), key=lambda path: int("0" + path.stem[4:]))
    return found
