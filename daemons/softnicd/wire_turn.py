"""What the turns of a daemon have in common: C reads and writes the UDP socket of the wire, and waits for events."""

from __future__ import annotations

import errno
import os
import time
from typing import Any

from softnic._native import ffi, lib
from softnic.link.emulation import EmulatedLink
from softnic.link.udp import VxlanLink
from softnic.nic.link_turn import NEVER, LinkTurn
from softnic.packet.frames import Frames
from softnicd.event_log import EventLog
from softnicd.selector import AT_ONCE

RETRY_S = 0.1
"""Delay of the next turn after one that failed."""

Events = list[tuple[int, int]]
"""File descriptors and masks, as epoll reports them."""


class WireTurn(LinkTurn):
    """A turn on a wire. A class that derives from it calls `_use_wire` before its turn is made, and `_lend_wire` after
    that."""

    _direct = True
    """C itself sends and receives frames; tests also have them pass through the link in Python."""
    _wire: VxlanLink
    _emulated: EmulatedLink | None
    _log: EventLog | None = None

    def _use_wire(self, wire: VxlanLink, emulated: EmulatedLink | None) -> None:
        """Use this wire, and the emulation in front of it, if any; both are inside the link of the turn."""
        self._wire, self._emulated = wire, emulated
        self._keys = None
        self._macs = ffi.new("uint64_t[]", 0)
        self._retry_at = 0.0

    def _lend_wire(self, epoll: int, poll_s: float) -> None:
        """Have C use the wire. `epoll` is the file descriptor that reports events."""
        turn = self.c
        self._wire.lend(turn)
        turn.epoll, turn.poll_s = epoll, poll_s
        if self._emulated is not None:
            turn.emulated = self._emulated.ring
        self.settle()

    def settle(self) -> None:
        super().settle()
        turn, wire = self.c, self._wire
        turn.in_python = not self._direct
        turn.wire_is_full = wire.is_waiting
        polled = None if self._recording is None else self._recording.poll_at
        times = ((self._link if turn.in_python else wire).next_time(), polled)
        turn.link_at = min((at for at in times if at is not None), default=NEVER)
        peers, keys = wire.sorted_peers()
        if keys is not self._keys:
            self._keys, self._macs = keys, ffi.new("uint64_t[]", wire.sender_macs())
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

    def _receive(self, has_batch: bool, now: float) -> Frames | None:
        if has_batch:
            self._learn_senders()
            self._wire.has_batch = True
        self._wire.readable = bool(self.c.wire_readable)
        frames = super()._receive(has_batch, now)
        self.c.wire_readable = bool(self._wire.readable)
        self.settle()
        return frames

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

    # Paths

    def _find_endpoint(self, state: Any) -> bool:
        """Set the UDP endpoint of the path to a MAC address, for a flow and for the emulated link's C. Return whether
        there is one."""
        path = self._wire.path_to(state.destination.to_bytes(6))
        if path is None:
            return False
        state.peer, state.gso = path
        self._note_path(state.destination, *path)
        return True

    def _note_path(self, destination: int, peer: int, gso: bool) -> None:
        """Tell the emulated link's C where frames to a MAC address go."""
        turn = self.c
        known = any(turn.paths[index].destination == destination for index in range(turn.path_count))
        if not known and turn.path_count < lib.SN_TURN_PATHS:
            new = turn.paths[turn.path_count]
            new.destination, new.peer, new.gso = destination, peer, gso
            turn.path_count += 1

    # Counting

    def count(self) -> None:
        """Add what C has counted on the wire to the counters of the link."""
        self._wire.count_batches(self.c.counts)
