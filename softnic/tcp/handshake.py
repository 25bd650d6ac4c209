"""Options negotiated by SYN and SYN-ACK (RFC 9293, section 3.7.1; RFC 7323; RFC 2018; RFC 6994).

An option is used only if both SYNs carry it. Our SYN offers all of them, our SYN-ACK those it was offered (output.py).
"""

from __future__ import annotations

from softnic.packet.headers import MAX_SCALE
from softnic.packet.segment import Options, Segment
from softnic.tcp.flow import Flow
from softnic.tcp.path_mtu import update_mss

DEFAULT_MSS = 536
"""Of a peer that announces none (RFC 9293, section 3.7.1)."""


def apply_syn_options(c: Flow, s: Segment, now: float) -> None:
    """Takes over the peer's options and initial number; its window is taken from its ACK (input.py)."""
    options = s.options or Options()
    c.rcv.on_syn(s.seq)
    c.use_timestamps = s.timestamps is not None
    c.use_sack = options.sack_permitted
    c.peer_scales = options.window_scale is not None
    c.peer_codecs = options.codecs
    c.snd.on_syn(min(options.window_scale or 0, MAX_SCALE), options.mss or DEFAULT_MSS)
    update_mss(c, now)
    c.replace_congestion(type(c.congestion)(c.congestion.smss))
    if options.codecs is None:
        c.snd.buffer.no_floats()
    else:
        c.rack.set_peer_ack_delay(c.tcp.config.ack_delay_s)
    if s.timestamps is not None:
        c.timestamps.note(s.timestamps[0], now)
