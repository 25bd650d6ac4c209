"""A bad cable between two hosts: it loses, delays, doubles, shuffles and damages what it carries.

    with bad_cable(left, right, rate="1gbit", delay="10ms", loss="0.1%") as cable:
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
from collections.abc import Iterator

from tests.daemon.nics import START_S, WAIT_S
from tests.namespaces import NIC_MTU, WIRE_PORT, Host, join


class Cable:
    """The program in the middle, tests.carrier."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def _line(self, timeout_s: float) -> str:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], timeout_s)[0], "the cable does not answer"
        line: str = self._process.stdout.readline()
        return line

    def wait_ready(self) -> None:
        assert self._line(START_S), "the cable did not get ready"

    def counters(self) -> dict[str, int]:
        """Of both directions: `sent`, `lost`, `duplicated`, ... as in EmulationCounters."""
        assert self._process.stdin is not None
        print("counters", file=self._process.stdin, flush=True)
        counted: dict[str, int] = json.loads(self._line(WAIT_S))
        return counted


@contextlib.contextmanager
def bad_cable(left: Host, right: Host, *, seed: int = 1, vni: int = 1, **emulation: str) -> Iterator[Cable]:
    """Gives both hosts an eth0. `emulation` is as in EmulationSpec.parse."""
    with Host() as middle:
        ends = []
        for net, host in enumerate((left, right)):
            join(host, middle, net=net, devices=("eth0", f"eth{net}"))
            ends.append(f"{host.peer}:{WIRE_PORT}-{host.address}:{WIRE_PORT}")
        how = [f"{key}={text}" for key, text in emulation.items()]
        command = [sys.executable, "-m", "tests.carrier", str(seed), str(vni), str(NIC_MTU), *ends, *how]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        cable = Cable(middle.start(*command, text=True, **pipes))
        cable.wait_ready()
        yield cable
