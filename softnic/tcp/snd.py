"""Send side of a connection: sequence space and the peer's window (RFC 9293, sections 3.3.1 and 3.10.7.4).

    1         2          3
----------|----------|----------
       snd_una    snd_nxt

1: acknowledged. 2: sent and not acknowledged (scoreboard.py). 3: not sent yet.
"""

from __future__ import annotations

from softnic._fields import Memory, SendFields
from softnic.tcp.scoreboard import Scoreboard
from softnic.tcp.send_buffer import SendBuffer


class SendState(SendFields):
    """Positions as in seq.py; our SYN has position 0, our FIN `buffer.end` once it is queued."""

    __slots__ = ("buffer", "scoreboard")

    iss: int
    """Our initial sequence number."""
    snd_una: int
    snd_nxt: int
    snd_sml: int
    """End of the last segment sent that did not fill its frames (Minshall's variant of Nagle's rule)."""
    snd_wnd: int
    snd_wl1: int
    """Position (of the peer's stream) of the segment that last updated the window."""
    snd_wl2: int
    """Position that it acknowledged."""
    max_wnd: int
    """The largest window seen, for silly window avoidance and the age limit of ACKs (RFC 5961)."""
    scale: int
    """Shift of the window field in received segments."""
    mss: int
    """Uncompressed payload bytes of one frame (path_mtu.py)."""
    peer_mss: int
    """The MSS that the peer's SYN announced, or its default (RFC 9293, section 3.7.1)."""
    fin_queued: bool

    def __init__(self, capacity: int, iss: int = 0, *, memory: Memory | None = None) -> None:
        del memory
        self.iss = iss
        self.mss = self.peer_mss = 536
        self.buffer = SendBuffer(capacity, memory=self.memory)
        self.scoreboard = Scoreboard(memory=self.memory)

    def on_syn(self, scale: int, peer_mss: int) -> None:
        """Takes the scale of the peer's windows and its MSS."""
        self.scale, self.peer_mss = scale, peer_mss

    def set_mss(self, mss: int) -> None:
        self.mss = mss

    def on_syn_sent(self) -> None:
        if self.snd_nxt == 0:
            self.snd_nxt = 1

    def on_syn_acknowledged(self) -> None:
        self.snd_una = 1

    def resume(self, iss: int) -> None:
        """Continues from a SYN-ACK with this initial number, which was sent without state (syn_cookies.py)."""
        self.iss, self.snd_nxt = iss, 1

    def queue_fin(self) -> None:
        self.fin_queued = True

    @property
    def fin_acknowledged(self) -> bool:
        return self.fin_queued and self.snd_una > self.buffer.end
