"""Timer expiry: retransmission, persist, delayed ACK, keepalive, TIME-WAIT, orphans.

Retransmission follows RFC 6298, section 5, and RFC 5681, section 3.1, with a window of one segment that grows again;
RFC 8985, section 6.3, decides what counts as lost (rack.py). Tail loss probes and the reordering timer: ack.py.

Every wait ends. Unacknowledged data ends it after `user_timeout_s` without progress. A zero window ends it only when
the peer stops answering probes (RFC 9293, section 3.8.6.1; Linux's TCP_USER_TIMEOUT ignores the answers), unless the
connection is an orphan.

A deadline is reached when `now >= deadline`, compared with the sum that the timer was set to: a difference may round
the other way, and the timer would expire again and again.
"""

from __future__ import annotations

import errno

from softnic.tcp import keepalive
from softnic.tcp.ack import on_pto, on_reo_timer
from softnic.tcp.arm_timers import arm_cork, arm_gap, arm_persist_probe, arm_rto, on_recovery_timeout, stop_pacing
from softnic.tcp.flow import NEVER, Flow
from softnic.tcp.output import request_ack, request_syn, send_new, send_probe, send_reset
from softnic.tcp.path_mtu import confirm_pmtu
from softnic.tcp.state import HANDSHAKE, State
from softnic.tcp.transitions import finish, time_out
from softnic.tcp.trim import trim_buffers

_SHORT_INTERVAL_S = 1.0
_REPEATS = 4
"""Keepalive probes in a short interval."""


def on_timer(c: Flow, now: float) -> None:
    """Runs the timers of a connection that are due."""
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
        stop_pacing(c)
        c.tcp.wake(c)
    if now >= c.delayed_ack.at:
        c.delayed_ack.expired()
        request_ack(c)
    if now >= c.keepalive_at:
        _on_keepalive(c, now)
    if now >= c.gap_at:
        arm_gap(c, NEVER)
        c.rcv.prune()
    if now >= c.cork_at:
        arm_cork(c, NEVER)
        send_new(c, now, 1, force=True)
    if now >= c.trim_at:
        trim_buffers(c, now)


def _on_close_time(c: Flow, now: float) -> None:
    """Ends TIME-WAIT, or an orphan without progress."""
    if c.state is State.TIME_WAIT:
        finish(c)
        return
    send_reset(c, now)
    finish(c, errno.ETIMEDOUT, f"{c.peer_name} did not close its side in {c.tcp.config.orphan_timeout_s:.0f} s")


def _on_syn_timeout(c: Flow, now: float) -> None:
    """Retransmits a SYN or SYN-ACK, or gives up."""
    if c.rtt.backoff >= c.tcp.config.syn_retries or now >= c.unacked_since + c.user_timeout_s:
        time_out(c, now - c.unacked_since)
        return
    c.rtt.back_off()
    c.tcp.counters.retransmission_timeouts += 1
    arm_rto(c, now)
    request_syn(c, again=True)


def _on_persist(c: Flow, now: float) -> None:
    """Sends what the window permits, however little, or else a probe."""
    heard = max(c.last_heard, c.unacked_since)
    if now >= heard + c.user_timeout_s:
        send_reset(c, now)
        time_out(c, now - heard)
        return
    c.rtt.back_off()
    if not send_new(c, now, 1, force=True) and c.persisting:
        send_probe(c, now)
        arm_persist_probe(c, now, heard)


def _on_retransmission_timeout(c: Flow, now: float) -> None:
    """Marks losses and starts recovery, or gives up."""
    snd = c.snd
    if now >= c.unacked_since + c.user_timeout_s:
        send_reset(c, now)
        time_out(c, now - c.unacked_since)
        return
    if c.blocked and snd.snd_una == snd.snd_nxt:
        arm_rto(c, now)
        c.tcp.wake(c)
        return
    if c.reported_mtu is not None:
        confirm_pmtu(c, *c.reported_mtu, now)
    scoreboard = snd.scoreboard
    c.recovery.begin_after_timeout(c.rtt.backoff > 0)
    c.rack.timed_out(scoreboard, now, c.rack.window(scoreboard, True, c.congestion.smss, c.rtt.srtt))
    c.rtt.back_off()
    c.tcp.counters.retransmission_timeouts += 1
    on_recovery_timeout(c, now)
    c.tcp.wake(c)


def _on_keepalive(c: Flow, now: float) -> None:
    """Probes a silent peer (RFC 1122, section 4.2.3.6), or gives up.

    Data in flight changes nothing: data sent late into a silence would otherwise prolong it by `user_timeout_s`. With
    intervals of a second or less, which are for peers that must be noticed soon, a probe is sent several times in each:
    a lossy path loses one easily.
    """
    if c.keepalive is None or c.state in (State.CLOSED, State.TIME_WAIT):
        keepalive.postpone(c, NEVER)
        return
    idle, interval, count = c.keepalive
    if interval <= _SHORT_INTERVAL_S:
        interval, count = interval / _REPEATS, count * _REPEATS
    if now < c.last_heard + idle:
        keepalive.postpone(c, c.last_heard + idle)
        return
    if c.state in HANDSHAKE:
        keepalive.on_heard(c)
        keepalive.postpone(c, now + interval)
    elif c.keepalive_probes >= count:
        send_reset(c, now)
        time_out(c, now - c.last_heard)
    else:
        send_probe(c, now)
        keepalive.on_probe(c, now + interval)
