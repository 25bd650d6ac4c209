"""What two sides agree on: options of the peer's SYN (RFC 9293, section 3.7.1; RFC 7323; RFC 2018), and what follows.

Each is used only if both SYNs have it. Our own offers all of them, and an answer what it was offered (output.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softnic.packet.headers import MAX_SCALE
from softnic.packet.segment import Options, Segment
from softnic.tcp.path_mtu import update_mss

if TYPE_CHECKING:
    from softnic.tcp.connection import Connection

DEFAULT_MSS = 536
"""Of a peer that announces none (RFC 9293, section 3.7.1)."""


def apply_syn_options(c: Connection, s: Segment, now: float) -> None:
    """Takes over what the peer's SYN says of its side, but for its window, which its ACK tells (arrives.py)."""
    options = s.options or Options()
    snd = c.snd
    c.rcv.irs = s.seq
    c.rcv.rcv_nxt = 1
    c.use_timestamps = s.timestamps is not None
    c.use_sack = options.sack_permitted
    c.peer_scales = options.window_scale is not None
    snd.scale = min(options.window_scale or 0, MAX_SCALE)
    snd.peer_mss = options.mss or DEFAULT_MSS
    update_mss(c, now)
    c.congestion = type(c.congestion)(c.congestion.smss)
    if options.codecs is None:
        snd.buffer.no_floats()
    else:
        c.rack.peer_ack_delay_s = c.tcp.config.ack_delay_s
    if s.timestamps is not None:
        c.timestamps.note(s.timestamps[0], now)
