"""The process between the hosts of sites, which forwards VXLAN frames through emulated links.

python -m benchmarks.wan.carrier PATHS, where PATHS is JSON: of each host the addresses of the carrier and of the host,
its site, and the emulation of its link, up and down; of each two sites the emulation of the path between them.

    host -> its link, up -> (the path between the sites) -> the other host's link, down -> host

All are `softnic.link.emulation`, as in a cable between two hosts (softnic/cluster/netns_lab/cable.py). What hosts of a
site send to those of another one shares the path between them. A host is known by the MAC address of its node.

It answers each line on stdin with its counters, as a line of JSON, and exits at the end of stdin.
"""

from __future__ import annotations

import json
import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from softnic._native import ffi, lib
from softnic.cluster.netns_lab.cable import VNI
from softnic.cluster.netns_lab.carrier import BATCHES
from softnic.cluster.netns_lab.host import NIC_MTU
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.null import NullLink
from softnic.link.udp import VxlanLink
from softnic.packet.frames import Frames
from softnic.underlay import Address

Emulation = Mapping[str, str]
"""As in EmulationSpec.parse."""
ANY_STATION = bytes(6)
"""Each end has one peer, at which all stations are."""


class HostPaths(msgspec.Struct, frozen=True):
    """A host: where the carrier and it are, and its link."""

    own: Address
    address: Address
    mac: str
    """In hexadecimal."""
    site: int
    up: Emulation
    down: Emulation


class SitePath(msgspec.Struct, frozen=True):
    """The path from a site to another one."""

    source: int
    destination: int
    emulation: Emulation


class Paths(msgspec.Struct, frozen=True):
    """All that the carrier emulates."""

    hosts: list[HostPaths]
    between: list[SitePath]
    seed: int


class Onward(NullLink):
    """A link that passes what is sent on to a function."""

    def __init__(self, send: Callable[[Frames, float], None]) -> None:
        super().__init__(NIC_MTU)
        self._send = send

    def send(self, frames: Frames, now: float) -> None:
        self._send(frames, now)


class Carrier:
    """Emulated links of hosts and between sites."""

    def __init__(self, paths: Paths) -> None:
        self._hosts = paths.hosts
        self._sites: dict[int, list[int]] = {}
        for number, host in enumerate(paths.hosts):
            self._sites.setdefault(host.site, []).append(number)
        self._numbers = {bytes.fromhex(host.mac): number for number, host in enumerate(paths.hosts)}
        self.ends = [VxlanLink(host.own, {ANY_STATION: host.address}, vni=VNI, mtu=NIC_MTU) for host in paths.hosts]
        seeds = iter(range(paths.seed, sys.maxsize))
        self._up = [
            EmulatedLink(Onward(self._leaving(number)), EmulationSpec.parse(host.up), seed=next(seeds))
            for number, host in enumerate(paths.hosts)
        ]
        self._between = {
            (path.source, path.destination): EmulatedLink(
                Onward(self._arriving(path.destination)), EmulationSpec.parse(path.emulation), seed=next(seeds)
            )
            for path in paths.between
        }
        self._down = [
            EmulatedLink(end, EmulationSpec.parse(host.down), seed=next(seeds))
            for end, host in zip(self.ends, paths.hosts, strict=True)
        ]
        self._links = [*self._up, *self._between.values(), *self._down]
        """In the order in which frames pass them."""

    def receive(self, number: int, now: float) -> None:
        """Take what has come from a host."""
        for _ in range(BATCHES):
            if (frames := self.ends[number].receive(now)) is None:
                return
            for part in by_destination(frames):
                self._up[number].send(part, now)

    def advance(self, now: float) -> None:
        for link in self._links:
            link.advance(now)

    def next_time(self) -> float:
        """Return when `advance` has something to do; infinity: not before something comes."""
        return min((at for link in self._links if (at := link.next_time()) is not None), default=math.inf)

    def counters(self) -> dict[str, int]:
        """Return frames: `sent` and `lost` between sites, `dropped_full` by any queue, and `missed` by this process."""
        between = [link.counted for link in self._between.values()]
        return {
            "sent": sum(counted.sent for counted in between),
            "lost": sum(counted.lost for counted in between),
            "dropped_full": sum(link.counted.dropped_full for link in self._links),
            "missed": sum(end.counters()["link_kernel_dropped_datagrams"] for end in self.ends),
        }

    def _leaving(self, number: int) -> Callable[[Frames, float], None]:
        """Return what sends on frames that have passed a host's link."""
        site = self._hosts[number].site

        def send(frames: Frames, now: float) -> None:
            to = self._numbers.get(destination(frames))
            if to is not None and self._hosts[to].site != site:
                self._between[site, self._hosts[to].site].send(frames, now)
                return
            for other in (to,) if to is not None else [each for each in self._sites[site] if each != number]:
                self._down[other].send(frames, now)
            if to is None:  # to all, as ARP requests are
                for (source, _there), link in self._between.items():
                    if source == site:
                        link.send(frames, now)

        return send

    def _arriving(self, site: int) -> Callable[[Frames, float], None]:
        """Return what sends on frames that have arrived at a site."""

        def send(frames: Frames, now: float) -> None:
            to = self._numbers.get(destination(frames))
            for number in self._sites[site] if to is None else (to,):
                self._down[number].send(frames, now)

        return send


def destination(frames: Frames) -> bytes:
    """Return the MAC address that the first of some frames goes to."""
    start = int(frames.offsets[0])
    return frames.data[start : start + 6].tobytes()


def by_destination(frames: Frames) -> Iterator[Frames]:
    """Return the parts of a batch that have one destination each."""
    if len(frames) == 1:
        yield frames
        return
    macs = frames.data[frames.offsets[:, None] + np.arange(6, dtype=np.uint32)].astype(np.uint64)
    keys = macs @ (np.uint64(1) << np.arange(40, -1, -8, dtype=np.uint64))
    for key in np.unique(keys):
        yield frames.select(keys == key)


def main(arguments: Sequence[str]) -> int:
    carrier = Carrier(msgspec.json.decode(arguments[0], type=Paths))
    lib.sn_set_timer_slack()
    print("ready", flush=True)
    poller = select.epoll()
    for readable in (sys.stdin, *carrier.ends):
        poller.register(readable, select.EPOLLIN)
    numbers = {end.fileno(): number for number, end in enumerate(carrier.ends)}
    most = 1 + len(numbers)
    fds, masks = ffi.new("int32_t[]", most), ffi.new("uint32_t[]", most)
    while True:
        due = carrier.next_time()
        wait_ns = -1 if due == math.inf else max(0, math.ceil((due - time.monotonic()) * 1e9))
        ready = lib.sn_epoll_wait(poller.fileno(), wait_ns, fds, masks, most)
        for fd in fds[0 : max(ready, 0)]:
            if fd in numbers:
                carrier.receive(numbers[fd], time.monotonic())
                continue
            if not os.read(fd, 4096):
                return 0
            print(json.dumps(carrier.counters()), flush=True)
        carrier.advance(time.monotonic())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
