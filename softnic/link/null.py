"""A link without a peer, for measurements without a wire."""

from __future__ import annotations

from softnic.packet.frames import Frames


class NullLink:
    """Discards every frame sent; receives none."""

    def __init__(self, mtu: int = 1500) -> None:
        self.mtu = mtu

    def send(self, frames: Frames, now: float) -> None:
        pass

    def receive(self, now: float) -> Frames | None:  # noqa: ARG002
        return None

    def advance(self, now: float) -> None:
        pass

    def next_time(self) -> float | None:
        return None

    def tx_space(self, now: float) -> int:  # noqa: ARG002
        return 1 << 30

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        pass
