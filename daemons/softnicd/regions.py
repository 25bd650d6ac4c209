"""Registered memory of applications that this NIC has mapped, by the number that work requests name it with.

A region is a memfd that cannot shrink, so reading it cannot fault. It belongs to the control connection that registered
it: when that ends, or unregisters it, no request can name it any more, and it is unmapped as soon as no request in
progress uses it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from dataclasses import dataclass

MAX_REGIONS = 16384
"""Each is a descriptor and a mapping; the system allows some 65,000 of these a process."""


@dataclass(slots=True)
class RegionCounters:
    regions: int = 0
    """Mapped and not taken back."""
    region_bytes: int = 0


class Regions:
    """`first`: numbers begin anywhere, so that one of an earlier NIC is not taken for one of this."""

    def __init__(self, first: int) -> None:
        self.counters = RegionCounters()
        self._last = first
        self._memory: dict[int, memoryview] = {}
        self._owned: dict[object, set[int]] = {}
        self._most_bytes = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE

    def get(self, number: int) -> memoryview | None:
        return self._memory.get(number)

    def add(self, descriptor: int, owner: object) -> int:
        """Maps a memfd; the descriptor stays the caller's. Raises OSError."""
        size = _checked_size(descriptor)
        if len(self._memory) >= MAX_REGIONS:
            raise OSError(errno.ENOBUFS, f"the NIC has {MAX_REGIONS} regions mapped already")
        if self.counters.region_bytes + size > self._most_bytes:
            raise OSError(errno.ENOMEM, f"with {size} bytes more the NIC would map more than this machine has")
        try:
            mapped = mmap.mmap(descriptor, size)
        except OSError as error:
            raise OSError(error.errno, f"the NIC cannot map the region: {error.strerror}") from None
        self._last += 1
        self._memory[self._last] = memoryview(mapped)
        self._owned.setdefault(owner, set()).add(self._last)
        self.counters.regions += 1
        self.counters.region_bytes += size
        return self._last

    def remove(self, number: int, owner: object) -> None:
        """Raises OSError (EBADF) if it is not the owner's."""
        if number not in self._owned.get(owner, ()):
            raise OSError(errno.EBADF, f"the NIC has no region {number} of this program")
        self._owned[owner].remove(number)
        self._forget(number)

    def leave(self, owner: object) -> None:
        """The owner is gone."""
        for number in self._owned.pop(owner, ()):
            self._forget(number)

    def _forget(self, number: int) -> None:
        self.counters.regions -= 1
        self.counters.region_bytes -= len(self._memory.pop(number))


def _checked_size(descriptor: int) -> int:
    """Raises OSError (EINVAL) for what could shrink under us, or fault for want of a page."""
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if not seals & fcntl.F_SEAL_SHRINK:
        raise OSError(errno.EINVAL, "a region is a memfd that is sealed against shrinking (F_SEAL_SHRINK)")
    if os.fstatvfs(descriptor).f_bsize != mmap.PAGESIZE:
        raise OSError(errno.EINVAL, "a region is a memfd of ordinary pages, without MFD_HUGETLB")
    size = os.fstat(descriptor).st_size
    if not size:
        raise OSError(errno.EINVAL, "the region is empty")
    return size
