"""What a process knows of the host it is on: whether others are on the same one, and how other hosts reach it."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from softnic.cluster.supervisor import base_directory

WIRE_VARIABLE = "SOFTNIC_WIRE"
"""The address, or the interface, by which other hosts reach this one, with or without :PORT."""
LONGEST_MTU = 9000
OVERHEAD = 50
"""Bytes that VXLAN over UDP puts around a NIC's packet: Ethernet 14, VXLAN 8, UDP 8, IPv4 20."""
SEALED_OVERHEAD = 74
"""And what sealing does in VXLAN's place: header 16, tag 16."""
_DEFAULT_MTU = 1500
_SHORTEST_MTU = 576
_SIOCGIFADDR, _SIOCGIFMTU = 0x8915, 0x8921
_SOMEWHERE = "192.0.2.1"
"""Of no host (RFC 5737): the way there is the default route. Nothing is sent."""


class Wire(NamedTuple):
    """Where a NIC's frames come to on this host. Port 0: any."""

    host: str
    port: int
    mtu: int
    """Bytes of IPv4 that its interface takes."""

    @property
    def local(self) -> bool:
        """Only this host reaches it."""
        return ipaddress.IPv4Address(self.host).is_loopback


def identity() -> str:
    """The same text for processes that can share a NIC: one kernel, network namespace, user, directory of sockets."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    directory = base_directory().stat()
    return f"{boot} {Path('/proc/self/ns/net').readlink()} {os.getuid()} {directory.st_dev}:{directory.st_ino}"


def wire(environment: Mapping[str, str]) -> Wire:
    """By which address other hosts reach this one: what SOFTNIC_WIRE says; else this host's address on the way to
    SOFTNIC_STORE's, MASTER_ADDR's or mpirun's host; else on the default route; else of any interface. Raises
    ValueError."""
    text = environment.get(WIRE_VARIABLE, "").strip()
    interfaces = dict(_interfaces())
    if text:
        host, port = _host_and_port(text)
        host = interfaces.get(host, host)
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(
                f"{WIRE_VARIABLE}={text}: {host!r} is neither an IPv4 address nor an interface that has one"
            ) from None
        return Wire(host, port, _mtu(host, interfaces))
    named = (environment.get("SOFTNIC_STORE", "").rpartition(":")[0], environment.get("MASTER_ADDR", ""))
    anchors = (*named, *of_mpirun(environment), _SOMEWHERE)
    ways = [_towards(anchor) for anchor in anchors if anchor]
    found = next((way for way in [*ways, *interfaces.values()] if not way.startswith(("127.", "0."))), "127.0.0.1")
    return Wire(found, 0, _mtu(found, interfaces))


def of_mpirun(environment: Mapping[str, str]) -> list[str]:
    """The IPv4 addresses of the host that Open MPI's mpirun runs on, as it tells its processes."""
    found = re.search(r"tcp://([0-9.,]+):\d+", environment.get("OMPI_MCA_orte_hnp_uri", ""))
    return found[1].split(",") if found else []


def packet_bytes(mtus: list[int], sealed: bool = False) -> int:
    """The MTU of NICs whose hosts' interfaces take such packets: what fits into all of them."""
    return max(_SHORTEST_MTU, min(LONGEST_MTU, min(mtus) - (SEALED_OVERHEAD if sealed else OVERHEAD)))


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, 0
    if not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{WIRE_VARIABLE}={text}: {port!r} is no port")
    return host, int(port)


def _towards(host: str) -> str:
    """This host's address on the way to another; 0.0.0.0 where there is none."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        address: str = probe.getsockname()[0]
        return address
    return "0.0.0.0"


def _interfaces() -> Iterator[tuple[str, str]]:
    """Names and addresses of those that have one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                yield name, socket.inet_ntoa(_ask(probe, name, _SIOCGIFADDR)[20:24])


def _mtu(address: str, interfaces: Mapping[str, str]) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name, own in interfaces.items():
            if own == address:
                with suppress(OSError):
                    return int(struct.unpack_from("i", _ask(probe, name, _SIOCGIFMTU), 16)[0])
    return _DEFAULT_MTU


def _ask(probe: socket.socket, interface: str, what: int) -> bytes:
    """netdevice(7)."""
    return fcntl.ioctl(probe, what, struct.pack("256s", interface.encode()[:15]))
