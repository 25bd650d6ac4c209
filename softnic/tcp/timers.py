"""What a connection does when time has passed: retransmission, persist, delayed ACK, keepalive, TIME-WAIT, orphans.

Retransmission after RFC 6298, section 5, and RFC 5681, section 3.1, under a window of one segment that grows again;
what counts as lost then, RFC 8985, section 6.3, says (rack.py). Probes and late segments: acks.py.

Every wait ends. Unacknowledged data ends it after `user_timeout_s` without progress. A window that stays zero does so
only when the peer stops answering probes (as RFC 9293, section 3.8.6.1 wants it; Linux's TCP_USER_TIMEOUT does not
look at the answers), unless the connection is an orphan.

A time is reached when `now >= time`, with the sum the timer was set to: a difference may round the other way, and the
timer would be due for ever.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softnic.tcp.ack import on_pto, on_reo_timer
from softnic.tcp.arm_timers import arm
from softnic.tcp.output import send_new, send_probe, send_reset
from softnic.tcp.path_mtu import confirm_pmtu
from softnic.tcp.state import HANDSHAKE, State
from softnic.tcp.trim import trim_buffers

if TYPE_CHECKING:
    from softnic.tcp.connection import Connection


def on_timer(c: Connection, now: float) -> None:
    """Does what is due."""
    if now >= c.close_at:
        _on_close_time(c, now)
    if now >= c.rto_at:
        if c.state in HANDSHAKE:
            _on_syn_timeout(c, now)
        elif c.persisting:
            _on_persist(c, now)
        else:
            _on_retransmission_timeout(c, now)
    if now >= c.reo_timer:
        on_reo_timer(c, now)
    if now >= c.pto:
        on_pto(c, now)
    if now >= c.pacing_timer:
        c.pacer.woken(now - c.pacing_timer)
        c.pacing_timer = c.NEVER
        c.tcp.wake(c)
    if now >= c.delayed_ack.at:
        c.delayed_ack.expired()
        c.ack_pending = True
        c.tcp.wake(c)
    if now >= c.keepalive_at:
        _on_keepalive(c, now)
    if now >= c.gap_at:
        c.gap_at = c.NEVER
        c.rcv.prune()
    if now >= c.trim_at:
        trim_buffers(c, now)


def _on_close_time(c: Connection, now: float) -> None:
    """TIME-WAIT is over, or an orphan has made no progress for too long."""
    if c.state is State.TIME_WAIT:
        c.finish(0, "")
        return
    send_reset(c, now)
    c.finish(errno.ETIMEDOUT, f"{c.peer_name} did not close its side in {c.tcp.config.orphan_timeout_s:.0f} s")


def _on_syn_timeout(c: Connection, now: float) -> None:
    if c.rtt.backoff >= c.tcp.config.syn_retries or now >= c.unacked_since + c.user_timeout_s:
        c.time_out(now - c.unacked_since)
        return
    c.rtt.back_off()
    c.retransmits += 1
    c.tcp.counters.retransmission_timeouts += 1
    c.syn_pending = True
    arm(c, now)
    c.tcp.wake(c)


def _on_persist(c: Connection, now: float) -> None:
    """Sends what the window takes, however little; if that is nothing, a probe."""
    heard = max(c.last_heard, c.unacked_since)
    if now >= heard + c.user_timeout_s:
        send_reset(c, now)
        c.time_out(now - heard)
        return
    c.rtt.back_off()
    if not send_new(c, now, 1, force=True) and c.persisting:
        send_probe(c, now)
        c.rto_at = min(now + c.rtt.rto, max(now, heard + c.user_timeout_s))


def _on_retransmission_timeout(c: Connection, now: float) -> None:
    snd = c.snd
    if now >= c.unacked_since + c.user_timeout_s:
        send_reset(c, now)
        c.time_out(now - c.unacked_since)
        return
    if c.blocked and snd.snd_una == snd.snd_nxt:
        arm(c, now)
        c.tcp.wake(c)
        return
    if c.reported_mtu is not None:
        confirm_pmtu(c, *c.reported_mtu, now)
    recovery, scoreboard = c.recovery, snd.scoreboard
    recovery.begin_after_timeout(c.congestion, scoreboard, snd.snd_nxt, now, again=c.rtt.backoff > 0)
    c.rack.timed_out(scoreboard, now, c.rack.window(scoreboard, True, c.congestion.smss, c.rtt.srtt))
    c.rtt.back_off()
    c.tcp.counters.retransmission_timeouts += 1
    c.pto = c.reo_timer = c.NEVER
    arm(c, now)
    c.tcp.wake(c)


def _on_keepalive(c: Connection, now: float) -> None:
    """RFC 1122, section 4.2.3.6: probes while nothing is heard. Data on its way changes nothing about it: else what is
    sent late into a silence would have that last `user_timeout_s` longer."""
    if c.keepalive is None or c.state in (State.CLOSED, State.TIME_WAIT):
        c.keepalive_at = c.NEVER
        return
    idle, interval, count = c.keepalive
    if now < c.last_heard + idle:
        c.keepalive_at = c.last_heard + idle
        return
    if c.state in HANDSHAKE:
        c.keepalive_probes = 0
    elif c.keepalive_probes >= count:
        send_reset(c, now)
        c.time_out(now - c.last_heard)
        return
    else:
        c.keepalive_probes += 1
        send_probe(c, now)
    c.keepalive_at = now + interval
