"""When a sender that hears nothing acts: the retransmission timer and the tail loss probe are set here.

The layer looks at a connection's times when the earliest comes, as it was when it was set (`TcpStack.schedule`): a time
that moves later, as both do with every acknowledgement, costs nothing but its arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softnic.tcp.connection import Connection


def arm(c: Connection, now: float) -> None:
    """(Re)starts the retransmission or persist timer (RFC 6298, section 5)."""
    at = now + c.rtt.rto
    given_up_at = c.unacked_since + c.user_timeout_s
    if at > given_up_at:
        at = max(now, given_up_at)
    c.rto_at = at
    if at < c.scheduled_at:
        c.tcp.schedule(c)


def arm_probe(c: Connection, now: float) -> None:
    """Sets the time of a tail loss probe (RFC 8985, section 7.2), where nothing else is known to be wrong."""
    c.pto = c.NEVER
    if c.use_sack and c.recovery.open:
        at = now + c.rack.probe_after(c.snd.scoreboard, c.congestion.smss, c.rtt.srtt)
        if at < c.rto_at:
            c.pto = at
            if at < c.scheduled_at:
                c.tcp.schedule(c)
