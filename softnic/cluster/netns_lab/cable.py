"""A cable between two hosts that loses, delays, duplicates, reorders and corrupts frames.

    with bad_cable(left, right, {"rate": "1gbit", "delay": "10ms", "loss": "0.1%"}) as cable:
        ...
        assert cable.counters()["lost"]

A third host between the two has an address on each side, which each host uses as the address of the other one. It
forwards VXLAN datagrams, so it serves VXLAN devices of kernels and NICs alike. softnic.link.emulation applies the
faults in both directions, from a seed. netem does the same, but many kernels lack it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

from softnic import underlay
from softnic.cluster.netns_lab.host import NIC_MTU, WIRE_PORT, HostError, NetnsHost, join
from softnic.underlay import Address

ANSWER_S = 60.0
"""Time limit for replies of the carrier."""
VNI = 1
"""The default of NICs and `NetnsHost.vxlan`."""
End = Sequence[Address]
Start = Callable[..., "subprocess.Popen[Any]"]


def carrier_line(process: subprocess.Popen[Any]) -> str:
    """Return the next line of a carrier. Raises HostError if it says nothing."""
    assert process.stdout is not None
    line: str = ""
    if wait([process.stdout.fileno()], ANSWER_S):
        line = process.stdout.readline()
    if not line:
        raise HostError("the cable does not answer")
    return line


class Cable:
    """The process between two hosts (carrier.py), until `close`.

    `start` is Popen or similar. Each of the two `ends` is an address of the carrier and those of the hosts on
    this side.
    """

    def __init__(self, start: Start, ends: Sequence[End], emulation: Mapping[str, str], seed: int, mtu: int) -> None:
        command = [sys.executable, "-m", "softnic.cluster.netns_lab.carrier", str(seed), str(VNI), str(mtu)]
        command += ["-".join(map(underlay.text, addresses)) for addresses in ends]
        command += [f"{key}={text}" for key, text in emulation.items()]
        self._process = start(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        carrier_line(self._process)

    def counters(self) -> dict[str, int]:
        """Return the counters of both directions: those of EmulationCounters, and `missed`, the frames that the carrier
        dropped because it was too slow."""
        assert self._process.stdin is not None
        print("counters", file=self._process.stdin, flush=True)
        counted: dict[str, int] = json.loads(carrier_line(self._process))
        return counted

    def close(self) -> None:
        self._process.communicate()

    def __enter__(self) -> Cable:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@contextlib.contextmanager
def bad_cable(
    left: NetnsHost,
    right: NetnsHost,
    emulation: Mapping[str, str],
    *,
    seed: int = 1,
    ports: Sequence[int] = (WIRE_PORT,),
) -> Iterator[Cable]:
    """Join two hosts by their interfaces eth0. `emulation` is as in EmulationSpec.parse.

    `ports` are those at which each host has NICs and VXLAN devices, which share the cable.
    """
    with NetnsHost() as middle:
        ends: list[End] = []
        for net, host in enumerate((left, right)):
            join(host, middle, net=net, devices=("eth0", f"eth{net}"))
            ends.append([(host.peer, WIRE_PORT), *((host.address, port) for port in ports)])
        with Cable(
            lambda command, **options: middle.start(*command, **options), ends, emulation, seed, NIC_MTU
        ) as cable:
            yield cable
