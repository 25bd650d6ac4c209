"""The interface by which a capture observes the traffic between a host's TCP and its NIC.

The turn of a node records what it moves in C; the methods are called for the rest.
"""

from __future__ import annotations

from typing import Any, Protocol

from softnic.packet.segment import Segment, Transmitted


class NodeObserver(Protocol):
    """Receives the segments that cross the host side of a NIC. `softnic.capture.hook` implements it."""

    @property
    def c(self) -> Any:
        """The `sn_capture` (native/nic/capture.h) with which the turn records what it sends and receives."""

    @property
    def active(self) -> bool:
        """Whether anything is recorded; callers may skip the other methods otherwise."""

    def sent(self, segment: Segment, transmitted: Transmitted, now: float) -> None:
        """TCP has passed down a segment, of which the NIC accepted `transmitted`."""

    def received(self, segment: Segment, now: float) -> None:
        """The NIC passes up a segment."""

    def frame(self, data: bytes, now: float, outgoing: bool) -> None:
        """A frame that is not TCP passes."""
