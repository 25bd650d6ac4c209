"""A bad cable between two hosts: it loses, delays, doubles, shuffles and damages what it carries.

    with bad_cable(left, right, {"rate": "1gbit", "delay": "10ms", "loss": "0.1%"}) as cable:
        ...
        assert cable.counters()["lost"]

In its middle is a host that has an address on each side, and each host takes the near one for the other host. It
carries VXLAN datagrams, so what crosses it is any frame of a kernel's VXLAN device or of a NIC's wire, alike. What
happens to frames is softnic.link.emulation's, in both directions, from a seed. (netem would do the same where a kernel
has it; those of many virtual machines have not.)
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from softnic.cluster.netns_lab.host import NIC_MTU, WIRE_PORT, Host, HostError, join

ANSWER_S = 60.0
"""Far more than the program in the middle takes; what a hang is cut off at."""
VNI = 1
"""What NICs and `Host.vxlan` use unless they are told otherwise."""
Address = tuple[str, int]
Ends = tuple[Address, Address]
Start = Callable[..., "subprocess.Popen[Any]"]


class Cable:
    """The program in the middle, softnic.cluster.netns_lab.carrier. It carries until `close`, or the end of its
    `with`."""

    def __init__(self, start: Start, ends: Sequence[Ends], emulation: Mapping[str, str], seed: int, mtu: int) -> None:
        """`start` is Popen or alike; each of two ends is an address of the middle, and the host's that it is for."""
        command = [sys.executable, "-m", "softnic.cluster.netns_lab.carrier", str(seed), str(VNI), str(mtu)]
        command += ["-".join(f"{host}:{port}" for host, port in addresses) for addresses in ends]
        command += [f"{key}={text}" for key, text in emulation.items()]
        self._process = start(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line: str = ""
        if select.select([self._process.stdout], [], [], ANSWER_S)[0]:
            line = self._process.stdout.readline()
        if not line:
            raise HostError("the cable does not answer")
        return line

    def counters(self) -> dict[str, int]:
        """Of both directions: `sent`, `lost`, `duplicated`, ... as in EmulationCounters, and `missed`: what found no
        room at the cable itself, as the program came too late to take it."""
        assert self._process.stdin is not None
        print("counters", file=self._process.stdin, flush=True)
        counted: dict[str, int] = json.loads(self._line())
        return counted

    def close(self) -> None:
        self._process.communicate()

    def __enter__(self) -> Cable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def bad_cable(left: Host, right: Host, emulation: Mapping[str, str], *, seed: int = 1) -> Iterator[Cable]:
    """Gives both hosts an eth0. `emulation` is as in EmulationSpec.parse."""
    with Host() as middle:
        ends: list[Ends] = []
        for net, host in enumerate((left, right)):
            join(host, middle, net=net, devices=("eth0", f"eth{net}"))
            ends.append(((host.peer, WIRE_PORT), (host.address, WIRE_PORT)))
        with Cable(
            lambda command, **options: middle.start(*command, **options), ends, emulation, seed, NIC_MTU
        ) as cable:
            yield cable
