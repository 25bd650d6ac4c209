"""Registered memory: arrays that NICs read and write in place instead of receiving their bytes through a socket.

Each array lies in a memfd, sealed against changes of its size, so that a process that maps it can never access memory
past its end. A NIC gets the file descriptor when it first needs it, and maps it until the array and all its views are
gone, or the process ends. `find` looks addresses up: views, slices and torch tensors over an array are registered, too.

A forked child shares the memory with its parent, as with multiprocessing.shared_memory.
"""

from __future__ import annotations

import atexit
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
    """One memfd of this process."""

    __slots__ = ("__weakref__", "address", "fd", "size")

    def __init__(self, fd: int, address: int, size: int) -> None:
        self.fd = fd
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
        There is no memory (ENOMEM) or no file fd (EMFILE) for it.
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
    """Return the position of contiguous bytes in registered memory, or None."""
    if not _regions or not data.nbytes:
        return None
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return _find(address, data.nbytes)


_regions: list[Region] = []
"""Sorted by address."""
_freed: deque[Region] = deque()
"""Regions whose memory is freed, to be removed."""
_lock = threading.Lock()


def _address(region: Region) -> int:
    return region.address


def _find(address: int, size: int) -> RegionSlice | None:
    with _lock:
        _remove_freed()
        index = bisect_right(_regions, address, key=_address) - 1
        region = _regions[index] if index >= 0 else None
    _collect()
    if region is None or address - region.address + size > region.size:
        return None
    return RegionSlice(region, address - region.address)


def _map(size: int) -> mmap.mmap:
    fd = os.memfd_create("softnic", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        memory = mmap.mmap(fd, size)
    except BaseException:
        os.close(fd)
        raise
    with suppress(OSError):  # where the kernel has no such pages for memfds
        memory.madvise(mmap.MADV_HUGEPAGE)
    region = Region(fd, np.frombuffer(memory, np.uint8).__array_interface__["data"][0], size)
    with _lock:
        _remove_freed()
        insort(_regions, region, key=_address)
    weakref.finalize(memory, _end, region).atexit = False
    _collect()
    return memory


def _end(region: Region) -> None:
    """Remove a region whose last view is gone. It is a finalizer and may interrupt any code here."""
    _freed.append(region)
    _collect()


def _collect() -> None:
    """Remove freed regions, unless another call is doing so, which then removes these as well."""
    while _freed and _lock.acquire(blocking=False):
        try:
            _remove_freed()
        finally:
            _lock.release()


def _remove_freed() -> None:
    while _freed:
        region = _freed.popleft()
        _regions.remove(region)
        os.close(region.fd)
        for cache in list(_caches.values()):
            cache.end(region)


class _RegionCache:
    """The regions that one NIC has mapped for this process, for the lifetime of its control connection."""

    def __init__(self, path: str) -> None:
        self._client = Client(path)
        self._lock = threading.Lock()
        self._numbers: weakref.WeakKeyDictionary[Region, int] = weakref.WeakKeyDictionary()
        self._seen = self._client.changes
        self._ended: deque[int] = deque()

    def number(self, region: Region) -> int:
        """Return the NIC's number of the region, and register it if necessary. Raises OSError."""
        with self._lock:
            self._client.check()
            if self._client.changes != self._seen:  # another NIC, or a new connection
                self._renew()
            known = self._numbers.get(region)
            if known is None:
                known = self._client.call(control.Register(), region.fd).region
                if self._client.changes != self._seen:
                    self._renew()
                self._numbers[region] = known
        self._unregister()
        return known

    def is_over(self) -> bool:
        """Return whether the NIC has ended."""
        return self._client.is_closed()

    def abandon(self) -> None:
        """Close the connection's file descriptor: at exit, in a forked child, or before first use."""
        self._client.abandon()

    def _renew(self) -> None:
        self._numbers.clear()
        self._ended.clear()
        self._seen = self._client.changes

    def end(self, region: Region) -> None:
        number = self._numbers.pop(region, None)
        if number is not None:
            self._ended.append(number)
            self._unregister()

    def _unregister(self) -> None:
        """Unregister freed regions, unless the code that this has interrupted is doing so."""
        while self._ended and self._lock.acquire(blocking=False):
            try:
                while self._ended:
                    with suppress(OSError):  # the NIC is gone, and its mappings with it
                        self._client.call(control.Unregister(self._ended.popleft()))
            finally:
                self._lock.release()


_caches: dict[str, _RegionCache] = {}


def number(region: Region, path: str) -> int:
    """Return the number of the region at the NIC of this path. Raises OSError: ENETDOWN without a NIC, or its error."""
    cache = _caches.get(path)
    if cache is None:
        for other in [other for other, cache in list(_caches.items()) if cache.is_over()]:
            _caches.pop(other, None)
        created = _RegionCache(path)
        cache = _caches.setdefault(path, created)
        if cache is not created:  # another thread was faster
            created.abandon()
    return cache.number(region)


@atexit.register
def _abandon_caches() -> None:
    while _caches:
        _caches.popitem()[1].abandon()


def _after_fork() -> None:
    """Drop the caches in a forked child, because their connections belong to the parent."""
    global _lock
    _lock = threading.Lock()
    _abandon_caches()


os.register_at_fork(after_in_child=_after_fork)
