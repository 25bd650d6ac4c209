"""Tensors of a GPU: copies between them and memory that NICs read, and what the GPU does before and after.

The thread of a process group has three streams on each GPU, which run at once: one for kernels, one for each direction
of copies. What is put on a stream waits for events that are given with it, and ends with one. The thread itself does
not wait for a GPU: it has events watched (`EventWatch`) and looks again when they have happened.

Registered memory is page-locked, so that the GPU's copy engine reaches it by itself.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch

from softnic.collectives.elements import Array
from softnic.comm.scratch import Scratch

Copies = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Sources and targets of copies."""
_LOOK_S = 20e-6
"""How often events are looked at."""
_log = logging.getLogger("softnic")


class Event(Protocol):
    """A place in a stream."""

    def query(self) -> bool:
        """Return whether all that was put on the stream before has been done."""

    def synchronize(self) -> None:
        """Wait until it has."""


class Streams(Protocol):
    """The streams of one thread on one device."""

    def __init__(self, device: torch.device) -> None: ...

    @staticmethod
    def now(device: torch.device) -> Event:
        """Return an event after what the calling thread has put on its own stream."""

    @staticmethod
    def begin_thread(device: torch.device) -> None:
        """Prepare a thread of this package to ask for events of the device."""

    @staticmethod
    def lock_pages(device: torch.device, memory: Array) -> Callable[[], object]:
        """Let the device reach host memory by itself, until the result is called. Raises OSError if it cannot."""

    @contextmanager
    def kernels(self, after: Iterable[Event] = ()) -> Iterator[None]:
        """Put what torch does in the body on the stream of kernels."""

    def mark(self) -> Event:
        """Return an event after all kernels so far."""

    def download(self, copies: Copies, after: Iterable[Event]) -> Event:
        """Copy tensors of the device to host memory. All of them stay as they are until the event."""

    def upload(self, copies: Copies, after: Iterable[Event]) -> Event:
        """Copy host memory to tensors of the device, as results of torch's backends: see `uncounted`."""


class CudaStreams:
    """Streams of a CUDA or ROCm device."""

    def __init__(self, device: torch.device) -> None:
        self._kernels, self._downloads, self._uploads = (_stream(device) for _ in range(3))

    @staticmethod
    def now(device: torch.device) -> Event:
        return _event(torch.cuda.current_stream(device))

    @staticmethod
    def begin_thread(device: torch.device) -> None:
        torch.cuda.set_device(device)  # else this thread would open the first GPU, too, which takes memory there

    @staticmethod
    def lock_pages(device: torch.device, memory: Array) -> Callable[[], object]:
        cudart, address = torch.cuda.cudart(), memory.ctypes.data  # type: ignore[no-untyped-call]
        with torch.cuda.device(device):
            status = cudart.cudaHostRegister(address, memory.nbytes, 0)
        if int(status) != 0:
            raise OSError(f"cudaHostRegister: {cudart.cudaGetErrorString(status)}")
        return lambda: cudart.cudaHostUnregister(address)

    @contextmanager
    def kernels(self, after: Iterable[Event] = ()) -> Iterator[None]:
        _order(self._kernels, after)
        with torch.cuda.stream(self._kernels):
            yield

    def mark(self) -> Event:
        return _event(self._kernels)

    def download(self, copies: Copies, after: Iterable[Event]) -> Event:
        return _copied(self._downloads, copies, after)

    def upload(self, copies: Copies, after: Iterable[Event]) -> Event:
        return _copied(self._uploads, copies, after)


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]  # before the computation that waits


def _event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(stream)
    return event


def _order(stream: torch.cuda.Stream, after: Iterable[Event]) -> None:
    for event in after:
        assert isinstance(event, torch.cuda.Event)
        stream.wait_event(event)


def _copied(stream: torch.cuda.Stream, copies: Copies, after: Iterable[Event]) -> torch.cuda.Event:
    _order(stream, after)
    with torch.cuda.stream(stream):
        for source, target in copies:
            uncounted(target).copy_(source, non_blocking=True)
    return _event(stream)


DEVICES: dict[str, type[Streams]] = {"cuda": CudaStreams}
"""The streams of each type of device whose memory NICs do not reach."""


def on_device(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor are to be copied to memory that NICs reach."""
    return tensor.device.type in DEVICES


class ReadyEvents:
    """Events after which tensors may be read and written. Created in the caller's thread when the call is made."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        devices = {tensor.device for tensor in tensors if on_device(tensor)}
        self._events = {device: DEVICES[device.type].now(device) for device in devices}

    def __bool__(self) -> bool:
        """Whether a tensor is on a device."""
        return bool(self._events)

    @property
    def device(self) -> torch.device | None:
        """A device that one of the tensors is on."""
        return next(iter(self._events), None)

    def of(self, device: torch.device) -> tuple[Event, ...]:
        return (self._events[device],) if device in self._events else ()


def uncounted(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with a version counter of its own, for writes that autograd must not see.

    torch's backends write results to the memory of tensors. No operation records that, so a tensor that is needed by
    back-propagation may be the output of a collective.
    """
    return tensor.data


def page_locked(device: torch.device) -> Scratch:
    """Return scratch memory that devices of a type reach by themselves, if they can."""
    return Scratch(page_locker(device))


def page_locker(device: torch.device) -> Callable[[Array], None]:
    """Return what lets devices of a type reach memory by themselves; if they cannot, it is said: copies are slower."""
    lock_pages = DEVICES[device.type].lock_pages
    refused = False

    def prepare(memory: Array) -> None:
        nonlocal refused
        try:
            weakref.finalize(memory, lock_pages(device, memory)).atexit = False
        except OSError as error:
            if not refused:
                _log.warning("copies to and from the GPU are slower: its memory cannot be page-locked: %s", error)
            refused = True

    return prepare


class EventWatch:
    """A thread that looks at events and calls `changed` after some have happened. It ends with `close`.

    It begins with the first event, and calls `begin` in the thread.
    """

    def __init__(self, begin: Callable[[], object], changed: Callable[[], object]) -> None:
        self._begin, self._changed = begin, changed
        self._lock = threading.Condition()
        self._events: list[Event] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, events: Iterable[Event]) -> None:
        """Look at further events."""
        with self._lock:
            self._events += events
            self._lock.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="softnic-events", daemon=True)
                self._thread.start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify()

    def _run(self) -> None:
        self._begin()
        while True:
            with self._lock:
                while not self._events and not self._closed:
                    self._lock.wait()
                if self._closed:
                    return
                left = [event for event in self._events if not event.query()]
                has_changed = len(left) < len(self._events)
                self._events = left
            if has_changed:
                self._changed()
            time.sleep(_LOOK_S)
