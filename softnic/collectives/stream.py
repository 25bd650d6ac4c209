"""The stream of bytes to another rank, as the engine sees it.

The engine knows neither TCP nor packets: softnic/tcp/peer_stream.py gives connections this form. The engine itself
reads and writes messages; blocks are moved in C (native/collectives/engine.h), which is given the stream's flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

CODING_BLOCK = 64
"""Bytes. A compressed range of a stream is a whole number of these (FORMAT.md)."""

Look = Callable[[], tuple[bool, bool]]
"""Returns whether one of the control streams has unread bytes, and whether one of all streams is not open."""


class PeerStream(Protocol):
    """Ordered bytes in both directions. Nothing here blocks."""

    # Messages

    @property
    def unread(self) -> int:
        """Number of unread bytes."""

    def send(self, data: bytes | memoryview) -> int:
        """Copy bytes into the send buffer; return how many it took."""

    # Blocks

    flow: Any
    """The `sn_flow`."""

    @property
    def received(self) -> Any:
        """The `sn_receive_buffer` with the unread bytes."""

    def attach(self, steps: Any, headers: Any) -> None:
        """Have C pass what arrives to an `sn_step_queue` or an `sn_header_queue`; NULL: to neither."""

    def send_blocks(self) -> None:
        """Prepare the stream for blocks, which are compressed as a whole."""

    def tag_of(self, codec: str | None) -> tuple[int, int, bool, int]:
        """Return the number of the tag for a codec (None: bytes are sent as they are), its ToS, and whether that
        selects an offload."""

    def consumed(self, count: int) -> None:
        """Count bytes as read that were taken from `received`."""

    def wake(self) -> None:
        """Have what was handed over sent."""

    def reserve(self) -> None:
        """Allocate the send buffer's memory."""

    # State

    @staticmethod
    def watch(control: Sequence[Any], others: Sequence[Any]) -> Look:
        """Return what looks at all of these streams, of this class, at once."""

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
