"""Fast turn: the turns of a NIC in C, as long as nothing but the data of established streams is to be moved.

`wait` waits for events and takes turns (native/turn.h) until something needs Python: other file descriptors, timers, a
flow that opens, closes or has lost segments, a new tag. Python then continues that turn as if it had done all of it
(`Daemon.turn`). C and Python work on the same flows and streams, so nothing is copied between them but counters.

A NIC with encryption, random link emulation or a capture in progress takes Python's turns, which use the same steps of
C.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any, cast

from softnic._native import ffi, lib
from softnic.link.emulation import EmulatedLink
from softnic.link.udp import VxlanLink
from softnic.nic.node import Node
from softnic.tcp.connection import Connection, Readable
from softnic.tcp.flow import Flow
from softnic.tcp.state import State
from softnicd.event_log import EventLog
from softnicd.fast_output import FastOutput
from softnicd.port_paths import PortPaths
from softnicd.selector import AT_ONCE
from softnicd.stream_pump import StreamPump
from softnicd.streams import Stream

_PYTHON_TURN = lib.SN_TURN_TIMERS | lib.SN_TURN_FRAMES | lib.SN_TURN_RUNS | lib.SN_TURN_READY | lib.SN_TURN_ENGINE
_PYTHON_TURN |= lib.SN_TURN_LOOPED
"""Reasons for which Python continues the turn."""
_ZERO = ffi.new("sn_turn_counts *")
_FIELDS = [name for name, _ in ffi.typeof("sn_turn_counts").fields]
_NIC_COUNTS = [name.removeprefix("nic_") for name in _FIELDS if name.startswith("nic_")]
_HOST_COUNTS = [name.removeprefix("host_") for name in _FIELDS if name.startswith("host_")]

Events = list[tuple[int, int]]
"""File descriptors and masks, as epoll reports them."""


class FastTurn:
    """The turns of one NIC. `wire` is its link, `epoll` the file descriptor that reports events."""

    def __init__(
        self,
        node: Node,
        wire: VxlanLink,
        emulated: EmulatedLink | None,
        streams: StreamPump,
        event_log: EventLog,
        epoll: int,
        poll_s: float,
    ) -> None:
        ring = None if emulated is None else emulated.ring
        self._emulated, self._event_log = emulated, event_log
        self._direct = not wire.encrypts and (emulated is None or ring is not None)
        """C itself sends the frames of segments."""
        self._node, self._host, self._nic, self._wire, self._streams = node, node.host, node.nic, wire, streams
        self.c = turn = ffi.gc(ffi.new("sn_turn *"), lib.sn_turn_clear)
        wire.lend(turn)
        self._nic.rx.lend(turn.rx)
        turn.epoll, turn.ip, turn.mtu = epoll, self._nic.ip, wire.mtu
        turn.poll_s = poll_s
        turn.mac = list(self._nic.mac)
        turn.offloads = self._nic.offloads.bitmap
        turn.cuts_only = not self._direct
        if ring is not None:
            turn.emulated = ring
        self._nic.take_runs = self.take_runs
        scheduler = self._host.tcp.scheduler
        scheduler.take_timer, scheduler.run_others = self._take_timer, self._run_timers
        self._paths = PortPaths(turn, node, wire, streams.table, streams.now, self._direct)
        self._output = FastOutput(turn, node, emulated, streams, self._paths)
        self._keys = None
        self._macs = ffi.new("uint64_t[]", 0)
        streams.table.ports = self
        streams.offloaded.turn = self

    # The ports

    def add(self, stream: Stream) -> None:
        """Take over a stream that has a connection, unless there is no memory."""
        assert stream.connection is not None
        lib.sn_turn_add(self.c, stream.c, stream.connection.c)

    def remove(self, stream: Stream) -> None:
        """Give a stream back."""
        left, connection = lib.sn_turn_remove(self.c, stream.c), stream.connection
        if connection is None or connection.state is State.CLOSED:
            return
        if left & lib.SN_PORT_READ:
            self._host.tcp.scheduler.adopt(connection)
        if left & lib.SN_PORT_SCHEDULE:
            self._host.tcp.scheduler.adopt_timer(connection)

    def add_engine(self, engine: Any, streams: Sequence[Stream]) -> bool:
        """Take over the blocks of collectives if C has the ports of all streams. Return whether it has."""
        if not all(stream.in_table for stream in streams):
            return False
        lib.sn_turn_add_engine(self.c, engine)
        return True

    def move_engine(self, engine: Any) -> bool:
        """Move the blocks of collectives in C. Return whether Python has to go on."""
        return bool(lib.sn_turn_move_engine(self.c, engine))

    def remove_engine(self, engine: Any) -> None:
        """Give the blocks of collectives back."""
        lib.sn_turn_remove_engine(self.c, engine)

    # Turns

    @property
    def can_run(self) -> bool:
        """Whether nothing waits for Python."""
        streams, host = self._streams, self._host
        return self._direct and not (
            streams.offloaded.needs_python
            or streams.has_work
            or host.wants_output()
            or host.wants_output_loopback()
            or self._nic.waiting
            or self._wire.is_waiting
            or self._node.is_captured
        )

    def wait(self, until: float) -> tuple[Events, float]:
        """Wait for events and take turns, at the latest until `until`.

        Returns the events that are left, and when Python's next turn is.
        """
        self._enter()
        reasons: int = lib.sn_turn_run(self.c, until)
        if reasons < 0:
            if reasons != -errno.EINTR:
                raise OSError(-reasons, os.strerror(-reasons))
            reasons = self.c.reasons = 0
        return self._leave(reasons)

    def step(self, events: Events) -> tuple[Events, float]:
        """Take one turn with these events, which were waited for elsewhere; as `wait`."""
        self._enter()
        turn = self.c
        for index, (fd, mask) in enumerate(events):
            turn.fds[index], turn.masks[index] = fd, mask
        turn.event_count = len(events)
        return self._leave(lib.sn_turn_step(turn, self._streams.now()))

    def _enter(self) -> None:
        turn = self.c
        times = (self._host.next_time(), self._wire.next_time(), self._streams.retry_at, self._wire.filter_ends)
        turn.timers_at = min(time for time in times if time is not None)
        peers, keys = self._wire.sorted_peers()
        if keys is not self._keys:
            self._keys, self._macs = keys, ffi.new("uint64_t[]", [int.from_bytes(peer.mac) for peer in peers])
            turn.peers, turn.peer_macs, turn.peer_count = keys, self._macs, len(peers)
        turn.wire_readable = bool(self._wire.readable)
        self._output.set_path()

    def _leave(self, reasons: int) -> tuple[Events, float]:
        """Have Python continue where C has stopped.

        Returns the events that are left, and when Python's next turn is. Never raises.
        """
        turn = self.c
        events = [(turn.fds[index], turn.masks[index]) for index in range(turn.event_count)]
        turn.event_count = 0
        try:
            return events, self._continue(reasons)
        except MemoryError:
            self._event_log.exhausted("out of memory: the turn is retried")
        except Exception:
            self._event_log.internal_error("internal error between two turns")
        return events, AT_ONCE

    def _continue(self, reasons: int) -> float:
        """Take over what C has left. Returns when Python's next turn is."""
        turn = self.c
        self._wire.readable = turn.wire_readable
        self._nic.identification = turn.identification
        self._host.tcp.link_full_at = turn.link_full_at
        if reasons & lib.SN_TURN_WIRE and self._emulated is not None:
            self._emulated.release_burst(self._streams.now())
        if reasons & lib.SN_TURN_UNSENT:
            self._output.send_rest()
        if reasons & lib.SN_TURN_FRAMES:
            self._learn_senders()
            self._wire.has_batch = True
        if reasons & lib.SN_TURN_RUNS:
            self._nic.resume(self._wire.received.frames(turn.rx.found.frames), turn.run_count, turn.next_run)
            self._paths.prepare_receiver(turn.rx.runs[turn.next_run])
        if reasons & lib.SN_TURN_LOOPED:
            self._output.loop_back()
        if self._handle_notes() or reasons & _PYTHON_TURN:
            return AT_ONCE
        times = (self._node.next_time(), turn.timers_at)
        return min(time for time in times if time is not None)

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

    def _handle_notes(self) -> bool:
        """Do what ports need of Python. Return whether it has to take a turn."""
        turn, pending = self.c, False
        while (port := lib.sn_turn_take_noted(turn)) != ffi.NULL:
            stream, connection = self._output.stream(port)
            notes, port.notes = port.notes, 0
            if notes & lib.SN_PORT_SCHEDULE:
                self._host.tcp.scheduler.schedule_here(connection)
            if notes & lib.SN_PORT_READ:
                self._streams.pulling.add(stream)
            if notes & lib.SN_PORT_WRITABLE:
                connection.on_writable()
            if notes & lib.SN_PORT_WRITE:
                self._host.events.append(Readable(connection))
            pending = True
        return pending

    # Timers

    def _take_timer(self, flow: Flow) -> bool:
        """Have C run the timers of a flow if it has its port. Return whether it does."""
        stream = self._streams.table.by_connection.get(cast("Connection", flow))
        if stream is None or not stream.in_table:
            return False
        lib.sn_turn_schedule(self.c, stream.c)
        return True

    def next_timer(self) -> float:
        """Return when C's timers are to be run."""
        return float(lib.sn_turn_next_timer(self.c))

    def _run_timers(self, now: float) -> None:
        """Have C run the timers that are due, before Python runs its own."""
        lib.sn_turn_run_timers(self.c, now)
        self._handle_notes()

    # Steps of Python's turns

    def take_runs(self, first: int, count: int, now: float) -> int:
        """Have C process the runs of the NIC's batch from `first` on. Returns the index of the first one left."""
        if self._node.is_captured:
            return first
        left: int = lib.sn_turn_take_runs(self.c, first, count, now)
        self._handle_notes()
        return left

    def output(self, now: float) -> None:
        """Have flows send, C's and Python's by turns."""
        if self._node.is_captured:
            self._output.return_all()
            return
        self._output.run(now, not (self._direct and self._wire.is_waiting))
        self._handle_notes()

    @property
    def has_work(self) -> bool:
        """Whether there is something to do at once: loopback is received amid sending."""
        return bool(self.c.has_looped or self._output.has_loopback)

    def give_back(self) -> None:
        """Have Python read the streams that C was about to read."""
        while (port := lib.sn_turn_take_pulled(self.c)) != ffi.NULL:
            self._streams.pulling.add(self._output.stream(port)[0])

    def take_over(self) -> None:
        """Have C continue with the streams that Python was about to read and write, if nothing else waits for it."""
        full, self._streams.full = self._streams.full, set()
        if self._streams.offloaded:
            self._streams.offloaded.keep_received()
        for stream in full:
            if stream.in_table:
                stream.keep_received()
        pulling = self._streams.pulling
        ours = [stream for stream in pulling if stream.in_table]
        if self._host.wants_output() or self._host.wants_output_loopback():
            self._output.take_over()  # the link is full
        if len(ours) < len(pulling) or self._host.events:
            return
        pulling.clear()
        for stream in ours:
            lib.sn_turn_pull(self.c, stream.c)

    def count(self) -> None:
        """Add what C has counted to the counters of NIC, host and link."""
        counts = self.c.counts
        self._wire.count_batches(counts)
        for name in _NIC_COUNTS:
            setattr(self._nic.counters, name, getattr(self._nic.counters, name) + getattr(counts, f"nic_{name}"))
        for name in _HOST_COUNTS:
            setattr(self._host.counters, name, getattr(self._host.counters, name) + getattr(counts, f"host_{name}"))
        self.c.counts = _ZERO[0]
