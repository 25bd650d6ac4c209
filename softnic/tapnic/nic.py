"""The NIC of a host that uses its kernel's TCP, between the kernel's TAP device and a link.

Egress: the kernel's super-segments are cut into frames; SYNs get the NIC's option; tagged payload is encoded as the
retransmit cache decides (native/nic/retransmit_cache.h); everything else passes unchanged. Ingress: runs of frames
become super-segments, tagged ones decoded. TCP, ARP, ICMP and congestion control are the kernel's.

Packets are never dropped for lack of space on the link: the kernel's next packets are read only when those read before
have left, and wait in the device until then (its queue is the driver's ring). Sans-IO, as `Node`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Unpack

from softnic import codecs
from softnic.link.base import Link
from softnic.nic.nic import Nic, NicOptions, add_counts
from softnic.nic.observer import NodeObserver
from softnic.tapnic.device import TapDevice
from softnic.tapnic.flows import TapFlowTable
from softnic.tapnic.turn import TapTurn

MakeTurn = Callable[[Nic, TapDevice, TapFlowTable, Link, NodeObserver | None], TapTurn]


class TapNic:
    """The NIC of the kernel behind a TAP device.

    Parameters
    ----------
    ip : int
        The address by which the node is named.
    mac : bytes
        The MAC of the device.
    tap : TapDevice
        The kernel's side.
    link : Link
        The wire side.
    capture : NodeObserver, optional
        Observes the host side.
    make_turn : callable
        Makes the turn between device and link.
    **options
        Options of the NIC.
    """

    def __init__(
        self,
        ip: int,
        mac: bytes,
        tap: TapDevice,
        link: Link,
        *,
        capture: NodeObserver | None = None,
        make_turn: MakeTurn = TapTurn,
        **options: Unpack[NicOptions],
    ) -> None:
        self.ip = ip
        self.link = link
        self.tap = tap
        self.nic = Nic(link, mac, ip, **options)
        self.flows = TapFlowTable(codecs.BUILT_IN)
        self.turn = make_turn(self.nic, tap, self.flows, link, capture)
        self._now = 0.0

    def advance(self, now: float) -> None:
        """Receive, send and expire everything due at `now`."""
        self._now = now
        self.turn.receive(now)
        self.turn.send(now)

    def next_time(self) -> float | None:
        """Return when `advance` must be called next if nothing happens before; None: not at all."""
        return self._now if self.turn.is_due else self.link.next_time()

    def counters(self) -> dict[str, int]:
        """Return all counters of NIC, device and link, by name."""
        counted, device = self.turn.counted, self.tap.counted
        add_counts(counted, self.nic.turn.counts, "tap_")
        add_counts(device, self.nic.turn.counts, "device_")
        crossed = {f"tap_{name}": value for name, value in asdict(device).items()}
        return {**asdict(self.nic.counters), **asdict(counted), **crossed, **self.link.counters()}
