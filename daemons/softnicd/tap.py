"""The pump of a NIC whose host is a kernel: feeds a `TapNic` from its TAP device and its wire. It decides nothing.

There are no programs' streams here: programs use their kernel's sockets. The control socket answers those who look on
(`softnic stat`, `softnic capture`) and those who add peers; what asks for a stream is refused.
"""

from __future__ import annotations

import asyncio
import errno
import select
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from softnic.capture.captured_link import CapturedLink
from softnic.capture.hook import CaptureHook
from softnic.ipc import control
from softnic.nic.adaptive_codec import Stopwatch
from softnic.packet.ethernet import mac_of
from softnic.tapnic import namespaces
from softnic.tapnic.device import TapDevice
from softnic.tapnic.flows import TapFlow
from softnic.tapnic.nic import TapNic
from softnicd.config import Config
from softnicd.control_server import ControlServer
from softnicd.event_log import EventLog
from softnicd.handlers import PAGE, address_of, text_of
from softnicd.link_setup import emulated, farewell, info_of, open_wire, randomness
from softnicd.selector import AT_ONCE, NEVER, Selector

RETRY_S = 0.1
"""After a turn that failed by an internal error."""


class TapDaemon:
    """A running NIC of a kernel. Raises OSError for what cannot be opened: device, wire, control socket.

    Runs on `loop`, whose selector is given, from the start; `close` ends it, and the device with it.
    """

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, selector: Selector) -> None:
        self.config = config
        self._selector = selector
        self.event_log = EventLog()
        mac = mac_of(config.address)
        device = (config.tap, mac, config.mtu, config.ip, config.prefix)
        if config.namespace:
            descriptor = namespaces.open_tap_in(config.namespace, *device)
        else:
            descriptor = namespaces.open_tap(*device)
        self._tap = TapDevice(descriptor)
        self._wire = open_wire(config, self.event_log.record)
        link = emulated(config, self._wire, randomness(config.seed))
        self.capture = CaptureHook(config.address, time.time_ns() - time.monotonic_ns())
        emulation = config.emulation_spec
        self.node = TapNic(
            config.address,
            mac,
            self._tap,
            CapturedLink(link, self.capture),
            offloads=config.offload_table,
            mode=config.mode,
            equal_sizes=config.mode == "fill",
            codec_timer=Stopwatch(time.perf_counter),
            link_rate_bps=None if emulation is None else emulation.rate_bps,
            capture=self.capture,
        )
        self.server = ControlServer(config.control, self._answer, lambda _client: None, self.event_log, loop)
        self._methods: dict[type, Callable[[Any, int | None], control.Reply]] = {
            control.Hello: self._hello,
            control.Stats: self._stats,
            control.Capture: self._capture,
            control.AddPeer: self._add_peer,
        }
        selector.epoll.register(self._wire.fileno(), select.EPOLLIN)
        selector.epoll.register(self._tap.fileno(), select.EPOLLIN | select.EPOLLET)  # it waits while the wire is full
        self._wire.readable = False
        selector.turn = self.turn
        self.event_log.started(config.ip, self.server.took_over)

    # -- the pump --------------------------------------------------------------------------------------------------

    def turn(self, seen: list[tuple[int, int]]) -> float:
        """Moves what can be moved, given what epoll has to say. Returns when to come back (`selector.Turn`)."""
        for descriptor, _ in seen:
            if descriptor == self._wire.fileno():
                self._wire.readable = True
            elif descriptor == self._tap.fileno():
                self._tap.readable = True
        try:
            self.node.advance(time.monotonic())
        except Exception:
            self.event_log.internal_error("internal error in a turn")
            return time.monotonic() + RETRY_S
        due = self.node.next_time()
        return NEVER if due is None else due

    def close(self) -> None:
        """Ends, when what the kernel has sent until now has left. Its connections are its own, and find their network
        gone."""
        self.server.close()
        self._selector.turn, self._selector.due = None, NEVER
        self._tap.readable = True
        self.node.advance(time.monotonic())
        self._tap.readable = False
        farewell(self.node)
        self._tap.close()
        self.node.link.close()

    # -- requests --------------------------------------------------------------------------------------------------

    def _answer(self, request: control.Request, descriptor: int | None, _client: object) -> control.Reply:
        method = self._methods.get(type(request))
        if method is None:
            raise OSError(
                errno.EOPNOTSUPP,
                f"this NIC is that of a kernel: use the kernel's sockets, on its device {self.config.tap}",
            )
        reply = method(request, descriptor)
        self._selector.due = AT_ONCE
        return reply

    def _hello(self, request: control.Hello, _: int | None) -> control.NicInfo:
        if request.version != control.VERSION:
            raise OSError(errno.EPROTO, f"the NIC speaks version {control.VERSION} of the control protocol")
        return self.info

    @property
    def info(self) -> control.NicInfo:
        return info_of(self.config, self.node.nic, self._wire)

    def _stats(self, request: control.Stats, _: int | None) -> control.NicStats:
        flows = [item for item in self.node.flows.items() if item[1].number > request.after]
        streams = [_stream(key, flow) for key, flow in flows[:PAGE]]
        counters = {**self.node.counters(), **asdict(self.server.counters), **asdict(self.event_log.counters)}
        events = [] if request.after else self.event_log.events
        return control.NicStats(self.info, counters, streams, len(flows) > PAGE, events)

    def _capture(self, request: control.Capture, descriptor: int | None) -> control.Done:
        if descriptor is None:
            raise OSError(errno.EINVAL, "a capture needs a descriptor to write to")
        interfaces = {"host_interface": request.host_interface, "wire_interface": request.wire_interface}
        self.capture.start(descriptor, time.monotonic(), **interfaces, snaplen=request.snaplen)
        return control.Done()

    def _add_peer(self, request: control.AddPeer, _: int | None) -> control.Done:
        ip = address_of(request.ip)
        if ip == self.config.address:
            raise OSError(errno.EINVAL, f"{request.ip} is this NIC's own address")
        self._wire.add_peer(mac_of(ip), (text_of(address_of(request.host)), request.port))
        return control.Done()


def _stream(key: tuple[int, ...], flow: TapFlow) -> control.StreamInfo:
    """A connection of the kernel's, as far as its NIC sees it. Bytes are those that passed, sent again or not."""
    peer, peer_port, port, address = key
    return control.StreamInfo(
        flow.number,
        "KERNEL",
        (text_of(address), port),
        (text_of(peer), peer_port),
        peer_codecs=None if flow.codecs is None else [number for number in range(16) if flow.codecs >> number & 1],
        bytes_sent=flow.bytes_sent,
        bytes_received=flow.bytes_received,
        wire_bytes_sent=flow.wire_bytes_sent,
        wire_bytes_received=flow.wire_bytes_received,
        offload_original_bytes=flow.offload_original_bytes_sent,
        offload_encoded_bytes=flow.offload_encoded_bytes_sent,
        mss=flow.mss,
        auto=None
        if flow.adaptive is None
        else control.AutoInfo(flow.adaptive.raw, flow.adaptive.describe(), flow.adaptive.trying),
    )
