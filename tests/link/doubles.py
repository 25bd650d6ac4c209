"""Test doubles of a link, an application and a frame, for the tests in this directory."""

from __future__ import annotations

from softnic.packet.frames import Frames

A, B, C = (bytes.fromhex(f"02534e00000{last}") for last in "123")
BROADCAST = b"\xff" * 6


def frame(destination: bytes, source: bytes, text: bytes = b"") -> bytes:
    return destination + source + b"\x08\x00" + text


def numbered(first: int, count: int, size: int = 1514) -> Frames:
    """Return frames from A to B, each with its number as payload."""
    return Frames.of(
        frame(B, A, number.to_bytes(4, "big")).ljust(size, b"\0") for number in range(first, first + count)
    )


def number_of(data: bytes) -> int:
    return int.from_bytes(data[14:18], "big")


class Recorder:
    """A link that records the frames sent over it, with their times."""

    def __init__(self, mtu: int = 1500) -> None:
        self.mtu = mtu
        self.sent: list[tuple[float, bytes]] = []
        self.batches: list[Frames] = []
        self.incoming: list[Frames] = []
        self.free = 1 << 30
        self.wake: float | None = None
        self.closed = False

    def send(self, frames: Frames, now: float) -> None:
        self.batches.append(frames)
        self.sent += [(now, data) for data in frames]

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        return self.incoming.pop(0) if self.incoming else None

    def advance(self, now: float) -> None:
        if self.wake is not None and now >= self.wake:
            self.wake = None

    def next_time(self) -> float | None:
        return self.wake

    def tx_space(self, now: float) -> int:  # noqa: ARG002
        return self.free

    def counters(self) -> dict[str, int]:
        return {"link_sent": len(self.sent)}

    def close(self) -> None:
        self.closed = True

    @property
    def numbers(self) -> list[int]:
        return [number_of(data) for _, data in self.sent]
