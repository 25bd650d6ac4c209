"""The link between a site and the public network: perfect, or with delay and loss.

A perfect link is a veth pair. A link with faults has a TAP device at each end, and a process (carrier.py) passes frames
between them through the emulated links of softnic.link.emulation, from a seed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softnic.cluster.netns_lab.cable import carrier_line
from softnic.cluster.netns_lab.host import NetnsHost

DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x2, 0x1000
"""linux/if_tun.h."""
Faults = Mapping[str, str]
"""As in EmulationSpec.parse, in each direction."""


@dataclass(slots=True)
class EmulatedCable:
    """Two TAP devices, by their file descriptors, which it owns, and what happens to frames between them."""

    ends: tuple[int, ...]
    """Empty after `close`."""
    faults: Faults

    def close(self) -> None:
        """Close the file descriptors of this process; the devices exist as long as another process has them."""
        ends, self.ends = self.ends, ()
        for end in ends:
            os.close(end)


def connect(left: NetnsHost, right: NetnsHost, devices: tuple[str, str], faults: Faults) -> EmulatedCable | None:
    """Make the devices of a link, one on each host, which are down. Return it if it has faults; it needs a carrier."""
    if not faults:
        pair = ("type", "veth", "peer", "name", devices[1], "netns", right.path)
        left.run("ip", "link", "add", devices[0], *pair)
        return None
    first = open_tap(left, devices[0])
    try:
        return EmulatedCable((first, open_tap(right, devices[1])), faults)
    except OSError:
        os.close(first)
        raise


def open_tap(host: NetnsHost, name: str) -> int:
    """Return a non-blocking file descriptor of a new TAP device on a host, which exists until it is closed."""
    with host.entered():  # the device belongs to the namespace in which the file is opened
        descriptor = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
        except OSError:
            os.close(descriptor)
            raise
    return descriptor


class TapCarrier:
    """The process that passes frames between the ends of cables, until `close`. It takes over the file descriptors.

    `start` is Popen or similar.
    """

    def __init__(self, start: Callable[..., subprocess.Popen[Any]], cables: Sequence[EmulatedCable], seed: int) -> None:
        passed = [{"ends": cable.ends, "faults": dict(cable.faults)} for cable in cables]
        ends = [end for cable in cables for end in cable.ends]
        command = [sys.executable, "-m", "softnic.cluster.nat_lab.carrier", str(seed), json.dumps(passed)]
        try:
            self._process = start(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=ends)
        finally:
            for cable in cables:
                cable.close()
        carrier_line(self._process)

    def counters(self) -> list[dict[str, int]]:
        """Return the counters of each cable, of both directions, as in EmulationCounters."""
        assert self._process.stdin is not None
        print("counters", file=self._process.stdin, flush=True)
        counted: list[dict[str, int]] = json.loads(carrier_line(self._process))
        return counted

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
