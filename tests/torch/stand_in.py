"""A stand-in for a GPU: tensors of the host are taken for tensors of a device, whose copies are late by chance.

Both directions have a thread of their own, as a GPU has engines. A copy reads and writes memory when it is made, not
when it is asked for, so one that is not waited for gives wrong elements. Kernels run at once, after their events.
"""

from __future__ import annotations

import queue
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest
import torch

from softnic.collectives.elements import Array
from softnic.torch import devices
from softnic.torch.devices import Copies

MOST_S = 0.002
"""The longest delay of a copy."""


class Event:
    """Something that happens in a thread of this module."""

    def __init__(self) -> None:
        self._happened = threading.Event()

    def query(self) -> bool:
        return self._happened.is_set()

    def set(self) -> None:
        self._happened.set()

    def synchronize(self) -> None:
        assert self._happened.wait(10)


_Asked = queue.SimpleQueue[tuple[Copies, list[Event], Event] | None]


class _Engine:
    """Makes copies one after the other, in a thread that ends with it."""

    def __init__(self, chance: random.Random) -> None:
        self._asked: _Asked = queue.SimpleQueue()
        threading.Thread(target=_make_copies, args=(self._asked, chance), daemon=True).start()
        weakref.finalize(self, self._asked.put, None)

    def copy(self, copies: Copies, after: Iterable[devices.Event]) -> Event:
        waits = [event for event in after if isinstance(event, Event)]
        self._asked.put((copies, waits, done := Event()))
        return done


def _make_copies(asked: _Asked, chance: random.Random) -> None:
    while (given := asked.get()) is not None:
        copies, waits, done = given
        for event in waits:
            event.synchronize()
        time.sleep(chance.random() * MOST_S)
        for source, target in copies:
            target.data.copy_(source)
        done.set()
        given = copies = waits = done = source = target = None  # type: ignore[assignment]  # else their memory stays


class StandIn:
    """Streams of the stand-in."""

    locked: dict[int, int]
    """Host memory that the device reaches: its length by its address."""
    refuses = False
    """Whether no memory can be page-locked."""

    def __init__(self, _: torch.device) -> None:
        chance = random.Random(0)
        self._downloads, self._uploads = _Engine(chance), _Engine(chance)

    @staticmethod
    def now(_: torch.device) -> Event:
        event = Event()
        threading.Timer(random.random() * MOST_S, event.set).start()
        return event

    @staticmethod
    def begin_thread(_: torch.device) -> None:
        pass

    @classmethod
    def lock_pages(cls, _: torch.device, memory: Array) -> Callable[[], object]:
        if cls.refuses:
            raise OSError("refused")
        address = memory.ctypes.data
        cls.locked[address] = memory.nbytes
        return lambda: cls.locked.pop(address)

    @contextmanager
    def kernels(self, after: Iterable[devices.Event] = ()) -> Iterator[None]:
        for event in after:
            assert isinstance(event, Event)
            event.synchronize()
        yield

    def mark(self) -> Event:
        event = Event()
        event.set()
        return event

    def download(self, copies: Copies, after: Iterable[devices.Event]) -> Event:
        assert all(self._reaches(target) for _, target in copies)
        return self._downloads.copy(copies, after)

    def upload(self, copies: Copies, after: Iterable[devices.Event]) -> Event:
        assert all(self._reaches(source) for source, _ in copies)
        return self._uploads.copy(copies, after)

    def _reaches(self, tensor: torch.Tensor) -> bool:
        begin, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        within = (start <= begin and begin + size <= start + length for start, length in self.locked.items())
        return self.refuses or not size or any(within)


@contextmanager
def on_stand_in(*, refuses: bool = False) -> Iterator[type[StandIn]]:
    """Have all tensors of the host be the stand-in's, of groups that are made and of calls that begin meanwhile."""
    kind = type("StandIn", (StandIn,), {"locked": {}, "refuses": refuses})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(devices.DEVICES, "cpu", kind)
        yield kind
