"""What a link is: the thing below the NIC that frames leave through and come in by.

Links nest: an emulated or captured link is a link around another one, so neither TCP nor the NIC knows. Time is
an argument; nothing here waits. Times are seconds on whatever clock the owner runs.
"""

from __future__ import annotations

from typing import Protocol

from softnic.packet.frames import Frames


class Link(Protocol):
    """One end of a link."""

    @property
    def mtu(self) -> int:
        """Bytes of IPv4 that a frame may carry."""

    def send(self, frames: Frames, now: float) -> None:
        """Takes a batch, all to one destination MAC. Never fails: what cannot go is dropped and counted."""

    def receive(self, now: float) -> Frames | None:
        """The next batch that has arrived, or None. Its buffer is valid until the next call."""

    def advance(self, now: float) -> None:
        """Does what is due: releases delayed frames, retries a full socket."""

    def next_time(self) -> float | None:
        """When `advance` wants to be called next; None: not before something is sent or arrives."""

    def tx_space(self, now: float) -> int:
        """Bytes that the way out would take now without dropping. TCP waits for tx_space instead of losing frames."""

    def counters(self) -> dict[str, int]:
        """Names and values for `softnic stat`, of this link and those inside it."""

    def close(self) -> None:
        """Frees descriptors. Frames not yet sent are dropped."""
