"""A node: a host's TCP and its NIC on one link. Sans-IO: the owner calls `advance` when `next_time` has come or
anything has happened.

TCP is asked for output only while the link has space, so that the node itself loses no frames.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

from msgspec import to_builtins  # asdict takes twenty times as long

from softnic.link.base import Link
from softnic.nic.nic import Nic, NicOptions
from softnic.nic.observer import NodeObserver
from softnic.nic.turn import Turn
from softnic.packet.ethernet import mac_of
from softnic.packet.segment import Segment, Transmitted
from softnic.tcp.config import TcpConfig
from softnic.tcp.fast_path import segment_of
from softnic.tcp.flow import Flow
from softnic.tcp.host import Host


class Node:
    """One node of a softnic network.

    Parameters
    ----------
    ip : int
        The node's address, in host order.
    link : Link
        Its link, whose MTU it takes.
    rng : random.Random
        Source of all its randomness.
    mac : bytes, optional
        Its MAC; by default the one that softnic derives from the address.
    name : str
        Its name.
    capture : NodeObserver, optional
        Observes the segments between TCP and NIC.
    config : TcpConfig, optional
        Options of TCP.
    make_turn : callable
        Makes the turn of NIC and host on the link.
    relay_of : callable
        Returns the address of the relay that a node is reached by, for errors; empty: it is reached directly.
    **options
        Options of the NIC.
    """

    def __init__(
        self,
        ip: int,
        link: Link,
        *,
        rng: random.Random,
        mac: bytes | None = None,
        name: str = "node0",
        capture: NodeObserver | None = None,
        config: TcpConfig | None = None,
        make_turn: Callable[[Nic, Host, Link, NodeObserver | None], Turn] = Turn,
        relay_of: Callable[[int], str] = lambda _ip: "",
        **options: Unpack[NicOptions],
    ) -> None:
        mac = mac_of(ip) if mac is None else mac
        self.name = name
        self.link = link
        self.nic = Nic(link, mac, ip, **options)
        self.host = Host(
            *(ip, mac),
            transmitter=self,
            send_frame=self._send_frame,
            rng=rng,
            config=replace(config or TcpConfig(), mtu=link.mtu),
            offload_tos=frozenset(self.nic.offloads.codecs),
            cuts_of=self.nic.offloads.cuts_of,
            relay_of=relay_of,
        )
        self.nic.lookup = self.host.tcp.lookup
        self._capture = capture
        self._now = 0.0
        self.turn = make_turn(self.nic, self.host, link, capture)

    def advance(self, now: float) -> None:
        """Receive, run timers and send: everything due at `now`."""
        self.receive(now)
        self.send(now)

    def receive(self, now: float) -> None:
        """Receive and run timers: the first half of `advance`. An owner that serves its readers before `send` has the
        acknowledgements go with their answers."""
        self._now = now
        self.turn.receive(now)

    def send(self, now: float) -> None:
        """Send: the second half of `advance`."""
        self.turn.send(now)

    def next_time(self) -> float | None:
        """Return when `advance` must be called next if nothing happens before; None: not at all."""
        if self.turn.is_due:
            return self._now
        host, link = self.host.next_time(), self.link.next_time()
        if host is None or (link is not None and link < host):
            return link
        return host

    def transmit(self, segment: Segment, destination: bytes, max_frames: int, now: float) -> Transmitted:
        """Send a segment of the host; see `Transmitter`."""
        transmitted = self.nic.transmit(segment, destination, max_frames, now)
        if self._capture is not None:
            self._capture.sent(segment, transmitted, now)
        return transmitted

    def transmit_output(self, flow: Flow, out: Any, destination: bytes, now: float) -> Transmitted:
        """Send what the fast path has chosen; as a segment while a capture is in progress."""
        if self.is_captured:
            return self.transmit(segment_of(flow, out), destination, out.frames, now)
        return self.nic.transmit_output(flow, out, destination, now)

    def _send_frame(self, frame: bytes, now: float) -> None:
        if self._capture is not None:
            self._capture.frame(frame, now, outgoing=True)
        self.nic.send_frame(frame, now)

    @property
    def is_captured(self) -> bool:
        """Whether a capture is in progress."""
        return self._capture is not None and self._capture.active

    def counters(self) -> dict[str, int]:
        """Return all counters of NIC, stack and link, by name."""
        return {**to_builtins(self.nic.counters), **to_builtins(self.host.counters), **self.link.counters()}
