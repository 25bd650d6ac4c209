"""The process that passes frames between TAP devices (cable.py) through emulated links.

python -m softnic.cluster.nat_lab.carrier SEED CABLES, where CABLES is JSON: of each cable the file descriptors of its
ends, which this process inherits, and its faults as in EmulationSpec.parse.

It answers each line on stdin with the counters of all cables, as a line of JSON, and exits at the end of stdin.
"""

from __future__ import annotations

import json
import math
import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Any

from softnic._native import ffi, lib
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.null import NullLink
from softnic.packet.frames import Frames

BATCH = 64
"""Frames read from one end before the others are served."""
FRAME_BYTES = 65536


class TapEnd(NullLink):
    """A TAP device as a link. Frames that the kernel refuses are lost."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor

    def send(self, frames: Frames, now: float) -> None:  # noqa: ARG002
        for frame in frames:
            try:
                os.write(self.descriptor, frame)
            except OSError:  # the device is down, or the kernel has no memory
                continue

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        arrived: list[bytes] = []
        try:
            while len(arrived) < BATCH:
                arrived.append(os.read(self.descriptor, FRAME_BYTES))
        except OSError:  # nothing is left, or the device is down
            pass
        return Frames.of(arrived) if arrived else None


class CarriedCable:
    """Two ends, and an emulated link to each."""

    def __init__(self, ends: Sequence[int], faults: dict[str, str], seed: int) -> None:
        spec = EmulationSpec.parse(faults)
        self.ends = [TapEnd(end) for end in ends]
        self.links = [EmulatedLink(end, spec, seed=seed + side) for side, end in enumerate(reversed(self.ends))]

    def receive(self, side: int, now: float) -> None:
        """Pass on what has come from one end."""
        if (frames := self.ends[side].receive(now)) is not None:
            self.links[side].send(frames, now)

    def counters(self) -> dict[str, int]:
        counted = [link.counters() for link in self.links]
        return {name.removeprefix("emulated_"): sum(each[name] for each in counted) for name in counted[0]}


def main(arguments: Sequence[str]) -> int:
    seed, texts = arguments
    described: list[dict[str, Any]] = json.loads(texts)
    cables = [CarriedCable(**each, seed=int(seed) + 2 * number) for number, each in enumerate(described)]
    lib.sn_set_timer_slack()
    print("ready", flush=True)
    _carry(cables)
    return 0


def _carry(cables: Sequence[CarriedCable]) -> None:
    """Pass frames until stdin ends."""
    where = {end.descriptor: (cable, side) for cable in cables for side, end in enumerate(cable.ends)}
    links = [link for cable in cables for link in cable.links]
    poller = select.epoll()
    for readable in (sys.stdin.fileno(), *where):
        poller.register(readable, select.EPOLLIN)
    most = 1 + len(where)
    fds, masks = ffi.new("int32_t[]", most), ffi.new("uint32_t[]", most)
    while True:
        due = min((at for link in links if (at := link.next_time()) is not None), default=math.inf)
        wait_ns = -1 if due == math.inf else max(0, math.ceil((due - time.monotonic()) * 1e9))
        ready = lib.sn_epoll_wait(poller.fileno(), wait_ns, fds, masks, most)
        for fd in fds[0 : max(ready, 0)]:
            if fd in where:
                cable, side = where[fd]
                cable.receive(side, time.monotonic())
                continue
            if not os.read(fd, 4096):
                return
            print(json.dumps([cable.counters() for cable in cables]), flush=True)
        for link in links:
            link.advance(time.monotonic())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
