"""How this process's memory is named in work requests: registered arrays as they are, scratch for everything else."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from softnic.collectives.elements import Array, raw
from softnic.comm.errors import TransportError, transport_errors
from softnic.comm.scratch import Allocation, Scratch
from softnic.ipc import regions
from softnic.ipc.regions import Region

Address = tuple[int, int]
"""The NIC's number of a region, and an offset in it."""


class NicMemory(NamedTuple):
    """The memory of a communicator's work requests."""

    number: Callable[[Region], int]
    """Returns the NIC's number of a region, registering it if needed. Raises OSError."""
    scratch: Scratch

    def address(self, data: memoryview) -> Address | None:
        """Return where bytes lie if they are registered and the NIC takes the region. Raises TransportError."""
        place = regions.find(data)
        if place is None:
            return None
        try:
            with transport_errors():
                return self.number(place.region), place.offset
        except TransportError as error:
            if error.errno == errno.ENETDOWN:
                raise
            return None  # scratch will do, or has an error of its own

    def address_of(self, array: Array) -> Address | None:
        """Return where a flat array lies if it is registered."""
        return self.address(raw(array))

    def allocate(self, size: int) -> tuple[Allocation, Address]:
        """Return scratch memory and its address. Raises TransportError."""
        with transport_errors():
            allocation = self.scratch.allocate(size)
            return allocation, (self.number(allocation.region), allocation.offset)
