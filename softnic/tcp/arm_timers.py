"""Deadlines of a connection: who sets them and how they are stopped.

The stack checks a connection when the earliest deadline is due that was set (`FlowServices.schedule`). A deadline that
is postponed, as the retransmission timer is by each acknowledgement, is rechecked when it expires.
"""

from __future__ import annotations

from softnic.tcp.flow import NEVER, Flow


def arm_rto(c: Flow, now: float) -> None:
    """(Re)starts the retransmission or persist timer (RFC 6298, section 5)."""
    if c.arm_rto(now):
        c.tcp.schedule(c)


def expire_rto(c: Flow, now: float) -> None:
    """Has a retransmission timer that was backed off expire now: the reason of the losses is gone."""
    if c.rtt.backoff and now < c.rto_at < NEVER:
        c.rto_at = now
        c.tcp.schedule(c)


def start_rto(c: Flow, now: float, persist: bool = False) -> None:
    """Starts the timer for something that the peer owes from now on; `persist`: an open window."""
    c.persisting = persist
    c.unacked_since = now
    arm_rto(c, now)


def arm_persist_probe(c: Flow, now: float, heard: float) -> None:
    """Sets the time of the next window probe; `heard` is the last sign of the peer."""
    c.rto_at = min(now + c.rtt.rto, max(now, heard + c.user_timeout_s))


def stop_rto(c: Flow) -> None:
    """Nothing is owed: ends retransmission and persist timer."""
    c.persisting = False
    c.rto_at = NEVER


def on_handshake_acknowledged(c: Flow, now: float) -> None:
    """Our SYN is acknowledged."""
    c.rto_at = NEVER
    c.unacked_since = now


def stop_pto(c: Flow) -> None:
    c.pto = NEVER


def stop_reo_timer(c: Flow) -> None:
    c.reo_timer = NEVER


def on_recovery_timeout(c: Flow, now: float) -> None:
    """The retransmission timer expired: it starts again, and losses are not looked for by other timers."""
    c.pto = c.reo_timer = NEVER
    arm_rto(c, now)


def stop_pacing(c: Flow) -> None:
    c.pacing_timer = NEVER


def arm_gap(c: Flow, at: float) -> None:
    """Sets when out-of-order data is dropped; NEVER stops the timer."""
    c.gap_at = at
    if at < c.scheduled_at:
        c.tcp.schedule(c)


def arm_cork(c: Flow, at: float) -> None:
    """Sets when a short segment leaves a corked connection; NEVER stops the timer."""
    c.cork_at = at
    if at < c.scheduled_at:
        c.tcp.schedule(c)


def arm_close(c: Flow, at: float) -> None:
    """Sets the end of TIME-WAIT, or of an orphan without progress."""
    c.close_at = at


def stop_all(c: Flow) -> None:
    """Ends every timer of this module."""
    c.rto_at = c.pto = c.reo_timer = c.pacing_timer = c.close_at = c.gap_at = c.cork_at = NEVER
