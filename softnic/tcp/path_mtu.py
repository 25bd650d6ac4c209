"""How long packets to a peer may be (RFC 1191), and so how much of a stream a frame holds.

No longer than the link carries, the peer's SYN says (RFC 9293, section 3.7.1), and the path: a router that says
"fragmentation needed" is believed when the segment has really gone unanswered for a retransmission timeout (RFC 5927,
section 7.2), because what arrives anyhow cannot have been too long. That holds for all connections to the address, and
never falls below `LEAST_PATH_MTU`. After `LIFETIME_S` longer ones are tried again (RFC 1191, section 6.3; RFC 8201,
section 4), which costs a timeout where the path is as narrow as before. A router that does not say its MTU has the next
lower one of RFC 1191's table. A path that drops long packets and does not say so is not found out (RFC 4821 would).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softnic.tcp.connection import Connection

LEAST_PATH_MTU = 552
"""As Linux's min_pmtu: what claims to be narrower is taken for this."""
LIFETIME_S = 600.0
_MOST_KNOWN = 1024
_PLATEAUS = (8166, 4352, 2002, 1492, 1006, 576)
"""RFC 1191, section 7, as far as it matters here."""
_MIN_MSS = 160  # a frame holds its headers and one stretch of a tagged range
_IP_TCP = 40
_ETHERNET = 14
_TIMESTAMPS = 12
_NEVER = float("inf")


class PathMtus:
    """What is known of the paths to other hosts, by address."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, float]] = {}

    def note(self, address: int, mtu: int, now: float) -> None:
        self._known.pop(address, None)
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[address] = mtu, now + LIFETIME_S

    def get(self, address: int, now: float) -> tuple[int, float]:
        """IPv4 bytes, 0 if the path is not known to carry less than the link; and until when that holds."""
        mtu, until = self._known.get(address, (0, _NEVER))
        return (mtu, until) if now < until else (0, _NEVER)


def update_mss(c: Connection, now: float) -> None:
    """Makes frames as long as they may be, as far as is known now: when the peer's SYN has come, when the path turns
    out to be narrow, and when that is to be tried again."""
    link = c.tcp.config.mtu
    known, c.path_mtu_until = c.tcp.path_mtus.get(c.peer[0], now)
    mss = max(_MIN_MSS, min(c.snd.peer_mss, (known or link) - _IP_TCP))
    c.path_mtu = mss + _IP_TCP if mss + _IP_TCP < link else 0
    c.snd.mss = mss - (_TIMESTAMPS if c.use_timestamps else 0)
    c.congestion.smss = _ETHERNET + _IP_TCP + mss


def on_frag_needed(c: Connection, mtu: int, length: int, position: int) -> bool:
    """A router says that the packet at `position`, of `length` bytes, was longer than its MTU (0: it does not say
    which). Notes that, to be believed at the next timeout. Returns whether that can be."""
    mtu = max(mtu or next((size for size in _PLATEAUS if size < length), 0), LEAST_PATH_MTU)
    if mtu >= (c.path_mtu or c.tcp.config.mtu):
        return False
    c.reported_mtu = mtu, position
    return True


def confirm_pmtu(c: Connection, mtu: int, position: int, now: float) -> None:
    """The retransmission timer has expired after a claim. If the packet in question was not acknowledged in time, the
    path is as narrow as claimed; if it was, the claim was wrong (RFC 5927, section 7.2)."""
    c.reported_mtu = None
    if position < c.snd.snd_una:
        return
    c.tcp.counters.path_mtus_lowered += 1
    c.tcp.path_mtus.note(c.peer[0], mtu, now)
    update_mss(c, now)
