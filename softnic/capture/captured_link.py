"""A link around a link that records its frames, except those that the turn of the node has recorded in C.

It also polls the captures from `advance`, and asks to be called for that while a capture is in progress, so that the
daemon needs no handler of its own.
"""

from __future__ import annotations

from softnic.capture.hook import CaptureHook
from softnic.capture.pcapng import Direction
from softnic.link.base import DirectLink, Link, UdpPath
from softnic.packet.frames import Frames


class CapturedLink:
    """A `Link` that records the frames of `inner`."""

    def __init__(self, inner: Link, hook: CaptureHook) -> None:
        self._inner = inner
        self._direct = inner if isinstance(inner, DirectLink) else None
        self._hook = hook

    @property
    def mtu(self) -> int:
        return self._inner.mtu

    def send(self, frames: Frames, now: float) -> None:
        if self._hook.active:
            self._hook.record_wire(frames, now, Direction.OUTBOUND)
        self._inner.send(frames, now)

    def send_recorded(self, frames: Frames, now: float) -> None:
        """Send a batch that was recorded where it was cut."""
        self._inner.send(frames, now)

    @property
    def poll_at(self) -> float | None:
        """When `advance` must be called for the captures; None: not at all."""
        return self._hook.poll_at

    def direct_path(self, destination: bytes) -> UdpPath | None:
        """Return the path of `inner`; none while frames are recorded."""
        return None if self._direct is None or self._hook.active else self._direct.direct_path(destination)

    def on_direct_sent(self, frames: int, wire_bytes: int) -> None:
        assert self._direct is not None
        self._direct.on_direct_sent(frames, wire_bytes)

    def receive(self, now: float) -> Frames | None:
        frames = self._inner.receive(now)
        if frames is not None and self._hook.active:
            self._hook.record_wire(frames, now, Direction.INBOUND)
        return frames

    def advance(self, now: float) -> None:
        if self._hook.active:
            self._hook.poll(now)
        self._inner.advance(now)

    def next_time(self) -> float | None:
        inner, own = self._inner.next_time(), self._hook.next_time()
        if own is None or inner is None:
            return inner if own is None else own
        return min(own, inner)

    def tx_space(self, now: float) -> int:
        return self._inner.tx_space(now)

    def counters(self) -> dict[str, int]:
        return self._inner.counters() | self._hook.counters()

    def close(self) -> None:
        self._hook.close()
        self._inner.close()
