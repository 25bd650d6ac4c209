"""Between a connection and memory that is neither's: what is sent from it, and what the NIC decodes straight to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic._native import ffi
from softnic.tcp.connection import Connection
from softnic.tcp.flow import Flow
from softnic.tcp.send_buffer import CUT

RxPlacement = Callable[[int, int], "npt.NDArray[np.uint8] | None"]
"""Returns the memory for `size` bytes from a sequence number on; None: any. Its content counts once TCP accepts it."""
Buffer = memoryview | npt.NDArray[Any]
LEAST_LOAN = 4 << 10
"""Less than this is copied: so little is not worth a run of its own."""


def address_of(view: Buffer) -> int:
    """Where contiguous memory lies: for whether bytes are in their place already."""
    return int(ffi.cast("uintptr_t", ffi.from_buffer(view)))


def append(connection: Connection, memory: memoryview, start: int, size: int) -> tuple[int, bool]:
    """Sends some of `size` bytes of the memory, from `start` on, by a loan or by a copy. Returns how many (0: none may
    be written now), and whether they are lent."""
    count = connection.snd.buffer.zerocopy_len(size)
    if count >= LEAST_LOAN:
        return (count, True) if connection.send_zerocopy(memory, start, count) else (0, True)
    most = min(size, count or CUT)
    return connection.send(memory[start : start + most]), False


def set_rx_placement(flow: Flow, placement: RxPlacement | None) -> None:
    """Sets who chooses the memory for bytes that the NIC receives; None: the NIC."""
    flow.rx_placement = placement


class PlacementCursor:
    """Which bytes that are about to be decoded may be given a place: those that are next in the stream, or next behind
    what was asked for before. So no byte of memory is given twice, and what TCP then drops, and gets again, comes in
    other memory."""

    __slots__ = ("_claimed", "_rcv")

    def __init__(self, connection: Connection) -> None:
        self._rcv = connection.rcv
        self._claimed = 0
        """The position in the stream up to which bytes were asked for."""

    def offset(self, sequence: int, size: int) -> int | None:
        """How far behind the first byte that nobody has consumed yet these begin. None: they have no place."""
        rcv = self._rcv
        position = rcv.position(sequence)
        if position != max(rcv.rcv_nxt, self._claimed):
            return None
        self._claimed = position + size
        return position - (rcv.rcv_nxt - rcv.unread)
