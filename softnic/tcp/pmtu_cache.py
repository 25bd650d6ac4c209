"""Path MTUs known to a node, by the address of the other host (RFC 1191, section 6.3)."""

from __future__ import annotations

LIFETIME_S = 600.0
"""After which longer packets are tried again (RFC 1191, section 6.3; RFC 8201, section 4)."""
_MOST_KNOWN = 1024
_NEVER = float("inf")


class PathMtus:
    """Bounded cache of the paths that carry less than the link."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, float]] = {}

    def note(self, address: int, mtu: int, now: float) -> None:
        """Records the MTU of the path to an address, for `LIFETIME_S`."""
        self._known.pop(address, None)
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[address] = mtu, now + LIFETIME_S

    def get(self, address: int, now: float) -> tuple[int, float]:
        """Returns the path's MTU in IPv4 bytes, 0 if nothing is known, and until when that is valid."""
        mtu, until = self._known.get(address, (0, _NEVER))
        return (mtu, until) if now < until else (0, _NEVER)
