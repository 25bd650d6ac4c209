"""The interface of a link: what a NIC sends frames to and receives frames from.

Links nest: an emulated or captured link wraps another one, so neither TCP nor the NIC knows of it. Time is an argument,
in seconds on any clock; no method blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from softnic.packet.frames import Frames


class UdpPath(NamedTuple):
    """What C sends frames to a node by (`sn_vxlan_send`)."""

    fd: int
    to: Any
    """The peer's `sn_endpoint`."""
    vni: int
    gso: bool
    """Whether the path takes datagrams that the kernel segments."""


class Link(Protocol):
    """One end of a link."""

    @property
    def mtu(self) -> int:
        """Bytes of IPv4 that a frame may carry."""

    def send(self, frames: Frames, now: float) -> None:
        """Send a batch, all to one destination MAC. Never fails: frames that cannot be sent are dropped and counted."""

    def receive(self, now: float) -> Frames | None:
        """Return the next batch that has arrived, or None. Its buffer is valid until the next call."""

    def advance(self, now: float) -> None:
        """Do work that is due: release delayed frames, retry a full socket."""

    def next_time(self) -> float | None:
        """Return when `advance` must be called next; None: not before something is sent or arrives."""

    def tx_space(self, now: float) -> int:
        """Return how many bytes can be sent now without loss. TCP waits for space instead of losing frames."""

    def counters(self) -> dict[str, int]:
        """Return names and values for `softnic stat`, of this link and those inside it."""

    def close(self) -> None:
        """Close file descriptors. Frames not yet sent are dropped."""


@runtime_checkable
class DirectLink(Link, Protocol):
    """A link whose frames may go to the kernel without it, as long as it has nothing to do for them."""

    def direct_path(self, destination: bytes) -> UdpPath | None:
        """Return the path of frames to a MAC address; None: they are to be sent through the link."""

    def on_direct_sent(self, frames: int, wire_bytes: int) -> None:
        """Count frames that the kernel has accepted from such a path."""


@runtime_checkable
class RecordingLink(Link, Protocol):
    """A link that records its frames for captures."""

    def send_recorded(self, frames: Frames, now: float) -> None:
        """Send a batch that its sender has recorded."""

    @property
    def poll_at(self) -> float | None:
        """When `advance` must be called for the captures; None: not at all."""
