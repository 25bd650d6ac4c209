"""Registered memory: arrays that NICs read and write themselves, instead of having their bytes sent through a socket.

An array made here lies in a memfd of its own, sealed against any change of size, so that whoever maps it can never
fall off its end. A NIC gets the descriptor when it is first needed there, and maps it until the array and all views
of it are gone, or the process is. Who moves data looks addresses up (`find`): views, slices and torch tensors over
such an array are registered as well.

A forked child shares the memory with its parent, as with multiprocessing.shared_memory: both see what either writes.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref
from bisect import bisect_right, insort
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from softnic.ipc import control
from softnic.ipc.client import Client

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Region:
    """One memfd, as this process knows it."""

    __slots__ = ("__weakref__", "address", "descriptor", "size")

    def __init__(self, descriptor: int, address: int, size: int) -> None:
        self.descriptor = descriptor
        self.address = address
        self.size = size


class RegionSlice(NamedTuple):
    """Position of bytes in a region."""

    region: Region
    offset: int


def empty(shape: Any, dtype: Any = np.float32) -> npt.NDArray[Any]:
    """Return a new, uninitialised array in registered memory.

    Parameters
    ----------
    shape : int or sequence of int
        As of numpy.empty.
    dtype : data-type
        As of numpy.empty, without Python objects.

    Returns
    -------
    ndarray
        In C order. An array without elements is an ordinary one, because there is nothing to map.

    Raises
    ------
    OSError
        There is no memory (ENOMEM) or no file descriptor (EMFILE) for it.
    ValueError
        The shape is invalid, or the elements are Python objects.
    """
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise ValueError(f"registered memory cannot hold {dtype}: it is for numbers")
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if any(not isinstance(length, (int, np.integer)) or length < 0 for length in shape):
        raise ValueError(f"{shape!r} is no shape: integers, 0 or more, are expected")
    count = 1
    for length in shape:
        count *= int(length)
    if not count * dtype.itemsize:
        return np.empty(shape, dtype)
    memory = _map(count * dtype.itemsize)
    return np.frombuffer(memory, dtype, count).reshape(shape)


def zeros(shape: Any, dtype: Any = np.float32) -> npt.NDArray[Any]:
    """Return a new array of zeros in registered memory. `shape`, `dtype` and errors are those of `empty`."""
    return empty(shape, dtype)  # a memfd is made of zeros


def is_registered(buffer: Any) -> bool:
    """Return whether all of `buffer`, an array or other object with the buffer protocol, is registered memory."""
    found = np.asarray(buffer)
    if not found.nbytes:
        return False
    spans = [stride * (length - 1) for stride, length in zip(found.strides, found.shape, strict=True)]
    low = found.__array_interface__["data"][0] + sum(span for span in spans if span < 0)
    return _find(low, sum(map(abs, spans)) + found.itemsize) is not None


def find(data: memoryview) -> RegionSlice | None:
    """Where contiguous bytes lie in registered memory, if they do."""
    if not _regions or not data.nbytes:
        return None
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return _find(address, data.nbytes)


_regions: list[Region] = []
"""By address."""
_gone: deque[Region] = deque()
"""Their memory has ended, and they are to be forgotten."""
_lock = threading.Lock()


def _address(region: Region) -> int:
    return region.address


def _find(address: int, size: int) -> RegionSlice | None:
    with _lock:
        _forget()
        index = bisect_right(_regions, address, key=_address) - 1
        region = _regions[index] if index >= 0 else None
    _sweep()
    if region is None or address - region.address + size > region.size:
        return None
    return RegionSlice(region, address - region.address)


def _map(size: int) -> mmap.mmap:
    descriptor = os.memfd_create("softnic", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        memory = mmap.mmap(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    with suppress(OSError):  # where the kernel has no such pages for memfds
        memory.madvise(mmap.MADV_HUGEPAGE)
    region = Region(descriptor, np.frombuffer(memory, np.uint8).__array_interface__["data"][0], size)
    with _lock:
        _forget()
        insort(_regions, region, key=_address)
    weakref.finalize(memory, _end, region).atexit = False
    _sweep()
    return memory


def _end(region: Region) -> None:
    """The last view of a region's memory is gone. This may interrupt anything, also what stands here."""
    _gone.append(region)
    _sweep()


def _sweep() -> None:
    """Forgets what has ended; not if somebody is at it, who will do it then."""
    while _gone and _lock.acquire(blocking=False):
        try:
            _forget()
        finally:
            _lock.release()


def _forget() -> None:
    while _gone:
        region = _gone.popleft()
        _regions.remove(region)
        os.close(region.descriptor)
        for lease in list(_leases.values()):
            lease.end(region)


class _Lease:
    """What one NIC has mapped for this process: as long as its control connection lives."""

    def __init__(self, path: str) -> None:
        self._client = Client(path)
        self._lock = threading.Lock()
        self._numbers: weakref.WeakKeyDictionary[Region, int] = weakref.WeakKeyDictionary()
        self._seen = self._client.changes
        self._ended: deque[int] = deque()

    def number(self, region: Region) -> int:
        """What the NIC calls the region; made known to it if it was not. Raises OSError."""
        with self._lock:
            self._client.check()
            if self._client.changes != self._seen:  # another NIC, or one that dropped us
                self._renew()
            known = self._numbers.get(region)
            if known is None:
                known = self._client.call(control.Register(), region.descriptor).region
                if self._client.changes != self._seen:
                    self._renew()
                self._numbers[region] = known
        self._tell()
        return known

    def is_over(self) -> bool:
        """Whether the NIC has ended."""
        return self._client.is_closed()

    def _renew(self) -> None:
        self._numbers.clear()
        self._ended.clear()
        self._seen = self._client.changes

    def end(self, region: Region) -> None:
        number = self._numbers.pop(region, None)
        if number is not None:
            self._ended.append(number)
            self._tell()

    def _tell(self) -> None:
        """Tells the NIC what ended; not if that is being done already, by whoever this has interrupted."""
        while self._ended and self._lock.acquire(blocking=False):
            try:
                while self._ended:
                    with suppress(OSError):  # it is gone, and so is what it had mapped
                        self._client.call(control.Unregister(self._ended.popleft()))
            finally:
                self._lock.release()


_leases: dict[str, _Lease] = {}


def number(region: Region, path: str) -> int:
    """What the NIC at this path calls the region. Raises OSError: ENETDOWN without a NIC, and what it refuses for."""
    lease = _leases.get(path)
    if lease is None:
        for other in [other for other, lease in list(_leases.items()) if lease.is_over()]:
            _leases.pop(other, None)
        lease = _leases.setdefault(path, _Lease(path))
    return lease.number(region)


def _forget_leases() -> None:
    """In a forked child: the connections are its parent's."""
    global _lock
    _lock = threading.Lock()
    _leases.clear()


os.register_at_fork(after_in_child=_forget_leases)
