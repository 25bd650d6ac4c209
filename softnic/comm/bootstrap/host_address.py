"""The host that a process runs on: which processes share it, and the address at which other hosts reach it."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from softnic import underlay
from softnic.cluster.supervisor import base_directory
from softnic.underlay import BOTH, IPV4

WIRE_VARIABLE = "SOFTNIC_WIRE"
"""The address or the interface by which other hosts reach this one, optionally with :PORT; an IPv6 address with a port
stands in brackets."""
MAX_MTU = 9000
_DEFAULT_MTU = 1500
_MIN_MTU = 576
_SIOCGIFADDR, _SIOCGIFMTU = 0x8915, 0x8921
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_GLOBAL = 0
"""Scope of the addresses that other hosts can use: link-local ones need the name of an interface there."""


class Wire(NamedTuple):
    """Address of a NIC's UDP socket. Port 0: the system chooses."""

    host: str
    port: int
    mtu: int
    """MTU of the interface, in bytes of IP."""

    @property
    def local(self) -> bool:
        """True if only this host reaches it."""
        return underlay.is_local(self.host)

    @property
    def family(self) -> int:
        """That of the address."""
        return underlay.family(self.host)


def identity() -> str:
    """Return a text that is equal for processes that can share a NIC.

    They have one kernel, network namespace, user and directory for sockets.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    directory = base_directory().stat()
    return f"{boot} {Path('/proc/self/ns/net').readlink()} {os.getuid()} {directory.st_dev}:{directory.st_ino}"


def wires(environment: Mapping[str, str]) -> list[Wire]:
    """Return the addresses by which other hosts reach this one: one of IPv4, one of IPv6, or one of each, of which the
    first is to be preferred.

    SOFTNIC_WIRE, if it is set. Otherwise, for each family, the first that exists: this host's address on the route to
    the host of SOFTNIC_STORE, of MASTER_ADDR, or of mpirun; the one on the default route; the one of any interface. The
    family for which an earlier one exists is preferred, and IPv4 before IPv6. Without any, loopback.

    Raises
    ------
    ValueError
        If SOFTNIC_WIRE is neither an address nor an interface with one.
    """
    text = environment.get(WIRE_VARIABLE, "").strip()
    interfaces = _interfaces()
    if text:
        return _given(text, interfaces)
    found: dict[int, str] = {}
    every = [host for hosts in interfaces.values() for host in hosts]
    for own in [*_sources(environment), sorted(every, key=underlay.family)]:
        for host in own:
            if not underlay.is_local(host) and not underlay.is_link_local(host):
                found.setdefault(underlay.family(host), host)
    return [Wire(host, 0, _mtu(host, interfaces)) for host in found.values() or ("127.0.0.1",)]


def _given(text: str, interfaces: Mapping[str, Sequence[str]]) -> list[Wire]:
    """Return what SOFTNIC_WIRE names."""
    try:
        host, port = underlay.parse(text, 0)
    except ValueError as error:
        raise ValueError(f"{WIRE_VARIABLE}: {error}") from None
    hosts = sorted(interfaces.get(host, [host]), key=underlay.family)
    if not all(map(underlay.is_address, hosts)):
        raise ValueError(f"{WIRE_VARIABLE}={text}: {host!r} is neither an IP address nor an interface that has one")
    first = {underlay.family(each): each for each in reversed(hosts)}
    return [Wire(first[each], port, _mtu(first[each], interfaces)) for each in BOTH if each in first]


def _sources(environment: Mapping[str, str]) -> list[list[str]]:
    """Return this host's addresses on the routes to the other hosts that are known, and on the default routes."""
    named = (_host_of(environment.get("SOFTNIC_STORE", "")), master(environment))
    targets: list[list[str]] = []
    for target in (*named, *mpirun_addresses(environment)):
        with suppress(OSError):
            if target:
                targets.append([host for host, _ in underlay.addresses((target, 0))])
    targets.append(list(underlay.UNUSED.values()))
    return [
        sorted((own for target in hosts if (own := underlay.source(target)) is not None), key=underlay.family)
        for hosts in targets
    ]


def master(environment: Mapping[str, str]) -> str:
    """Return the host in MASTER_ADDR, of which some launchers write an IPv6 address in brackets; empty: none is set."""
    return environment.get("MASTER_ADDR", "").strip().removeprefix("[").removesuffix("]")


def _host_of(store: str) -> str:
    try:
        return underlay.parse(store, 0)[0]
    except ValueError:
        return ""


def mpirun_addresses(environment: Mapping[str, str]) -> list[str]:
    """Return the addresses of the host of Open MPI's mpirun."""
    uri = environment.get("OMPI_MCA_orte_hnp_uri", "")
    found = re.findall(r"tcp://([0-9.,]+):\d+|tcp6://\[([0-9a-fA-F:.,]+)\]:\d+", uri)
    return [host for ipv4, ipv6 in found for host in (ipv4 or ipv6).split(",")]


def nic_mtu(interface_mtus: Sequence[int], family: int = IPV4, encrypted: bool = False) -> int:
    """Return the MTU of NICs whose packets fit all these interfaces, over a family of addresses."""
    return max(_MIN_MTU, min(MAX_MTU, min(interface_mtus) - underlay.overhead(family, encrypted)))


def _interfaces() -> dict[str, list[str]]:
    """Return the addresses of the interfaces that have any, by name."""
    addresses: dict[str, list[str]] = {}
    for _, name in socket.if_nameindex():
        with suppress(OSError):
            addresses[name] = [socket.inet_ntoa(_ioctl(name, _SIOCGIFADDR)[20:24])]
    with suppress(OSError):
        for line in _IPV6_ADDRESSES.read_text().splitlines():
            address, _, _, scope, _, name = line.split()
            if int(scope, 16) == _GLOBAL:
                host = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))
                addresses.setdefault(name, []).append(underlay.numeric(host))
    return addresses


def _mtu(address: str, interfaces: Mapping[str, Sequence[str]]) -> int:
    for name, own in interfaces.items():
        if address in own:
            with suppress(OSError):
                return int(struct.unpack_from("i", _ioctl(name, _SIOCGIFMTU), 16)[0])
    return _DEFAULT_MTU


def _ioctl(interface: str, request: int) -> bytes:
    """Query an interface (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return fcntl.ioctl(probe, request, struct.pack("256s", interface.encode()[:15]))
