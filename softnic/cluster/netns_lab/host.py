"""Virtual hosts: network namespaces with processes and kernel sockets, joined by cables.

    with NetnsHost() as left, NetnsHost() as right:
        join(left, right)                                # eth0 at 192.0.2.1 and 192.0.2.2
        left.run("ping", "-c", "1", left.peer)           # runs a command
        with left.entered():
            server = socket.create_server(("", 8000))    # a socket of this process in left's namespace

A namespace is a file descriptor of this process and has no name, so it ends with the process, as do the processes that
were started in it (SIGKILL). `join` makes a perfect cable. cable.py emulates faults on the VXLAN frames of NICs and of
kernels, from a seed, and does not need netem, which many kernels lack.

Everything here needs root; `missing` names further requirements. softnic/tapnic/namespaces.py needs no privilege.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from softnic import underlay
from softnic.cluster.netns_lab import offloads

NEEDED = ("ip", "nsenter", "setpriv")
RUN_S = 60.0
"""Time limit of `run`."""
WIRE_PORT = 4789
WIRE_MTU = 1500
NIC_MTU, NIC_MTU_OVER_IPV6 = WIRE_MTU - underlay.overhead(underlay.IPV4), WIRE_MTU - underlay.overhead(underlay.IPV6)
"""WIRE_MTU less the headers around the packets of NICs."""
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


class HostError(Exception):
    """A command on a host failed; the text has its output."""


def missing() -> str:
    """Return why hosts cannot be made on this machine; empty if they can."""
    if os.geteuid():
        return "network namespaces need root"
    if absent := [name for name in NEEDED if shutil.which(name) is None]:
        return f"not installed: {', '.join(absent)} (apt-get install iproute2 util-linux)"
    try:
        os.close(_new_namespace())
    except OSError as error:
        return f"this kernel has no network namespaces: {error}"
    return ""


def _new_namespace() -> int:
    """Return a file descriptor of a new namespace, made by a thread that enters it and ends."""
    made: list[int] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            _call("unshare", _CLONE_NEWNET)
            made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


class NetnsHost:
    """A virtual host: a network namespace with its loopback interface up."""

    def __init__(self) -> None:
        self._namespace = _new_namespace()
        self._started: list[subprocess.Popen[Any]] = []
        self.address = self.peer = ""
        """Its address on the cable, and that of the other host, or of the carrier in its place."""
        self.directory = Path(tempfile.mkdtemp(prefix="softnic-host-"))
        """For the files of its processes: sockets, logs."""
        self.run("ip", "link", "set", "lo", "up")

    @property
    def path(self) -> str:
        """Path of the namespace, for `ip link ... netns PATH` and nsenter; valid in all processes."""
        return f"/proc/{os.getpid()}/fd/{self._namespace}"

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` on this host; it gets SIGKILL when the starting thread ends.

        If that ends even before setpriv has said so to the kernel, nsenter does not find the namespace, and fails.
        """
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={self.path}", *argv]

    def run(self, *argv: str, given: str = "", timeout_s: float = RUN_S) -> str:
        """Run a command, `given` its stdin, and return its stdout. Raises HostError if its exit code is not 0."""
        done = subprocess.run(
            self.command(argv), input=given, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode:
            raise HostError(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, *argv: str, **options: Any) -> subprocess.Popen[Any]:
        """Start a process, with options of Popen. `close` kills it if it still runs."""
        process: subprocess.Popen[Any] = subprocess.Popen(self.command(argv), **options)
        self._started.append(process)
        return process

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let this thread enter the namespace: sockets that it creates belong to this host."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", self._namespace, _CLONE_NEWNET)
            try:
                yield
            finally:
                _call("setns", home, _CLONE_NEWNET)
        finally:
            os.close(home)

    def set(self, folder: str = "ipv4", /, **sysctls: int | str) -> None:
        """Set sysctls of a folder of /proc/sys/net, as in `host.set(tcp_sack=0)`."""
        with self.entered():
            for name, value in sysctls.items():
                Path(f"/proc/sys/net/{folder}/{name}").write_text(f"{value}\n")

    def set_offload(self, device: str, offload: str, on: bool) -> None:
        """Switch an offload, as `ethtool -K DEVICE OFFLOAD on|off`; offloads.py lists them."""
        with self.entered():
            offloads.set_offload(device, offload, on)

    def vxlan(self, number: int, *, vni: int = 1) -> None:
        """Add a VXLAN device vx0, node `number` of the NICs' network, whose peer is the other host.

        The kernel computes checksums and segments, as docs/many-machines.md says, since a veth does neither.
        """
        ports = ("dstport", str(WIRE_PORT), "srcport", str(WIRE_PORT), str(WIRE_PORT + 1))
        arguments = ("id", str(vni), "remote", self.peer, *ports, "dev", "eth0")
        self.run("ip", "link", "add", "vx0", "type", "vxlan", *arguments)
        self.run("ip", "addr", "add", f"10.77.0.{number + 1}/24", "dev", "vx0")
        mtu = NIC_MTU if underlay.family(self.peer) == underlay.IPV4 else NIC_MTU_OVER_IPV6
        self.run("ip", "link", "set", "vx0", "mtu", str(mtu), "up")
        self.set_offload("vx0", "tx", False)

    def close(self) -> None:
        """Kill the processes that still run, and close the namespace."""
        for process in self._started:
            with contextlib.suppress(BrokenPipeError), process:  # closes its pipes and waits for it
                process.kill()
        os.close(self._namespace)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> NetnsHost:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def join(
    left: NetnsHost, right: NetnsHost, *, net: int = 0, devices: tuple[str, str] = ("eth0", "eth0"), ipv6: bool = False
) -> None:
    """Join two hosts by a veth pair, with the addresses 192.0.(2 + net).1 and .2, or 2001:db8:(2 + net)::1 and ::2."""
    hosts = left, right
    pair = ("type", "veth", "peer", "name", devices[1], "netns", right.path)
    left.run("ip", "link", "add", devices[0], *pair)
    for index, (host, device) in enumerate(zip(hosts, devices, strict=True)):
        prefix = f"2001:db8:{2 + net}::" if ipv6 else f"192.0.{2 + net}."
        host.address, host.peer = f"{prefix}{1 + index}", f"{prefix}{2 - index}"
        length = ("/64", "nodad") if ipv6 else ("/24",)
        host.run("ip", "addr", "add", f"{host.address}{length[0]}", "dev", device, *length[1:])
        host.run("ip", "link", "set", device, "mtu", str(WIRE_MTU), "up")
