"""The packets of a capture file as columns, and the error of a file that is none.

The readers of both formats, reader.py (pcapng) and classic_pcap.py, make a CaptureFile; all analysis starts from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]

NO_LINK = -1
"""Link type of records that are no packets, such as entries of a journal. Wireshark numbers them like packets."""


class CaptureError(ValueError):
    """The file is not a capture, or a broken one. `offset` is the position of the error in bytes."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"{problem} at byte offset {offset}")
        self.offset = offset


@dataclass(slots=True)
class Interface:
    """A vantage point."""

    name: str
    description: str
    link_type: int
    snaplen: int
    received: int | None = None
    dropped: int | None = None
    """According to the last statistics block of each section, if any."""


@dataclass(slots=True)
class CaptureFile:
    """The packets of a file as columns, in file order; row r is the packet that Wireshark numbers r + 1."""

    data: npt.NDArray[np.uint8]
    interfaces: list[Interface] = field(default_factory=list)
    application: str = ""
    interface: Column = field(default_factory=lambda: np.empty(0, np.int64))
    time_ns: Column = field(default_factory=lambda: np.empty(0, np.int64))
    """Nanoseconds since 1970. A packet without a time has that of the packet before it."""
    offset: Column = field(default_factory=lambda: np.empty(0, np.int64))
    """Offset of the packet's first byte in `data`."""
    captured: Column = field(default_factory=lambda: np.empty(0, np.int64))
    length: Column = field(default_factory=lambda: np.empty(0, np.int64))
    """Bytes in the file, and bytes of the original packet."""
    direction: Column = field(default_factory=lambda: np.empty(0, np.uint8))
    packet_id: Column = field(default_factory=lambda: np.empty(0, np.uint64))
    """epb_packetid; 0: none."""

    def __len__(self) -> int:
        return len(self.offset)

    def packet(self, row: int) -> bytes:
        """Return the captured bytes of one packet."""
        start = int(self.offset[row])
        return self.data[start : start + int(self.captured[row])].tobytes()
