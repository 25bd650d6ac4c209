"""Hosts: network namespaces of their own, cables between them, kernel sockets and programs in them.

    with Host() as left, Host() as right:
        join(left, right)                                # eth0 at 192.0.2.1 and 192.0.2.2
        left.run("ping", "-c", "1", left.peer)           # any program, to its end
        with left.entered():
            server = socket.create_server(("", 8000))    # a socket of left's kernel, in this process

A namespace is a descriptor of this process and has no name, so nothing is left of it however the process ends; programs
that were started in it get SIGKILL with us. `join` is a cable that loses nothing. Not every kernel has netem: where
frames are to be lost, delayed or shuffled, cable.py joins NICs' wires and VXLAN devices instead, which does it
everywhere, from a seed.

All of it takes root; `missing` says what else is not there. (softnic/tapnic/namespaces.py has what takes no privilege.)
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
from types import TracebackType
from typing import Any

from softnic.cluster.netns_lab import offloads

NEEDED = ("ip", "nsenter", "setpriv")
RUN_S = 60.0
"""What `run` cuts a hanging program off at."""
WIRE_PORT = 4789
WIRE_MTU = 1500
NIC_MTU = WIRE_MTU - 50
"""Of what travels in VXLAN over a cable: VXLAN, UDP, IPv4 and the inner Ethernet header fit into WIRE_MTU with it."""
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


class HostError(Exception):
    """A program on a host failed; the text has all that it said."""


def missing() -> str:
    """Why there can be no hosts here; empty where there can."""
    if os.geteuid():
        return "network namespaces take root"
    if absent := [name for name in NEEDED if shutil.which(name) is None]:
        return f"not installed: {', '.join(absent)} (apt-get install iproute2 util-linux)"
    try:
        os.close(_made())
    except OSError as error:
        return f"this kernel makes no network namespaces: {error}"
    return ""


def _made() -> int:
    """A descriptor of a new namespace. A thread enters it and ends; no other of this process ever is in it."""
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


class Host:
    """A host of its own: one network namespace, with its loopback up."""

    def __init__(self) -> None:
        self._namespace = _made()
        self._started: list[subprocess.Popen[Any]] = []
        self.address = self.peer = ""
        """Of its end of the cable, and where the host at the other end is, or seems to be."""
        self.directory = Path(tempfile.mkdtemp(prefix="softnic-host-"))
        """For what its programs need: sockets, logs."""
        self.run("ip", "link", "set", "lo", "up")

    @property
    def path(self) -> str:
        """The namespace as a file, for `ip link ... netns PATH` and nsenter, of other processes too."""
        return f"/proc/{os.getpid()}/fd/{self._namespace}"

    def command(self, argv: Sequence[str]) -> list[str]:
        """What runs a program here, without a process between; it ends when the thread that started it does."""
        return ["nsenter", f"--net={self.path}", "setpriv", "--pdeathsig", "KILL", *argv]

    def run(self, *argv: str, timeout_s: float = RUN_S) -> str:
        """Runs a program to its end; returns its stdout. Raises HostError if its exit code is not 0."""
        done = subprocess.run(
            self.command(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode:
            raise HostError(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, *argv: str, **options: Any) -> subprocess.Popen[Any]:
        """Starts a program, with options of Popen's. `close` kills it if nobody else ended it."""
        process: subprocess.Popen[Any] = subprocess.Popen(self.command(argv), **options)
        self._started.append(process)
        return process

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is here: sockets that it makes are of this host's kernel, and stay so."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", self._namespace, _CLONE_NEWNET)
            try:
                yield
            finally:
                _call("setns", home, _CLONE_NEWNET)
        finally:
            os.close(home)

    def set(self, **sysctls: int | str) -> None:
        """Of net.ipv4: `host.set(tcp_sack=0)`."""
        with self.entered():
            for name, value in sysctls.items():
                Path(f"/proc/sys/net/ipv4/{name}").write_text(f"{value}\n")

    def set_offload(self, device: str, offload: str, on: bool) -> None:
        """As `ethtool -K DEVICE OFFLOAD on|off` does, for the offloads of offloads.py."""
        with self.entered():
            offloads.set_offload(device, offload, on)

    def vxlan(self, number: int, *, vni: int = 1) -> None:
        """A VXLAN device vx0 of the kernel's, node `number` on the NICs' network, whose one peer is the other host. As
        docs/many-machines.md says, with checksums and segmentation done by the kernel, since a veth does neither."""
        way = (
            "id",
            str(vni),
            "remote",
            self.peer,
            "dstport",
            str(WIRE_PORT),
            "srcport",
            str(WIRE_PORT),
            str(WIRE_PORT + 1),
        )
        self.run("ip", "link", "add", "vx0", "type", "vxlan", *way, "dev", "eth0")
        self.run("ip", "addr", "add", f"10.77.0.{number + 1}/24", "dev", "vx0")
        self.run("ip", "link", "set", "vx0", "mtu", str(NIC_MTU), "up")
        self.set_offload("vx0", "tx", False)

    def close(self) -> None:
        """Kills what still runs here, and lets the namespace go."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        os.close(self._namespace)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def join(left: Host, right: Host, *, net: int = 0, devices: tuple[str, str] = ("eth0", "eth0")) -> None:
    """A cable: a veth pair with an interface on each host, at 192.0.(2 + net).1 and .2."""
    hosts = left, right
    pair = ("type", "veth", "peer", "name", devices[1], "netns", right.path)
    left.run("ip", "link", "add", devices[0], *pair)
    for index, (host, device) in enumerate(zip(hosts, devices, strict=True)):
        host.address, host.peer = f"192.0.{2 + net}.{1 + index}", f"192.0.{2 + net}.{2 - index}"
        host.run("ip", "addr", "add", f"{host.address}/24", "dev", device)
        host.run("ip", "link", "set", device, "mtu", str(WIRE_MTU), "up")
