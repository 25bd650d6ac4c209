"""Sending of a fast turn: the flows that C serves and, in the order of their turns among them, those that Python does.

Python serves flows that are not in C's table (they open, or their applications have closed them), and what C leaves to
it: a lost segment, an answer to a keepalive probe. If C always went first, it would fill a slow link before Python
could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from softnic._native import ffi, lib
from softnic.link.emulation import EmulatedLink
from softnic.nic.node import Node
from softnic.nic.segmenter import Segmenter
from softnic.tcp.connection import Connection
from softnic.tcp.flow import Flow
from softnicd.port_paths import PortPaths
from softnicd.stream_pump import StreamPump
from softnicd.streams import Stream

_OUT_BYTES = 4 << 20
"""For the frames of a segment: more than any has."""

Port = Any
"""A pointer to an `sn_port`."""


class FastOutput:
    """Sends with the `sn_turn` at `turn`."""

    def __init__(
        self,
        turn: Any,
        node: Node,
        emulated: EmulatedLink | None,
        streams: StreamPump,
        paths: PortPaths,
    ) -> None:
        self._turn, self._node, self._host, self._nic = turn, node, node.host, node.nic
        self._emulated, self._streams, self._paths = emulated, streams, paths
        self._segmenter = Segmenter(self._nic.mode == "packet", self._nic.equal_sizes)
        self._segmenter.lend(turn, _OUT_BYTES)
        self._ready, self._loopback = ffi.addressof(turn, "ready"), ffi.addressof(turn, "ready_loopback")

    def stream(self, port: Port) -> tuple[Stream, Connection]:
        """Return the stream of a port."""
        stream = self._streams.table.streams[port.number]
        assert stream.connection is not None
        return stream, stream.connection

    def set_path(self) -> None:
        """Tell C what Python knows of the way of frames."""
        turn = self._turn
        self._paths.update()
        turn.link_full_at = self._host.tcp.link_full_at
        turn.identification = self._nic.identification

    def loop_back(self) -> None:
        """Have the NIC receive the frames of the last loopback segment that C could not receive."""
        self._nic.loop_back(self._segmenter.copy(0).select(slice(self._turn.looped, None)))

    def send_rest(self) -> None:
        """Send what the kernel did not accept of the last segment as the link does: it waits, or is dropped."""
        frames = self._segmenter.copy(0)
        self._node.link.send(frames.select(slice(self._turn.accepted, None)), self._streams.now())

    def return_all(self) -> None:
        """Leave all flows to Python."""
        self._return(self._loopback)
        self._return(self._ready)

    def run(self, now: float, link_is_ready: bool) -> None:
        """Send what flows have to send, as far as link and C can; the rest is left to `Node.send`."""
        turn = self._turn
        first, later = self._take_ready()
        turn.has_looped = False
        self._serve(self._loopback, lambda: bool(lib.sn_turn_output_loopback(turn, now)), now)
        before = self._head()
        if link_is_ready:
            while first and not self._take_turn(first[0], now):
                if first[0].queued:
                    later.append(first[0])
                del first[0]
            if not first:
                self._serve(self._ready, lambda: self._output_to_link(now), now)
        self._nic.identification = turn.identification
        head = self._head()
        self._adopt(first)
        if head[0] != before[0] or head[1] > before[1]:  # a turn of C has ended
            self._adopt(later)
            later = []
        self._return(self._ready)
        self._adopt(later)

    def _head(self) -> tuple[Port, int]:
        """Return the port whose turn it is, and how many bytes of it are left."""
        port = self._ready.first
        return port, self.stream(port)[1].turn_bytes if port else 0

    def _adopt(self, flows: Iterable[Flow]) -> None:
        for flow in flows:
            self._host.tcp.scheduler.adopt(flow)

    def take_over(self) -> None:
        """Have C serve all flows that wait to send, unless one is Python's: then they keep their order."""
        if all(self._port_of(flow) is not None for flow in self._host.tcp.scheduler.ready):
            self._take_ready()

    @property
    def has_loopback(self) -> bool:
        """Whether C has something to send to the node itself."""
        return bool(self._loopback.first)

    def _port_of(self, flow: Flow) -> Port | None:
        stream = self._streams.table.by_connection.get(cast("Connection", flow))
        return stream.c if stream is not None and stream.in_table else None

    def _take_ready(self) -> tuple[list[Flow], list[Flow]]:
        """Have C serve the flows that wait to send, where it has their ports.

        Returns the flows that wait for the link and are Python's: those before the first one of C, and the others.
        """
        self._return(self._ready)
        scheduler, first, later = self._host.tcp.scheduler, list[Flow](), list[Flow]()
        for flow in scheduler.take_ready():
            port = self._port_of(flow)
            if port is not None:
                lib.sn_turn_wake(self._turn, port)
            elif flow.peer[0] == self._nic.ip:
                scheduler.adopt(flow)
            else:
                (later if self._ready.first else first).append(flow)
        self.set_path()
        return first, later

    def _return(self, ready: Any) -> None:
        """Leave the flows of an `sn_ready_list` to Python."""
        while (port := lib.sn_turn_take_ready(ready)) != ffi.NULL:
            self._host.tcp.scheduler.adopt(self.stream(port)[1])

    def _take_turn(self, flow: Flow, now: float) -> bool:
        """Have Python send for a flow. Return whether its turn goes on: the link has no more space."""
        return self._host.tcp.scheduler.take_turn(flow, self._node.link.tx_space(now), now)

    def _output_to_link(self, now: float) -> bool:
        """Let flows send as much as the link has space for. Return whether it had any."""
        space = self._node.link.tx_space(now)
        if space > 0:
            lib.sn_turn_output(self._turn, space, now)
        return space > 0

    def _serve(self, ready: Any, output: Callable[[], bool], now: float) -> None:
        """Call `output` for the flows of an `sn_ready_list` until it returns that there is no more to be done now."""
        turn, prepared = self._turn, ffi.NULL
        while ready.first != ffi.NULL and output():
            reasons = turn.reasons
            if reasons & lib.SN_TURN_CUT:
                self._node.link.send(self._segmenter.copy(0), now)
            if reasons & lib.SN_TURN_WIRE and self._emulated is not None:
                self._emulated.release_burst(now)
            if reasons & lib.SN_TURN_LOOPED:
                self.loop_back()
            if reasons & lib.SN_TURN_UNSENT:
                self.send_rest()
                break
            if reasons & lib.SN_TURN_READY:
                port = ready.first
                if port == prepared:
                    self._serve_in_python(ready, now)
                else:
                    self._paths.prepare(*self.stream(port))
                    prepared = port

    def _serve_in_python(self, ready: Any, now: float) -> None:
        """Have Python send for the first flow of an `sn_ready_list`."""
        port = lib.sn_turn_take_ready(ready)
        flow = self.stream(port)[1]
        if ready == self._loopback or self._take_turn(flow, now):
            self._host.tcp.scheduler.adopt(flow)  # before those of C, which are left to Python after it
        elif flow.queued:
            lib.sn_turn_wake(self._turn, port)
