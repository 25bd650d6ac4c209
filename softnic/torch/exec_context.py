"""What the calls of a process group are executed with: its communicator, registered memory, and streams of GPUs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch

from softnic.comm.scratch import Scratch
from softnic.mpi.communicator import Communicator
from softnic.mpi.progress_loop import ProgressLoop
from softnic.torch.arguments import OWN_TAG
from softnic.torch.devices import DEVICES, Event, EventWatch, Streams, page_locked
from softnic.torch.staging import StagingBuffer

_TAGS = (1 << 30) - 1
"""How many tags, from OWN_TAG + 1 on, numbered messages have. They are used in turn."""
_CLOSE_S = 5.0
"""Time limit of `close` for copies that are in progress after an error."""


def tag_of(number: int) -> int:
    """Return the tag of the messages with a number of the context."""
    return OWN_TAG + 1 + number % _TAGS


class ExecContext:
    """Used by the thread of a process group, and by a caller's while that one has nothing to do."""

    def __init__(self, comm: Communicator, loop: ProgressLoop) -> None:
        self.comm = comm
        self.loop = loop
        self.spared_bytes = 0
        """Bytes that devices have encoded, less those that were sent in their place."""
        self._numbered = 0
        self._pools: dict[str | None, Scratch] = {None: Scratch()}
        """By the type of the devices that reach it; None: it is for the host alone."""
        self._streams: dict[torch.device, Streams] = {}
        self._watch = EventWatch(self._begin_watch, loop.wake)
        self._posting = threading.RLock()
        self._to_post: deque[tuple[Sequence[Event], Callable[[], object]]] = deque()
        self._watched: list[Event] = []

    # -- memory and streams ------------------------------------------------------------------------------------------

    def pool(self, device: torch.device | None = None) -> Scratch:
        """Return registered memory, for copies to and from a device if one is given."""
        kind = None if device is None else device.type
        if device is not None and kind not in self._pools:
            self._pools[kind] = page_locked(device)
        return self._pools[kind]

    def stage(self, count: int, dtype: torch.dtype, device: torch.device | None = None) -> StagingBuffer:
        """Return a staging buffer, for the tensors of a device if one is given."""
        return StagingBuffer(self.pool(device), self.streams, count, dtype)

    def streams(self, device: torch.device) -> Streams:
        """Return the streams of the group's thread on a device."""
        found = self._streams.get(device)
        if found is None:
            found = self._streams[device] = DEVICES[device.type](device)
        return found

    def watched(self, events: list[Event]) -> list[Event]:
        """Return the events, after each of which the group's thread looks again."""
        if events:
            self._watched = [event for event in self._watched if not event.query()] + events
            self._watch.add(events)
        return events

    def _begin_watch(self) -> None:
        for device in list(self._streams):
            DEVICES[device.type].begin_thread(device)

    # -- order -------------------------------------------------------------------------------------------------------

    def numbers(self, count: int) -> int:
        """Return the first of `count` new numbers: the same on all ranks, which start the same items in one order."""
        self._numbered += count
        return self._numbered - count

    def post_in_order(self, loaded: list[Event], post: Callable[[], object]) -> None:
        """Call `post` after these events, and after what was given here before: ranks post in the same order."""
        with self._posting:
            self._to_post.append((self.watched(loaded), post))
        self.post_loaded()

    def post_loaded(self) -> None:
        """Post what has been loaded since. Callers that wait do so, too."""
        with self._posting:
            while self._to_post and all([event.query() for event in self._to_post[0][0]]):
                self._to_post.popleft()[1]()

    def close(self) -> None:
        """Release all memory, which a device may be about to read and write after an error."""
        until = time.monotonic() + _CLOSE_S
        while not all([event.query() for event in self._watched]) and time.monotonic() < until:
            time.sleep(0.001)
        self._watch.close()
        self._to_post.clear()
        for pool in self._pools.values():
            pool.clear()
