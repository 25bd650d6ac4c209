"""Uplink of a network namespace: a route from it to the host's network, without privileges.

slirp4netns or pasta, the first that is installed, terminates the connections of the namespace and opens its own on the
host. Both configure the device DEVICE with the same addresses. The namespace can open connections to whatever the host
reaches, except the host's own loopback; nothing outside can open one into the namespace.
"""

from __future__ import annotations

import os
import shutil
from multiprocessing.connection import wait
from pathlib import Path

from softnic.cluster.nic_process import START_S, ClusterError, last_line
from softnic.cluster.supervisor import ProcessSupervisor, SupervisedProcess

DEVICE = "uplink0"
ADDRESS, GATEWAY, NAME_SERVER = "10.0.2.100", "10.0.2.2", "10.0.2.3"
"""slirp4netns's defaults. The name server passes queries on to the host's."""
PROGRAMS = ("slirp4netns", "pasta")
_READY_FD = 3
_MTU = 65520
"""The largest MTU of slirp4netns, for the fewest packets."""


def resolver_file(directory: Path) -> Path:
    """Write and return the /etc/resolv.conf of programs in the namespace."""
    path = directory / "resolv.conf"
    path.write_text(f"nameserver {NAME_SERVER}\n")
    path.chmod(0o644)
    return path


def start_uplink(supervisor: ProcessSupervisor, pid: int, log: Path) -> SupervisedProcess:
    """Give the network namespace of a process an uplink, and return when it is usable.

    Raises
    ------
    ClusterError
        If neither program is installed, or the one that is does not start.
    """
    program = next(filter(shutil.which, PROGRAMS), None)
    if program is None:
        raise ClusterError(f"an uplink needs {' or '.join(PROGRAMS)} (apt-get install {PROGRAMS[0]})")
    ready, ready_write = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = supervisor.start(_command(program, pid), [null, output, output, ready_write])
    finally:
        for fd in (ready_write, null, output):
            os.close(fd)
    try:
        if program == "slirp4netns":  # the end of the pipe means that it has failed
            is_up = bool(wait([ready], START_S) and os.read(ready, 1))
        else:
            is_up = process.wait(START_S) == 0
    finally:
        os.close(ready)
    if not is_up:
        hint = " (pasta does not serve root; slirp4netns does)" if program == "pasta" and not os.geteuid() else ""
        raise ClusterError(f"{program} made no uplink for process {pid}: {last_line(log)}{hint}")
    return process


def _command(program: str, pid: int) -> list[str]:
    if program == "slirp4netns":
        flags = ["--configure", f"--mtu={_MTU}", "--disable-host-loopback", f"--ready-fd={_READY_FD}"]
        return [program, *flags, str(pid), DEVICE]
    # It continues in the background once the device is configured. By default it would also publish on the host every
    # port on which a program of the namespace listens.
    ports = [argument for flag in ("-t", "-u", "-T", "-U") for argument in (flag, "none")]
    addresses = ["--address", ADDRESS, "--netmask", "24", "--gateway", GATEWAY, "--dns-forward", NAME_SERVER]
    flags = ["--config-net", "--quiet", "--ipv4-only", "--no-map-gw", "--ns-ifname", DEVICE]
    return [program, *flags, *ports, *addresses, str(pid)]
