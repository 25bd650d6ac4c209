"""The turns of a NIC: C waits for events, moves what can be moved, and asks here for the rest (softnic/nic/turn.py).

Beside what every node's turn asks for, this one serves applications: their ports are read and written in C, and what
comes up on them (an end, an error, a message of a collective) is attended to between what is received and what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from softnic._native import lib
from softnic.link.base import Link
from softnic.link.emulation import EmulatedLink
from softnic.link.udp import VxlanLink
from softnic.nic.link_turn import NEVER, set_calls
from softnic.nic.nic import Nic
from softnic.nic.observer import NodeObserver
from softnic.nic.turn import Turn
from softnic.tcp.connection import Readable
from softnic.tcp.flow import Flow
from softnic.tcp.host import Host
from softnicd.event_log import EventLog
from softnicd.stream_pump import StreamPump
from softnicd.streams import Stream
from softnicd.wire_turn import WireTurn


class Overhearing(Protocol):
    """A queue to which another one passes on what concerns all of them (queue.py)."""

    def post_if_space(self, call: Callable[[], object]) -> None:
        """Have a function called between two turns, unless too many wait."""

    def overhear(self, frame: bytes) -> None:
        """Note what a frame tells of peers and connections."""


class NicTurn(WireTurn, Turn):
    """The turn of a daemon's node. `wire` is its link, `emulated` the emulation in front of it, if any; both are inside
    `link`. `epoll` is the file descriptor that reports events."""

    def __init__(
        self,
        nic: Nic,
        host: Host,
        link: Link,
        capture: NodeObserver | None,
        *,
        wire: VxlanLink,
        emulated: EmulatedLink | None,
        epoll: int,
        poll_s: float,
    ) -> None:
        self._use_wire(wire, emulated)
        self._streams: StreamPump | None = None
        self._before_collectives: Callable[[], object] = lambda: None
        self.others: Sequence[Overhearing] = ()
        """The other queues of the NIC, to which this one, the first, passes frames that are not TCP's."""
        super().__init__(nic, host, link, capture)
        self._lend_wire(epoll, poll_s)

    def serve(self, streams: StreamPump, log: EventLog, before_collectives: Callable[[], object]) -> None:
        """Serve the applications of these streams. `before_collectives` is called before collectives are moved."""
        self._streams, self._log, self._before_collectives = streams, log, before_collectives
        set_calls(self.c.control, ("attend", "report"))
        streams.table.ports = streams.offloaded.turn = self

    def settle(self) -> None:
        super().settle()
        for mac, now in self._wire.take_moved():
            self._host.tcp.retry(mac, now)
        self.c.attention = self.c.attention or bool(self._host.events)

    # What C asks for

    def _pass_on(self, frame: bytes) -> None:
        for queue in self.others:
            queue.post_if_space(partial(queue.overhear, frame))

    def on_notify(self, flow: Any, what: int) -> None:
        super().on_notify(flow, what)
        self.c.attention = True

    def on_attend(self, now: float) -> None:
        streams = self._streams
        assert streams is not None
        while port := lib.sn_turn_take_noted(self.c):
            self._take_note(streams.table.streams[port.number])
        if streams.has_input:
            streams.pull(now)
        if streams.has_output:
            streams.deliver(now)
        if streams.offloaded:
            self._before_collectives()
            streams.offloaded.advance(now)

    def on_report(self, now: float) -> None:
        streams, turn = self._streams, self.c
        assert streams is not None
        offloaded = streams.offloaded
        if offloaded:
            offloaded.report(now)
        for stream in [each for each in streams.pulling if each.in_turn]:
            streams.pulling.discard(stream)
            lib.sn_turn_pull(turn, stream.c)
        turn.attention = streams.has_work or offloaded.has_work
        turn.attends = offloaded.needs_python
        times = (streams.retry_at, offloaded.next_time())
        turn.timers_at = min((at for at in times if at is not None), default=NEVER)
        self.settle()

    def _take_note(self, stream: Stream) -> None:
        notes, stream.c.notes = stream.c.notes, 0
        if notes & lib.SN_PORT_READ:
            assert self._streams is not None
            self._streams.pulling.add(stream)
        if notes & lib.SN_PORT_WRITE:
            assert stream.connection is not None
            self._host.events.append(Readable(stream.connection))

    # Ports and collectives

    def add(self, stream: Stream) -> None:
        """Take over a stream that has a connection, unless there is no memory."""
        assert stream.connection is not None
        lib.sn_turn_add(self.c, stream.c, stream.connection.c)

    def remove(self, stream: Stream) -> None:
        """Give a stream back."""
        lib.sn_turn_remove(self.c, stream.c)

    def add_engine(self, engine: Any) -> None:
        """Take over the blocks of collectives."""
        lib.sn_turn_add_engine(self.c, engine)

    def move_engine(self, engine: Any) -> bool:
        """Move the blocks of collectives in C. Return whether Python has to go on."""
        return bool(lib.sn_turn_move_engine(self.c, engine))

    def remove_engine(self, engine: Any) -> None:
        """Give the blocks of collectives back."""
        lib.sn_turn_remove_engine(self.c, engine)

    # Paths

    def _find_path(self, flow: Flow, now: float) -> bool:
        if not super()._find_path(flow, now):
            return False
        state = flow.nic
        if state.is_loopback or not self._direct:
            return True
        return self._find_endpoint(state)
