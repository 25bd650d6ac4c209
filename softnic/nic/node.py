"""A node: a host's stack and its NIC on one link. Sans-IO: whoever owns it calls `advance` when time has come or
something has happened, and `next_time` says when at the latest.

Back-pressure instead of losses of our own making: TCP is asked for output only as far as the link has max_payload;
when it has none, the link says when to come back.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, replace

from softnic.link.base import Link
from softnic.nic.adaptive_codec import CodecTimer
from softnic.nic.nic import Mode, Nic
from softnic.nic.observer import SegmentObserver
from softnic.nic.offload import DEFAULT_OFFLOADS
from softnic.packet.ethernet import mac_of
from softnic.packet.segment import Segment, Transmitted
from softnic.tcp.config import TcpConfig
from softnic.tcp.host import Host

MAX_BATCHES = 64
"""Batches received in one `advance`, so that sending gets its turn on a busy link."""


class Node:
    """One node of a softnic network. `rng` gives it all the randomness it needs; `config`'s MTU is the link's."""

    def __init__(
        self,
        ip: int,
        link: Link,
        *,
        rng: random.Random,
        mac: bytes | None = None,
        offloads: Mapping[int, str] = DEFAULT_OFFLOADS,
        mode: Mode = "fill",
        equal_sizes: bool = False,
        name: str = "node0",
        capture: SegmentObserver | None = None,
        config: TcpConfig | None = None,
        codec_timer: CodecTimer | None = None,
        link_rate_bps: float | None = None,
    ) -> None:
        mac = mac_of(ip) if mac is None else mac
        self.name = name
        self.link = link
        self.nic = Nic(
            *(link, mac, ip, offloads, mode),
            equal_sizes=equal_sizes,
            codec_timer=codec_timer,
            link_rate_bps=link_rate_bps,
        )
        self.host = Host(
            *(ip, mac),
            transmitter=self,
            send_frame=self._send_frame,
            rng=rng,
            config=replace(config or TcpConfig(), mtu=link.mtu),
            offload_tos=frozenset(self.nic.offloads.codecs),
        )
        self._capture = capture
        self._now = 0.0
        self._full = False

    def advance(self, now: float) -> None:
        """Does all there is to do at `now`: what came in, timers, what may go out."""
        self.receive(now)
        self.send(now)

    def receive(self, now: float) -> None:
        """The first half of `advance`: what came in, and timers. Whoever moves what was received to its reader, and
        the reader's answer back, before `send`, has the acknowledgement go with the answer."""
        self._now = now
        self.link.advance(now)
        self._take(now)
        self.host.advance(now)

    def send(self, now: float) -> None:
        """The second half of `advance`: what may go out."""
        self._output(now)
        self.nic.flows.retain(self.host.tcp.keys)

    def _take(self, now: float) -> None:
        for _ in range(MAX_BATCHES):
            batch = self.nic.receive(now)
            if batch is None:
                return
            for item in batch:
                if isinstance(item, Segment):
                    if self._capture is not None:
                        self._capture.received(item, now)
                    self.host.receive_segment(item, now)
                else:
                    if self._capture is not None:
                        self._capture.frame(item, now, outgoing=False)
                    self.host.receive_frame(item, now)

    def _output(self, now: float) -> None:
        self._full = False
        self.host.output_loopback(now)
        while self.host.wants_output():
            max_payload = self.link.tx_space(now)
            if max_payload <= 0:
                self._full = True
                self.host.tcp.on_link_full(now)
                return
            self.host.output(now, max_payload)

    def next_time(self) -> float | None:
        """When `advance` wants to be called next, if nothing happens before; None: not at all."""
        if self.nic.waiting or self.host.wants_output_loopback() or (not self._full and self.host.wants_output()):
            return self._now
        host, link = self.host.next_time(), self.link.next_time()
        if host is None or (link is not None and link < host):
            return link
        return host

    def transmit(self, segment: Segment, destination: bytes, max_frames: int, now: float) -> Transmitted:
        """The host's way out; see `Transmitter`."""
        transmitted = self.nic.transmit(segment, destination, max_frames, now)
        if self._capture is not None:
            self._capture.sent(segment, transmitted, now)
        return transmitted

    def _send_frame(self, frame: bytes, now: float) -> None:
        if self._capture is not None:
            self._capture.frame(frame, now, outgoing=True)
        self.nic.send_frame(frame, now)

    def counters(self) -> dict[str, int]:
        """All counters of NIC, stack and link, by name."""
        return {**asdict(self.nic.counters), **asdict(self.host.counters), **self.link.counters()}
