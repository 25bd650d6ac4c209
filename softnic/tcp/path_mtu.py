"""Length of frames to a peer: path MTU discovery (RFC 1191), and the stream bytes that one frame carries.

A frame is no longer than the link, the MSS of the peer's SYN (RFC 9293, section 3.7.1), TCP_MAXSEG and the path allow.
An ICMP "fragmentation needed" is believed only if the segment in question stays unacknowledged for a retransmission
timeout (RFC 5927, section 7.2), because a segment that arrives cannot have been too long. It then applies to all
connections to that address, never below `LEAST_PATH_MTU`, for `pmtu_cache.LIFETIME_S`. A router that reports no MTU is
taken to have the next lower one of RFC 1191's table. Paths that drop long packets silently are not detected (RFC 4821
would).
"""

from __future__ import annotations

from softnic.tcp.flow import Flow

LEAST_PATH_MTU = 552
"""As Linux's min_pmtu: smaller reports are raised to this."""
_PLATEAUS = (8166, 4352, 2002, 1492, 1006, 576)
"""RFC 1191, section 7, up to the MTUs of interest."""
_MIN_MSS = 160  # a frame holds its headers and one coding block
_IP_TCP = 40
_ETHERNET = 14
_TIMESTAMPS = 12


def update_mss(c: Flow, now: float) -> None:
    """Sets the frame length from what is known: after the peer's SYN, when the path narrows, when that expires."""
    link = c.tcp.config.mtu
    known, c.path_mtu_until = c.tcp.path_mtus.get(c.peer[0], now)
    mss = max(_MIN_MSS, min(c.snd.peer_mss, (known or link) - _IP_TCP, c.user_mss or 0xFFFF))
    c.path_mtu = mss + _IP_TCP if mss + _IP_TCP < link else 0
    c.snd.set_mss(mss - (_TIMESTAMPS if c.use_timestamps else 0))
    c.congestion.set_smss(_ETHERNET + _IP_TCP + mss)


def on_frag_needed(c: Flow, mtu: int, length: int, position: int) -> bool:
    """Notes an ICMP report that the packet of `length` bytes at `position` exceeds `mtu` (0: not reported).

    Returns False if the report cannot be true. It is confirmed by the next timeout.
    """
    mtu = max(mtu or next((size for size in _PLATEAUS if size < length), 0), LEAST_PATH_MTU)
    if mtu >= (c.path_mtu or c.tcp.config.mtu):
        return False
    c.reported_mtu = mtu, position
    return True


def confirm_pmtu(c: Flow, mtu: int, position: int, now: float) -> None:
    """Applies a report after a retransmission timeout, unless its packet was acknowledged (RFC 5927, section 7.2)."""
    c.reported_mtu = None
    if position < c.snd.snd_una:
        return
    c.tcp.counters.path_mtus_lowered += 1
    c.tcp.path_mtus.note(c.peer[0], mtu, now)
    update_mss(c, now)
