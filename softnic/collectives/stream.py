"""The stream of bytes to another rank, as the engine sees it.

The engine knows neither TCP nor packets: softnic/tcp/peer_stream.py gives connections this form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

CODING_BLOCK = 64
"""Bytes. A compressed range of a stream is a whole number of these (FORMAT.md)."""

Look = Callable[[], tuple[bool, bool]]
"""Returns whether one of the control streams has unread bytes, and whether one of all streams is not open."""
Placement = Callable[[int, int], npt.NDArray[np.uint8] | None]
"""Returns the memory for bytes [offset, offset + size) behind the next unread byte; None: nowhere in particular."""


class PeerStream(Protocol):
    """Ordered bytes in both directions. Nothing here blocks."""

    zerocopy_bytes: int
    """Bytes sent without a copy since the beginning."""

    @property
    def received(self) -> Sequence[memoryview]:
        """Unread bytes, in order."""

    @property
    def unread(self) -> int:
        """Number of unread bytes."""

    @staticmethod
    def watch(control: Sequence[Any], others: Sequence[Any]) -> Look:
        """Return what looks at all of these streams, of this class, at once."""

    def consume(self, count: int) -> None:
        """Drop the next `count` unread bytes."""

    def read_into(self, memory: memoryview, start: int, limit: int) -> int:
        """Move up to `limit` of the next bytes to `memory[start:]`; return their number."""

    def set_placement(self, placement: Placement | None) -> None:
        """Have bytes that are about to be decoded written straight to the memory that `placement` returns."""

    def set_codec(self, codec: str | None) -> None:
        """Compress what is sent from here on (None: send it as it is). The same codec again changes nothing."""

    def send(self, data: bytes | memoryview) -> int:
        """Copy bytes into the send buffer; return how many it took."""

    def send_zerocopy(self, memory: memoryview, start: int, size: int) -> tuple[int, bool]:
        """Send some of `memory[start : start + size]`; return how many bytes, and whether without a copy."""

    @property
    def completed_bytes(self) -> int:
        """Of `zerocopy_bytes`, how many the stream no longer reads, from the first on."""

    @property
    def zerocopy_pending(self) -> bool:
        """Whether it still reads memory that was sent without a copy."""

    def reclaim(self, position: int) -> None:
        """Raise `completed_bytes` to at least `position`, copying what is not acknowledged."""

    @property
    def unsent(self) -> int:
        """Bytes in the send buffer that were not transmitted yet."""

    @property
    def is_open(self) -> bool:
        """Whether both directions are open."""

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will be received."""

    @property
    def is_failed(self) -> bool:
        """Whether it ended by an error."""

    @property
    def end_reason(self) -> str:
        """Why it ended, for error messages."""

    def shutdown_write(self) -> None:
        """End this direction after what was sent."""

    def close(self, now: float) -> None:
        """Close after what was sent."""

    def abort(self, now: float) -> None:
        """Reset the connection."""
