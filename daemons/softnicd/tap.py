"""The NIC of a kernel: a `TapNic` between the kernel's TAP device and the wire.

It has no streams: applications use their kernel's sockets. Its control socket answers the requests that every NIC
answers (`softnic stat`, `softnic capture`, new peers) and refuses those for streams.
"""

from __future__ import annotations

import asyncio
import itertools
import select
from functools import partial
from typing import Any

from softnic.ipc.control import AutoInfo, NicInfo, StreamInfo
from softnic.ipc.snapshot import StreamTotals
from softnic.link.base import Link
from softnic.nic.nic import Nic
from softnic.nic.observer import NodeObserver
from softnic.packet import ipv4
from softnic.packet.ethernet import mac_of
from softnic.tapnic import namespaces
from softnic.tapnic.device import TapDevice
from softnic.tapnic.flows import TapFlow, TapFlowTable
from softnic.tapnic.nic import TapNic
from softnic.tapnic.turn import TapTurn
from softnicd.config import Config
from softnicd.event_log import EventLog
from softnicd.handlers import ControlHandlers
from softnicd.link_setup import QueueLink, codec_numbers, drain, nic_info
from softnicd.pump import Pump
from softnicd.selector import Selector
from softnicd.wire_turn import WireTurn


class KernelTurn(WireTurn, TapTurn):
    """The turn of a daemon between a kernel's device and its wire. `epoll` is the file descriptor that reports events
    of both."""

    def __init__(
        self,
        nic: Nic,
        tap: TapDevice,
        flows: TapFlowTable,
        link: Link,
        capture: NodeObserver | None,
        *,
        queue_link: QueueLink,
        epoll: int,
        log: EventLog,
    ) -> None:
        self._log = log
        self._use_wire(queue_link.wire, queue_link.emulated)
        super().__init__(nic, tap, flows, link, capture)
        self._lend_wire(epoll, 0.0)

    def on_find_path(self, path: Any, now: float) -> bool:  # noqa: ARG002
        return self._direct and self._find_endpoint(path)


class TapNicDaemon(Pump):
    """A running NIC of a kernel, on `loop` from the start until `close`, which removes the device.

    Raises OSError if the device, the wire or the control socket cannot be opened.
    """

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, selector: Selector) -> None:
        mac = mac_of(config.address)
        device = (config.tap, mac, config.mtu, config.ip, config.prefix)
        opened = namespaces.open_tap_in(config.namespace, *device) if config.namespace else namespaces.open_tap(*device)
        self._tap = TapDevice(opened)
        self._tap_fd = self._tap.fileno()
        super().__init__(config, selector)
        link = self._links[0]
        epoll = selector.epoll
        made = partial(KernelTurn, queue_link=link, epoll=epoll.fileno(), log=self.event_log)
        self.node = TapNic(
            *(config.address, mac, self._tap, link.whole),
            capture=link.capture,
            make_turn=made,
            **self._nic_options(),
        )
        assert isinstance(self.node.turn, KernelTurn)
        self._turn = self.node.turn
        refusal = f"this NIC serves a kernel: use the kernel's sockets, on its device {config.tap}"
        self._serve(ControlHandlers(self, self.keys.by_request, refusal), lambda _client: None, loop)
        self._wire.readable = False
        epoll.register(self._wire, select.EPOLLIN)
        # Edge-triggered, because packets wait in the device while the wire is full.
        epoll.register(self._tap_fd, select.EPOLLIN | select.EPOLLET)
        selector.turn_in_c = self._turn
        self.wake()

    def info(self, unacknowledged: int) -> NicInfo:
        return nic_info(self.config, self.node.nic, self._wire, unacknowledged, self.metrics_address)

    def totals(self) -> tuple[StreamTotals, int]:
        flows = len(self.node.flows)
        return StreamTotals({"KERNEL": flows} if flows else {}), 0

    def counters(self) -> dict[str, int]:
        self._turn.count()
        return {**self.node.counters(), **super().counters()}

    def stream_infos(self, after: int, limit: int) -> list[StreamInfo]:
        flows = ((key, flow) for key, flow in self.node.flows.items() if flow.number > after)
        return [_stream_info(key, flow) for key, flow in itertools.islice(flows, limit)]

    def catch_up(self) -> None:
        self.wake()

    def _move(self, events: list[tuple[int, int]], now: float) -> float | None:
        for fd, _ in events:
            if fd == self._wire.fileno():
                self._turn.c.wire_readable = True
            elif fd == self._tap_fd:
                self._tap.readable = True
        self._turn.step(now)
        return None  # the turn itself knows when it goes on

    def _stop(self, now: float) -> None:
        """Sends what the kernel has sent until now. Its connections stay, and find their network gone."""
        self._tap.readable = True
        self.node.advance(now)
        self._tap.readable = False
        drain(self.node)
        self._tap.close()


def _stream_info(key: tuple[int, ...], flow: TapFlow) -> StreamInfo:
    """A connection of the kernel as its NIC sees it. Bytes are those that passed, retransmissions included."""
    peer, peer_port, port, address = key
    adaptive = flow.adaptive
    return StreamInfo(
        flow.number,
        "KERNEL",
        (ipv4.text(address), port),
        (ipv4.text(peer), peer_port),
        peer_codecs=codec_numbers(flow.codecs),
        bytes_sent=flow.bytes_sent,
        bytes_received=flow.bytes_received,
        wire_bytes_sent=flow.wire_bytes_sent,
        wire_bytes_received=flow.wire_bytes_received,
        offload_original_bytes=flow.offload_original_bytes_sent,
        offload_encoded_bytes=flow.offload_encoded_bytes_sent,
        mss=flow.mss,
        auto=None if adaptive is None else AutoInfo(adaptive.raw, adaptive.describe(), adaptive.trying),
    )
