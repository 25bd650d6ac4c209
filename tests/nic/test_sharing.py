"""Fairness of streams at a shared bottleneck: between two networks, or the link of their own NIC.

Nodes on the left, each with its own way, send to one on the right through a router with a queue that drops its tail:
RFC 5681's world. Shares are of wire bytes that arrived.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from softnic.link.base import Link
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryLink, MemoryNetwork
from softnic.nic.node import Node
from softnic.packet.segment import PLAIN, Tag
from softnic.sim.clock import Actor, VirtualClock
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.host import Host
from tests.tcp.flows import flow

from .harness import TOS

RATE_BPS = 10e6
DELAY_S = 0.010
COALESCE_S = 2e-3
"""Fewer turns than links take by themselves."""
SETTLED_S, MEASURED_S = 5.0, 12.0
FLOATS = np.random.default_rng(3).standard_normal(1 << 18, np.float32) * np.float32(6e-4)
"""About 8:1 by bounded:10."""


class Router:
    """Forwards frames between two networks; the direction to the right is the bottleneck."""

    def __init__(
        self,
        left: MemoryNetwork,
        right: MemoryNetwork,
        rate_bps: float,
        loss: float,
        queue_products: float,
        delay_s: float = DELAY_S,
    ) -> None:
        queue = int(queue_products * rate_bps / 8 * 2 * delay_s)
        self._ports: list[MemoryLink] = [left.port(), right.port()]
        there = EmulationSpec(rate_bps=rate_bps, delay_s=delay_s, limit_bytes=queue, loss=loss, coalesce_s=COALESCE_S)
        back = EmulationSpec(delay_s=delay_s, coalesce_s=COALESCE_S)
        self._ways: list[Link] = [
            EmulatedLink(self._ports[1], there, seed=1),
            EmulatedLink(self._ports[0], back, seed=2),
        ]

    def advance(self, now: float) -> None:
        for port, way in zip(self._ports, self._ways, strict=True):
            while (frames := port.receive(now)) is not None:
                way.send(frames, now)
            way.advance(now)

    def next_time(self) -> float | None:
        return min((at for way in self._ways if (at := way.next_time()) is not None), default=None)

    @property
    def dropped(self) -> int:
        return self._ways[0].counters()["emulated_dropped_full"]


@dataclass
class Stream:
    """Writes without end; the other end reads as data arrives."""

    host: Host
    connection: Connection
    data: memoryview
    written: int = 0

    def write(self) -> None:
        while True:
            start = self.written % len(self.data)
            taken = self.connection.send(self.data[start : start + (1 << 18)])
            self.written += taken
            if not taken:
                return


class Programs:
    """Both ends of all streams."""

    def __init__(self, receiver: Node) -> None:
        self._receiver = receiver
        self._listener = receiver.host.listen(0, 80, 50, 0.0)
        self._accepted: list[Connection] = []
        self.streams: list[Stream] = []

    def open(self, sender: Node, tagged: bool, congestion: str, now: float) -> Stream:
        stream = Stream(sender.host, sender.host.connect(self._receiver.nic.ip, 80, now), memoryview(FLOATS.tobytes()))
        stream.connection.set_congestion(congestion)
        stream.connection.tag(Tag(TOS) if tagged else PLAIN)
        self.streams.append(stream)
        return stream

    def advance(self, now: float) -> None:
        del now
        for stream in self.streams:
            stream.host.events.clear()
            stream.write()
        while (connection := self._listener.accept()) is not None:
            self._accepted.append(connection)
        for connection in self._accepted:
            if flow(connection).unread:
                connection.consume(flow(connection).unread)

    def next_time(self) -> float | None:
        return None


def node(network: MemoryNetwork, number: int, spec: EmulationSpec | None = None) -> Node:
    link: Link = network.port()
    if spec is not None:
        link = EmulatedLink(link, spec, seed=number)
    return Node(
        0x0A4D0000 + number,
        link,
        rng=random.Random(number),
        offloads={TOS: "bounded:10"},
        config=TcpConfig(send_buffer=16 << 20, receive_buffer=32 << 20),
    )


def shares(
    kinds: Sequence[tuple[bool, str]],
    *,
    one_node: bool = False,
    loss: float = 0.0,
    rate_bps: float = RATE_BPS,
    settled_s: float = SETTLED_S,
    measured_s: float = MEASURED_S,
    queue_products: float = 1.0,
    delay_s: float = DELAY_S,
) -> tuple[list[float], float, Router]:
    """Opens streams (tagged, congestion control) a second apart. Their shares of what arrived, all of it as part of
    the bottleneck's rate, and the router, whose queue is as long as this number of products of rate and round trip; one
    is what routers' queues should have."""
    left, right = MemoryNetwork(), MemoryNetwork()
    router = Router(left, right, rate_bps, loss, queue_products, delay_s)
    receiver = node(right, 100)
    own = EmulationSpec(rate_bps=0.9 * rate_bps, coalesce_s=COALESCE_S) if one_node else None
    senders = [node(left, 1 + number, own) for number in range(1 if one_node else len(kinds))]
    programs = Programs(receiver)
    actors: list[Actor] = [programs, *senders, router, receiver]
    clock = VirtualClock(86_400.0)  # time does not begin with a connection
    for (tagged, congestion), sender in zip(kinds, itertools.cycle(senders), strict=False):
        programs.open(sender, tagged, congestion, clock.now)
        clock.run_for(actors, 1.0)
    clock.run_for(actors, settled_s)
    before = [flow(stream.connection).scoreboard.delivered for stream in programs.streams]
    clock.run_for(actors, measured_s)
    got = [
        flow(stream.connection).scoreboard.delivered - old for stream, old in zip(programs.streams, before, strict=True)
    ]
    return [each / sum(got) for each in got], sum(got) * 8 / measured_s / rate_bps, router


@pytest.mark.parametrize(
    ("congestion", "tagged"), [("cubic", False), ("cubic", True), ("bbr", True)], ids=lambda value: str(value)
)
@pytest.mark.slow
def test_two_streams_share_a_bottleneck(congestion: str, tagged: bool) -> None:
    found, used, router = shares([(tagged, congestion), (False, congestion)])
    assert 0.4 <= found[0] <= 0.6, found
    assert used > 0.95
    assert router.dropped or congestion == "bbr"


@pytest.mark.parametrize("queue_products", [1.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_two_bbr_streams_share_evenly(queue_products: float) -> None:
    """The first has all of the bottleneck when the second begins."""
    found, used, _ = shares([(False, "bbr")] * 2, queue_products=queue_products)
    assert min(found) >= 0.8 * max(found), found
    assert used > 0.95


def test_bbr_leaves_a_long_queue_empty() -> None:
    """It is never longer than one and a half products of rate and round trip, from the first frame on."""
    left, right = MemoryNetwork(), MemoryNetwork()
    router, sender, receiver = Router(left, right, RATE_BPS, 0.0, 8.0), node(left, 1), node(right, 100)
    programs, clock = Programs(receiver), VirtualClock(86_400.0)
    stream = programs.open(sender, False, "bbr", clock.now)
    longest = 0.0
    for _ in range(400):
        clock.run_for([programs, sender, router, receiver], 0.02)
        longest = max(longest, flow(stream.connection).rto_estimator.latest)
    assert longest <= 2.5 * 2 * DELAY_S
    assert flow(stream.connection).scoreboard.delivered > 0.9 * 8.0 * RATE_BPS / 8


@pytest.mark.parametrize("first", ["cubic", "bbr"])
@pytest.mark.parametrize(
    ("rate_bps", "delay_s"),
    [(20e6, 0.010), *(pytest.param(*path, marks=pytest.mark.slow) for path in ((100e6, 0.010), (100e6, 0.025)))],
)
def test_bbr_leaves_a_part_of_a_bottleneck_to_cubic(rate_bps: float, delay_s: float, first: str) -> None:
    """The queue is a round trip long, where BBR without a bound leaves CUBIC an eighth, and one that looks for more in
    every eight round trips a tenth where a window is some hundred frames."""
    second = "bbr" if first == "cubic" else "cubic"
    settled_s, measured_s = (SETTLED_S, MEASURED_S) if rate_bps == 20e6 else (10.0, 30.0)
    found, used, router = shares(
        [(False, first), (False, second)],
        rate_bps=rate_bps,
        delay_s=delay_s,
        settled_s=settled_s,
        measured_s=measured_s,
    )
    assert 0.3 <= found[0] <= 0.7, found
    assert used > 0.95
    assert router.dropped


def test_two_streams_share_the_link_of_their_nic() -> None:
    found, used, router = shares([(True, "cubic"), (False, "cubic")], one_node=True, measured_s=6.0)
    assert 0.45 <= found[0] <= 0.55, found
    assert used > 0.89
    assert not router.dropped


@pytest.mark.parametrize(("congestion", "loss", "least"), [("cubic", 0.0, 0.95), ("bbr", 0.001, 0.8)])
def test_a_long_fast_path_is_filled(congestion: str, loss: float, least: float) -> None:
    """1 Gbit/s and 20 ms there and back. With losses, no window that they shrink fills it (bbr.py). To find its rate
    takes some round trips with too much in flight, and no more."""
    _, used, router = shares([(False, congestion)], loss=loss, rate_bps=1e9, settled_s=0.0, measured_s=1.0)
    assert used > least
    assert router.dropped < 4 * (1e9 / 8 * 0.02 / 1514)
