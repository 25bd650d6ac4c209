"""The host that a process runs on: which processes share it, and the address at which other hosts reach it."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import re
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from softnic.cluster.supervisor import base_directory

WIRE_VARIABLE = "SOFTNIC_WIRE"
"""The address or the interface by which other hosts reach this one, optionally with :PORT."""
MAX_MTU = 9000
OVERHEAD = 50
"""Bytes of VXLAN around a packet of a NIC: Ethernet 14, VXLAN 8, UDP 8, IPv4 20."""
ENCRYPTED_OVERHEAD = 74
"""Bytes around a packet with encryption in place of VXLAN, whose header and tag have 16 each."""
_DEFAULT_MTU = 1500
_MIN_MTU = 576
_SIOCGIFADDR, _SIOCGIFMTU = 0x8915, 0x8921
_UNUSED_ADDRESS = "192.0.2.1"
"""An address without a host (RFC 5737), to which the default route leads. Nothing is sent to it."""


class Wire(NamedTuple):
    """Address of a NIC's UDP socket. Port 0: the system chooses."""

    host: str
    port: int
    mtu: int
    """MTU of the interface, in bytes of IPv4."""

    @property
    def local(self) -> bool:
        """True if only this host reaches it."""
        return ipaddress.IPv4Address(self.host).is_loopback


def identity() -> str:
    """Return a text that is equal for processes that can share a NIC.

    They have one kernel, network namespace, user and directory for sockets.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    directory = base_directory().stat()
    return f"{boot} {Path('/proc/self/ns/net').readlink()} {os.getuid()} {directory.st_dev}:{directory.st_ino}"


def wire(environment: Mapping[str, str]) -> Wire:
    """Return the address by which other hosts reach this one.

    The first that exists is taken: SOFTNIC_WIRE; this host's address on the route to the host of SOFTNIC_STORE, of
    MASTER_ADDR, or of mpirun; the one on the default route; the one of any interface; loopback.

    Raises
    ------
    ValueError
        If SOFTNIC_WIRE is neither an address nor an interface with one.
    """
    text = environment.get(WIRE_VARIABLE, "").strip()
    interfaces = _interfaces()
    if text:
        host, port = _split_port(text)
        host = interfaces.get(host, host)
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(
                f"{WIRE_VARIABLE}={text}: {host!r} is neither an IPv4 address nor an interface that has one"
            ) from None
        return Wire(host, port, _mtu(host, interfaces))
    named = (environment.get("SOFTNIC_STORE", "").rpartition(":")[0], environment.get("MASTER_ADDR", ""))
    targets = (*named, *mpirun_addresses(environment), _UNUSED_ADDRESS)
    own = [_source_address(target) for target in targets if target]
    host = next((each for each in [*own, *interfaces.values()] if not each.startswith(("127.", "0."))), "127.0.0.1")
    return Wire(host, 0, _mtu(host, interfaces))


def mpirun_addresses(environment: Mapping[str, str]) -> list[str]:
    """Return the IPv4 addresses of the host of Open MPI's mpirun."""
    found = re.search(r"tcp://([0-9.,]+):\d+", environment.get("OMPI_MCA_orte_hnp_uri", ""))
    return found[1].split(",") if found else []


def nic_mtu(interface_mtus: list[int], encrypted: bool = False) -> int:
    """Return the MTU of NICs whose packets fit all these interfaces."""
    overhead = ENCRYPTED_OVERHEAD if encrypted else OVERHEAD
    return max(_MIN_MTU, min(MAX_MTU, min(interface_mtus) - overhead))


def _split_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, 0
    if not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{WIRE_VARIABLE}={text}: {port!r} is not a port")
    return host, int(port)


def _source_address(target: str) -> str:
    """Return this host's address on the route to another host; 0.0.0.0 if there is no route."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((target, 9))
        address: str = probe.getsockname()[0]
        return address
    return "0.0.0.0"


def _interfaces() -> dict[str, str]:
    """Return the IPv4 addresses of the interfaces that have one, by name."""
    addresses = {}
    for _, name in socket.if_nameindex():
        with suppress(OSError):
            addresses[name] = socket.inet_ntoa(_ioctl(name, _SIOCGIFADDR)[20:24])
    return addresses


def _mtu(address: str, interfaces: Mapping[str, str]) -> int:
    for name, own in interfaces.items():
        if own == address:
            with suppress(OSError):
                return int(struct.unpack_from("i", _ioctl(name, _SIOCGIFMTU), 16)[0])
    return _DEFAULT_MTU


def _ioctl(interface: str, request: int) -> bytes:
    """Query an interface (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return fcntl.ioctl(probe, request, struct.pack("256s", interface.encode()[:15]))
