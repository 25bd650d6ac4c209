"""The process between two hosts (cable.py), which forwards VXLAN frames through emulated links.

python -m softnic.cluster.netns_lab.carrier SEED VNI MTU OWN-HOST[-HOST ...] OWN-HOST[-HOST ...] [loss=1% ...], with
addresses as 192.0.2.1:4789

Several hosts on one side share the link; each is known by the MAC addresses it has sent from.

It answers each line on stdin with its counters, as a line of JSON, and exits at the end of stdin.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import select
import sys
import time
from collections.abc import Sequence

from softnic import underlay
from softnic._native import ffi, lib
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.udp import VxlanLink
from softnic.packet.frames import Frames

REPORTED = {"link_kernel_dropped_datagrams": "missed"}
"""Names of the links' counters in the report: frames that the carrier was too slow to receive."""
BATCHES = 8
"""Batches received from one end before the other is served."""


def main(arguments: Sequence[str]) -> int:
    seed, vni, mtu, left, right, *emulation = arguments
    spec = EmulationSpec.parse(dict(each.split("=", 1) for each in emulation))
    ends = [_open_end(text, int(vni), int(mtu)) for text in (left, right)]
    links = [EmulatedLink(end, spec, seed=int(seed) + index) for index, end in enumerate(reversed(ends))]
    lib.sn_set_timer_slack()
    print("ready", flush=True)
    _forward(ends, links)
    return 0


def _open_end(text: str, vni: int, mtu: int) -> VxlanLink:
    own, *hosts = map(underlay.parse, text.split("-"))
    no_stations = (number.to_bytes(6) for number in range(len(hosts)))
    return VxlanLink(own, dict(zip(no_stations, hosts, strict=True)), vni=vni, mtu=mtu)


def _forward(ends: Sequence[VxlanLink], links: Sequence[EmulatedLink]) -> None:
    """Forward frames from each end until stdin ends."""
    poller = select.epoll()
    for readable in (sys.stdin, *ends):
        poller.register(readable, select.EPOLLIN)
    max_events = 1 + len(ends)
    fds, masks = ffi.new("int32_t[]", max_events), ffi.new("uint32_t[]", max_events)
    while True:
        due = min((at for link in links if (at := link.next_time()) is not None), default=math.inf)
        wait_ns = -1 if due == math.inf else max(0, math.ceil((due - time.monotonic()) * 1e9))
        ready = lib.sn_epoll_wait(poller.fileno(), wait_ns, fds, masks, max_events)
        if sys.stdin.fileno() in fds[0 : max(ready, 0)]:
            if not os.read(sys.stdin.fileno(), 4096):
                return
            _report(links)
        for end, link in zip(ends, links, strict=True):
            for _ in range(BATCHES):
                if (frames := end.receive(time.monotonic())) is None:
                    break
                for _, alike in itertools.groupby(frames, _destination):
                    link.send(Frames.of(alike), time.monotonic())
            link.advance(time.monotonic())


def _destination(frame: bytes) -> bytes:
    return frame[:6]


def _report(links: Sequence[EmulatedLink]) -> None:
    counted: dict[str, int] = {}
    for link in links:
        for name, value in link.counters().items():
            if name in REPORTED or name.startswith("emulated_"):
                name = REPORTED.get(name, name).removeprefix("emulated_")
                counted[name] = counted.get(name, 0) + value
    print(json.dumps(counted), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
