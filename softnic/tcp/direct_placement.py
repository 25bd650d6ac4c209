"""Direct placement (RFC 5041): sending from, and decoding into, memory outside the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.tcp.connection import Connection
from softnic.tcp.flow import Flow
from softnic.tcp.send_buffer import CUT

RxPlacement = Callable[[int, int, int], "npt.NDArray[np.uint8] | None"]
"""Returns the memory for `size` bytes from a sequence number on, in a segment with this acknowledgement; None: any. Its
content counts once TCP accepts it."""
Buffer = memoryview | npt.NDArray[Any]
MIN_ZEROCOPY = 4 << 10
"""Smaller sends are copied: they are not worth a run of their own."""


def append(connection: Connection, memory: memoryview, start: int, size: int) -> tuple[int, bool]:
    """Sends some of `size` bytes of `memory` from `start` on.

    Returns how many (0: none can be written now), and whether they are zero-copy.
    """
    count = connection.snd.buffer.zerocopy_len(size)
    if count >= MIN_ZEROCOPY:
        return (count, True) if connection.send_zerocopy(memory, start, count) else (0, True)
    most = min(size, count or CUT)
    return connection.send(memory[start : start + most]), False


def set_rx_placement(flow: Flow, placement: RxPlacement | None) -> None:
    """Sets who chooses the memory for bytes that the NIC receives; None: the NIC."""
    flow.rx_placement = placement


class PlacementCursor:
    """Decides which received bytes may be placed: those next in the stream, or next behind those placed before.

    So no byte of memory is assigned twice, and bytes that TCP drops and receives again lie in other memory.
    """

    __slots__ = ("_placed", "_rcv")

    def __init__(self, connection: Connection) -> None:
        self._rcv = connection.rcv
        self._placed = 0
        """Position up to which bytes were placed."""

    def offset(self, sequence: int, size: int) -> int | None:
        """Returns the distance of these bytes from the first unconsumed one; None: they are not placed."""
        rcv = self._rcv
        position = rcv.position(sequence)
        if position != max(rcv.rcv_nxt, self._placed):
            return None
        self._placed = position + size
        return position - (rcv.rcv_nxt - rcv.unread)
