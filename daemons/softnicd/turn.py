"""The turns of a NIC: C waits for events, moves what can be moved, and asks here for the rest (softnic/nic/turn.py).

Beside what every node's turn asks for, this one serves applications: their ports are read and written in C, and what
comes up on them (an end, an error, a message of a collective) is attended to between what is received and what is sent.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from softnic._native import ffi, lib
from softnic.link.base import Link, UdpPath
from softnic.link.emulation import EmulatedLink
from softnic.link.udp import VxlanLink
from softnic.nic.nic import Nic
from softnic.nic.observer import NodeObserver
from softnic.nic.turn import NEVER, Turn
from softnic.tcp.connection import Readable
from softnic.tcp.flow import Flow
from softnic.tcp.host import Host
from softnicd.event_log import EventLog
from softnicd.selector import AT_ONCE
from softnicd.stream_pump import StreamPump
from softnicd.streams import Stream

RETRY_S = 0.1
"""Delay of the next turn after one that failed."""

Events = list[tuple[int, int]]
"""File descriptors and masks, as epoll reports them."""


class Overhearing(Protocol):
    """A queue to which another one passes on what concerns all of them (queue.py)."""

    def post_if_space(self, call: Callable[[], object]) -> None:
        """Have a function called between two turns, unless too many wait."""

    def overhear(self, frame: bytes) -> None:
        """Note what a frame tells of peers and connections."""


class NicTurn(Turn):
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
        self._wire, self._emulated = wire, emulated
        self._direct = True
        """C itself sends and receives frames; tests also have them pass through the link in Python."""
        self._keys = None
        self._macs = ffi.new("uint64_t[]", 0)
        self._streams: StreamPump | None = None
        self._before_collectives: Callable[[], object] = lambda: None
        self._log: EventLog | None = None
        self._retry_at = 0.0
        self.others: Sequence[Overhearing] = ()
        """The other queues of the NIC, to which this one, the first, passes frames that are not TCP's."""
        super().__init__(nic, host, link, capture)
        turn = self.c
        wire.lend(turn)
        turn.epoll, turn.poll_s = epoll, poll_s
        if emulated is not None:
            turn.emulated = emulated.ring
        self.settle()

    def serve(self, streams: StreamPump, log: EventLog, before_collectives: Callable[[], object]) -> None:
        """Serve the applications of these streams. `before_collectives` is called before collectives are moved."""
        self._streams, self._log, self._before_collectives = streams, log, before_collectives
        control = self.c.control
        control.attend, control.report = lib.sn_python_attend, lib.sn_python_report
        streams.table.ports = streams.offloaded.turn = self

    def settle(self) -> None:
        super().settle()
        turn, wire = self.c, self._wire
        turn.in_python = not self._direct
        turn.wire_is_full = wire.is_waiting
        polled = None if self._recording is None else self._recording.poll_at
        times = ((self._link if turn.in_python else wire).next_time(), polled)
        turn.link_at = min((at for at in times if at is not None), default=NEVER)
        turn.attention = turn.attention or bool(self._host.events)
        peers, keys = wire.sorted_peers()
        if keys is not self._keys:
            self._keys, self._macs = keys, ffi.new("uint64_t[]", [int.from_bytes(peer.mac) for peer in peers])
            turn.peers, turn.peer_macs, turn.peer_count = keys, self._macs, len(peers)

    def _path_epoch(self) -> int:
        return super()._path_epoch() + self._wire.path_changes

    # Turns

    @property
    def can_run(self) -> bool:
        """Whether `wait` may be called: the last turn has not failed just now."""
        return time.monotonic() >= self._retry_at

    def wait(self, until: float) -> tuple[Events, float]:
        """Wait for events and take turns, at the latest until `until`.

        Returns the events that are left, and when the next turn is due if not by `wait`. Raises OSError.
        """
        self.settle()
        reasons: int = lib.sn_turn_run(self.c, until)
        if reasons < 0 and reasons != -errno.EINTR:
            raise OSError(-reasons, os.strerror(-reasons))
        turn = self.c
        events = [(turn.fds[index], turn.masks[index]) for index in range(turn.event_count)]
        turn.event_count = 0
        try:
            self._raise()
        except MemoryError:
            self._note("out of memory: the turn is retried")
        except Exception:
            self._note(None)
        if reasons > 0 and reasons & lib.SN_TURN_TIMERS:
            return events, AT_ONCE
        return events, self._retry_at if self._retry_at else NEVER

    def _note(self, exhausted: str | None) -> None:
        """Log a failure, and rest."""
        assert self._log is not None
        if exhausted is None:
            self._log.internal_error("internal error in a turn")
        else:
            self._log.exhausted(exhausted)
        self._retry_at = time.monotonic() + RETRY_S

    def step(self, now: float) -> None:
        """Take one turn. Raises what a part of it raised."""
        self._retry_at = 0.0
        self.settle()
        self.c.attention = True
        lib.sn_turn_step(self.c, now)
        self._raise()

    # What C asks for

    def on_receive(self, has_batch: bool, now: float) -> int:
        if self._nic.loopback:
            return super().on_receive(has_batch, now)
        if has_batch:
            self._learn_senders()
            self._wire.has_batch = True
        self._wire.readable = bool(self.c.wire_readable)
        frames = self._link.receive(now)
        self.c.wire_readable = bool(self._wire.readable)
        self.c.has_frames = False
        self.settle()
        return self._use(frames, is_looped=False)

    def _pass_on(self, frame: bytes) -> None:
        for queue in self.others:
            queue.post_if_space(partial(queue.overhear, frame))

    def on_examine(self, now: float) -> None:
        self._wire.examine(now)
        self.settle()

    def _learn_senders(self) -> None:
        """Note the MAC addresses of a batch, which the link is about to learn."""
        rx, macs = self.c.rx, self._macs
        for source in rx.sources[0 : rx.found.sources]:
            start = rx.offsets[source.first] + 6
            mac = int.from_bytes(ffi.buffer(rx.data + start, 6)[:])
            for peer in range(len(macs)):
                if macs[peer] == mac:
                    macs[peer] = 0
            macs[source.peer] = mac

    def on_notify(self, flow: Any, what: int) -> None:
        super().on_notify(flow, what)
        self.c.attention = True

    def on_send(self, first: int, now: float) -> None:
        super().on_send(first, now)
        self.settle()

    def on_release(self, now: float) -> None:
        assert self._emulated is not None
        self._emulated.release_burst(now)
        self.settle()

    def on_space(self, now: float) -> int:
        self.c.wire_is_full = self._wire.is_waiting
        return super().on_space(now)

    def on_advance_link(self, now: float) -> None:
        super().on_advance_link(now)
        self.settle()

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
        path = self._wire.path_to(state.destination.to_bytes(6))
        if path is None:
            return False
        _, state.peer_address, state.peer_port, _, state.gso = path
        self._note_path(state.destination, path)
        return True

    def _note_path(self, destination: int, path: UdpPath) -> None:
        """Tell the emulated link's C where frames to a MAC address go."""
        turn = self.c
        known = any(turn.paths[index].destination == destination for index in range(turn.path_count))
        if not known and turn.path_count < lib.SN_TURN_PATHS:
            new = turn.paths[turn.path_count]
            new.destination = destination
            _, new.address, new.port, _, new.gso = path
            turn.path_count += 1

    # Counting

    def count(self) -> None:
        """Add what C has counted on the wire to the counters of the link."""
        self._wire.count_batches(self.c.counts)
