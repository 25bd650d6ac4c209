"""What runs in the middle of a bad cable (cable.py): takes VXLAN frames at either end and lets them go at the other.

python -m softnic.cluster.netns_lab.carrier SEED VNI MTU OWN-HOST OWN-HOST [loss=1% ...], with addresses as
192.0.2.1:4789

Answers each line on its stdin with its counters, as a line of JSON, and ends when that ends.
"""

from __future__ import annotations

import json
import math
import os
import select
import sys
import time
from collections.abc import Sequence

from softnic._native import ffi, lib
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.sockets import Address
from softnic.link.udp import VxlanLink
from softnic.packet.frames import Frames

ANY_STATION = bytes(6)
"""An end has one peer, so that is where all stations are."""
TOLD = {"link_kernel_dropped_datagrams": "missed"}
"""Counters of the links inside that tell of the cable: it came too late to take those frames."""
BATCHES = 8
"""Taken from one end before the other has its turn."""


def main(arguments: Sequence[str]) -> int:
    seed, vni, mtu, left, right, *how = arguments
    spec = EmulationSpec.parse(dict(each.split("=", 1) for each in how))
    ends = [_end(text, int(vni), int(mtu)) for text in (left, right)]
    ways = [EmulatedLink(end, spec, seed=int(seed) + index) for index, end in enumerate(reversed(ends))]
    lib.sn_set_timer_slack()
    print("ready", flush=True)
    _carry(ends, ways)
    return 0


def _address(text: str) -> Address:
    host, port = text.split(":")
    return host, int(port)


def _end(text: str, vni: int, mtu: int) -> VxlanLink:
    own, host = map(_address, text.split("-"))
    return VxlanLink(own, {ANY_STATION: host}, vni=vni, mtu=mtu)


def _carry(ends: Sequence[VxlanLink], ways: Sequence[EmulatedLink]) -> None:
    """From each end along its way, until stdin ends."""
    poller = select.epoll()
    for readable in (sys.stdin, *ends):
        poller.register(readable, select.EPOLLIN)
    most = 1 + len(ends)
    descriptors, masks = ffi.new("int32_t[]", most), ffi.new("uint32_t[]", most)
    while True:
        due = min((at for way in ways if (at := way.next_time()) is not None), default=math.inf)
        wait_ns = -1 if due == math.inf else max(0, math.ceil((due - time.monotonic()) * 1e9))
        ready = lib.sn_epoll_wait(poller.fileno(), wait_ns, descriptors, masks, most)
        if sys.stdin.fileno() in descriptors[0 : max(ready, 0)]:
            if not os.read(sys.stdin.fileno(), 4096):
                return
            _tell(ways)
        for end, way in zip(ends, ways, strict=True):
            for _ in range(BATCHES):
                if (frames := end.receive(time.monotonic())) is None:
                    break
                way.send(Frames.of(frames), time.monotonic())
            way.advance(time.monotonic())


def _tell(ways: Sequence[EmulatedLink]) -> None:
    counted: dict[str, int] = {}
    for way in ways:
        for name, value in way.counters().items():
            if name in TOLD or name.startswith("emulated_"):
                name = TOLD.get(name, name).removeprefix("emulated_")
                counted[name] = counted.get(name, 0) + value
    print(json.dumps(counted), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
