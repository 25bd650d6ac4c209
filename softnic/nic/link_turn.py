"""What a turn in C (native/nic/turn.h) asks of its link, whatever it moves: a node's flows (turn.py), or a kernel's
packets (softnic/tapnic/turn.py).

A failure of what C has asked for ends the turn, and is raised by `receive` or `send`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from softnic._native import ffi, lib
from softnic.link.base import Link, RecordingLink
from softnic.nic.nic import Nic
from softnic.nic.observer import NodeObserver
from softnic.packet.frames import Frames

NEVER, ALWAYS = float("inf"), float("-inf")
_CALLS = ("receive", "examine", "run", "send", "release", "space", "advance_link", "advance_requests")
_COUNTING = ("receive", "space")
"""Those of them that return a number."""


class LinkTurn:
    """A turn whose frames all pass through `link`. `capture` observes its segments. A class derived from this one has
    the methods `on_run` and `on_advance_requests`."""

    def __init__(self, nic: Nic, link: Link, capture: NodeObserver | None) -> None:
        self.c = turn = nic.turn
        self._nic, self._link, self._capture = nic, link, capture
        self._recording = link if isinstance(link, RecordingLink) else None
        self._send_cut = link.send if self._recording is None else self._recording.send_recorded
        """Sends what C has cut, and recorded."""
        self._failure: BaseException | None = None
        self._frames: Frames | None = None
        self._handle = ffi.new_handle(self)
        turn.owner = self._handle
        set_calls(turn.control, _CALLS)
        turn.ip, turn.mac, turn.mtu = nic.ip, list(nic.mac), link.mtu
        turn.offloads = nic.offloads.bitmap
        turn.wire, turn.inbox_event, turn.in_python = -1, -1, True
        turn.link_full_at = turn.link_at = ALWAYS
        turn.timers_at = turn.requests_at = NEVER
        turn.capture = ffi.NULL if capture is None else capture.c
        nic.lend()
        self.settle()

    # The halves of a turn

    def receive(self, now: float) -> None:
        """Receive, and run timers. Raises what a part of it raised."""
        self.settle()
        lib.sn_turn_receive_all(self.c, now)
        self._raise()

    def send(self, now: float) -> None:
        """Send as far as the link has space. Raises what a part of it raised."""
        self.settle()
        lib.sn_turn_send_all(self.c, now)
        self._raise()

    def settle(self) -> None:
        """Tell C what it has to know, after anything but C has changed it."""
        turn = self.c
        epoch = self._path_epoch()
        if epoch != turn.path_epoch:
            turn.path_epoch, turn.path_count = epoch, 0

    def _path_epoch(self) -> int:
        """Return a number above 0 that is another one after any path may have changed."""
        return 1

    def _raise(self) -> None:
        if self._failure is not None:
            failure, self._failure, self.c.failed = self._failure, None, False
            raise failure

    def fail(self, error: BaseException) -> None:
        """End this turn, and have its caller see the error."""
        self._failure, self.c.failed = self._failure or error, True

    # What C asks for, in the words of `sn_control`

    def on_receive(self, has_batch: bool, now: float) -> int:
        return self._use(self._receive(has_batch, now), is_looped=False)

    def _receive(self, has_batch: bool, now: float) -> Frames | None:  # noqa: ARG002
        """Return a batch of the link."""
        return self._link.receive(now)

    def _use(self, frames: Frames | None, is_looped: bool) -> int:
        """Have C process frames, which are kept as long as it does."""
        self._frames = frames
        if frames is None:
            return 0
        nic, batch = self._nic, self.c.batch
        nic.rx.reserve(len(frames))
        data, batch.offsets, batch.lengths = frames.arrays
        batch.data, batch.size, batch.is_looped = data, len(data), is_looped
        batch.payloads, batch.runs = nic.rx.payloads, nic.rx.runs
        return len(frames)

    def on_examine(self, now: float) -> None:
        """Do nothing: only a wire of C's own is encrypted."""

    def on_send(self, first: int, now: float) -> None:
        frames = self._nic.last_cut()
        self._send_cut(frames.select(slice(first, None)) if first else frames, now)

    def on_release(self, now: float) -> None:
        """Do nothing: only a link in C is released."""

    def on_space(self, now: float) -> int:
        return self._link.tx_space(now)

    def on_advance_link(self, now: float) -> None:
        self._link.advance(now)


def set_calls(control: Any, names: Iterable[str]) -> None:
    """Have C call these functions of a control plane in Python."""
    for name in names:
        setattr(control, name, getattr(lib, f"sn_python_{name}"))


def define_calls(names: Iterable[str], counting: Iterable[str] = ()) -> None:
    """Define functions that C calls as methods `on_...` of the turn whose handle it passes. Those in `counting` return
    a number, which is 0 after a failure."""
    for name in names:
        _define(f"on_{name}", f"sn_python_{name}", 0 if name in counting else None)


def _define(method: str, name: str, failed: int | None) -> None:
    def answer(owner: Any, *arguments: Any) -> Any:
        turn: LinkTurn = ffi.from_handle(owner)
        try:
            return getattr(turn, method)(*arguments)
        except BaseException as error:
            turn.fail(error)
            return failed

    ffi.def_extern(name=name)(answer)


define_calls(_CALLS, _COUNTING)
