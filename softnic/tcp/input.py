"""Processing of a segment for a connection: SEGMENT ARRIVES (RFC 9293, section 3.10.7), in the RFC's order.

Departures and additions: PAWS (RFC 7323, section 5); RST, SYN and old ACKs are accepted only where an off-path attacker
could not have guessed them (RFC 5961), and as in Linux a RST that has the number of the peer's FIN; RST is ignored in
TIME-WAIT (RFC 1337); data on a SYN is left to its retransmission. A segment that starts in the window is taken whole
(rcv.py). An empty segment may lie at the window's right edge, as in Linux: a peer that has filled our window sends its
ACKs there, and if they were dropped after a loss, both sides would wait for their retransmission timeouts.
"""

from __future__ import annotations

import errno

from softnic._native import lib
from softnic.packet.segment import Flags, Segment
from softnic.tcp.ack import process_ack
from softnic.tcp.arm_timers import arm_close, arm_gap, on_handshake_acknowledged, stop_rto
from softnic.tcp.flow import NEVER, Flow
from softnic.tcp.handshake import apply_syn_options
from softnic.tcp.output import cancel_dup_acks, request_ack, request_dup_acks, request_syn, send_reset, send_reset_for
from softnic.tcp.state import AFTER_FIN_ACKNOWLEDGED, AFTER_PEERS_FIN, RECEIVING, State
from softnic.tcp.transitions import become, clear_soft_error, establish, finish, open_passive
from softnic.tcp.trim import schedule_trim

FIN, SYN, RST, ACK = (int(flag) for flag in (Flags.FIN, Flags.SYN, Flags.RST, Flags.ACK))
MAX_DUPLICATE_ACKS: int = lib.SN_MOST_DUPLICATE_ACKS
"""Limit for one batch of out-of-order segments."""
_BEHIND_PEERS_FIN = (State.CLOSE_WAIT, State.CLOSING, State.LAST_ACK)
"""States in which a RST may have the number of the peer's FIN, as that of a program which macOS ends has."""
_CHALLENGE_INTERVAL_S = 0.05
"""Between two answers to unacceptable empty segments: bounds their cost, and breaks ACK loops (RFC 5961, 7)."""


def process_segment(c: Flow, s: Segment, now: float) -> None:
    """Processes a segment for a connection in any state but CLOSED and LISTEN."""
    c.frames_received += s.frames
    if c.state is State.SYN_SENT:
        _syn_sent(c, s, now)
        return
    rcv, stamps = c.rcv, s.timestamps
    position = rcv.position(s.seq)
    if c.use_timestamps and (stamps is None or stamps[0] != c.timestamps.ts_recent) and not _paws(c, s, now):
        return
    flags = s.flags
    if c.state is State.SYN_RECEIVED and flags & SYN and position == 0:
        if not flags & ACK:  # a retransmitted SYN: ours was lost
            request_syn(c)
            return
        flags &= ~SYN  # simultaneous open: only its ACK is new
        position = 1
    if not rcv.accepts(position, len(s.payload) + (flags & FIN)):  # FIN is bit 0
        _unacceptable(c, s, flags, position, now)
        return
    if flags & (RST | SYN):
        _reset_or_syn(c, flags, position, now)
        return
    _heard(c, s, position, now)
    if _ack(c, s, flags, position, now) and (s.payload or flags & FIN):
        _text(c, s, flags, position, now)


def _paws(c: Flow, s: Segment, now: float) -> bool:
    """Protection against wrapped sequence numbers (RFC 7323, section 5.3, R1)."""
    if s.flags & RST:
        return True
    if s.timestamps is None:
        c.tcp.counters.dropped_paws += 1
        return False
    value = s.timestamps[0]
    if c.timestamps.is_old(value, now):
        c.tcp.counters.dropped_paws += 1
        _answer(c, s, now)
        return False
    return True


def _heard(c: Flow, s: Segment, position: int, now: float) -> None:
    """Ends the effects of silence, and notes the timestamp to echo."""
    if c.heard(position, -1 if s.timestamps is None else s.timestamps[0], now):
        clear_soft_error(c)


def _answer(c: Flow, s: Segment, now: float) -> None:
    """Answers an unacceptable segment with an ACK; answers to empty segments are rate-limited."""
    if s.payload or s.flags & FIN:
        request_ack(c)
        if c.use_sack:  # alone, to carry SACK blocks
            start = c.rcv.position(s.seq)
            c.rcv.repeated(start, min(start + len(s.payload), c.rcv.rcv_nxt))
            request_dup_acks(c, 1)
    else:
        _challenge(c, now)


def _challenge(c: Flow, now: float) -> None:
    """Sends a challenge ACK (RFC 5961), rate-limited."""
    if now < c.last_challenge + _CHALLENGE_INTERVAL_S:
        return
    c.last_challenge = now
    c.tcp.counters.challenge_acks += 1
    request_ack(c)


def _unacceptable(c: Flow, s: Segment, flags: int, position: int, now: float) -> None:
    """Drops and answers a segment that fails the first check, of the sequence number."""
    if flags & RST and position == c.rcv.rcv_nxt - 1 and c.state in _BEHIND_PEERS_FIN:
        _reset(c)
        return
    c.tcp.counters.dropped_sequence += 1
    if flags & RST:
        return
    if c.state is State.TIME_WAIT and flags & FIN:
        arm_close(c, now + c.tcp.config.time_wait_s)
    elif position <= c.rcv.rcv_nxt and flags & ACK and max(1, c.snd.snd_una) <= c.snd.position(s.ack) <= c.snd.snd_nxt:
        # a duplicate, a probe, or data beyond the window: its acknowledgement is valid
        _heard(c, s, position, now)
        _ack(c, s, flags, position, now, countable=False)
    _answer(c, s, now)


def _reset_or_syn(c: Flow, flags: int, position: int, now: float) -> None:
    """Second and fourth check: RST, or an unexpected SYN (RFC 5961, sections 3 and 4)."""
    if not flags & RST or position != c.rcv.rcv_nxt:
        c.tcp.counters.dropped_reset += 1
        _challenge(c, now)
        return
    if c.state is State.TIME_WAIT:
        c.tcp.counters.dropped_reset += 1
        return
    _reset(c)


def _reset(c: Flow) -> None:
    """Ends the connection by the peer's RST."""
    c.tcp.counters.resets_received += 1
    if c.state in (State.CLOSING, State.LAST_ACK):
        finish(c)
    elif c.state is State.SYN_RECEIVED:
        finish(c, errno.ECONNREFUSED, f"{c.peer_name} refused the connection")
    elif c.state is State.CLOSE_WAIT:  # as in Linux: readers had the end of stream, writers fail
        finish(c, errno.EPIPE, f"{c.peer_name} reset the connection after it closed its end")
    else:
        finish(c, errno.ECONNRESET, f"{c.peer_name} reset the connection")


def _syn_sent(c: Flow, s: Segment, now: float) -> None:
    """Processes a segment in SYN-SENT (RFC 9293, section 3.10.7.3)."""
    flags = s.flags
    ack = c.snd.position(s.ack)
    if flags & ACK and ack != 1:
        c.tcp.counters.dropped_ack += 1
        if not flags & RST:
            send_reset_for(c.tcp, s, now)
        return
    if flags & RST:
        if flags & ACK:
            c.tcp.counters.resets_received += 1
            finish(c, errno.ECONNREFUSED, f"{c.peer_name} refused the connection")
        else:
            c.tcp.counters.dropped_reset += 1
        return
    if not flags & SYN:
        c.tcp.counters.dropped_flags += 1
        return
    _heard(c, s, 0, now)
    apply_syn_options(c, s, now)
    if not flags & ACK:
        open_passive(c)
        request_syn(c)
        return
    _opened(c, now)
    c.snd.update_window(0, 1, s.window, False)
    request_ack(c)
    c.on_established()


def _opened(c: Flow, now: float) -> None:
    """Our SYN is acknowledged, and unless it was sent again, that is the first round trip."""
    if not c.rtt.backoff:
        c.rtt.sample(now - c.syn_sent_at)
        if c.congestion.by_path:
            c.rack.minimum.sample(now - c.syn_sent_at, now)
    c.snd.on_syn_acknowledged()
    establish(c)
    c.rtt.answered()
    on_handshake_acknowledged(c, now)


def _ack(c: Flow, s: Segment, flags: int, position: int, now: float, countable: bool = True) -> bool:
    """Fifth check: the ACK field. Returns whether the segment's text is processed.

    `countable`: an ACK of no new data counts as a duplicate.
    """
    snd = c.snd
    una, ack = snd.snd_una, snd.position(s.ack)
    if not flags & ACK or ack > snd.snd_nxt or (ack < una and ack < una - snd.max_wnd):
        c.tcp.counters.dropped_ack += 1
        if not flags & ACK:
            return False
        if c.state is State.SYN_RECEIVED:
            send_reset_for(c.tcp, s, now)
        else:
            _answer(c, s, now)
        return False
    if c.state is State.SYN_RECEIVED:
        if not _syn_received(c, s, ack, now):
            return False
        una = snd.snd_una
    duplicates = s.frames if countable and not s.payload and not flags & FIN else 0
    if ack > una:
        process_ack(c, s, ack, duplicates - 1, now)
        snd.update_window(position, ack, s.window, True)
        _progress(c, now)
    else:
        scaled = not s.flags & SYN  # simultaneous open: a SYN's window is not scaled (RFC 7323, section 2.2)
        if ack < una or snd.update_window(position, ack, s.window, scaled):
            duplicates = 0
        if (duplicates or s.sacks) and snd.scoreboard:
            process_ack(c, s, una, duplicates, now)
    if c.persisting and snd.snd_wnd:
        c.rtt.answered()
        stop_rto(c)
    if not c.queued and c.has_output:
        c.tcp.wake(c)
    return c.state is not State.CLOSED


def _syn_received(c: Flow, s: Segment, ack: int, now: float) -> bool:
    """Completes a passive or simultaneous open. Returns whether the segment is processed further."""
    if ack < 1:
        c.tcp.counters.dropped_ack += 1
        send_reset_for(c.tcp, s, now)
        return False
    if c.listener is not None and c.listener.full:  # the SYN-ACK is retransmitted, and acknowledged again
        c.tcp.counters.dropped_backlog += 1
        return False
    _opened(c, now)
    if c.listener is None:
        c.on_established()
    else:
        c.listener.on_established(c)
    return True


def _progress(c: Flow, now: float) -> None:
    """Handles the acknowledgement of new data or of our FIN."""
    if c.orphaned and c.state is not State.TIME_WAIT:
        arm_close(c, now + c.tcp.config.orphan_timeout_s)
    c.on_writable()
    if c.snd.fin_queued and c.snd.fin_acknowledged and c.state in AFTER_FIN_ACKNOWLEDGED:
        become(c, AFTER_FIN_ACKNOWLEDGED[c.state], now)


def _tune(c: Flow, s: Segment, now: float) -> None:
    """Tunes the receive buffer at the end of a round trip."""
    echoed = None
    if s.timestamps is not None and s.timestamps[1]:
        echoed = c.timestamps.rtt(s.timestamps[1], now)
    c.receive_tuning.round(c.rcv, now, c.rtt.srtt, echoed)
    if c.trim_at == NEVER:
        schedule_trim(c, now)


def _text(c: Flow, s: Segment, flags: int, position: int, now: float) -> None:
    """Seventh and eighth check: the segment's text and FIN."""
    rcv = c.rcv
    if c.state not in RECEIVING:
        c.tcp.counters.dropped_flags += 1  # data after the peer's FIN
        _answer(c, s, now)
        return
    before, whole = rcv.rcv_nxt, not rcv.has_gap
    if c.orphaned and position + len(s.payload) > before:
        send_reset(c, now)
        finish(c, errno.ECONNRESET, f"{c.peer_name} sent data after the application had closed the connection")
        return
    if position > before and now >= c.receive_tuning.round_ends:
        _tune(c, s, now)
    if not rcv.put(position, s.payload, bool(flags & FIN)):
        c.tcp.counters.dropped_reassembly += 1
    elif position > before:
        c.tcp.counters.out_of_order += 1
    nxt = rcv.rcv_nxt
    if rcv.has_gap:
        if nxt > before or c.gap_at == NEVER:
            arm_gap(c, now + c.gap_s)
    elif c.gap_at != NEVER:
        arm_gap(c, NEVER)
    if nxt == before:
        # one duplicate ACK for every frame, because the sender counts them
        request_dup_acks(c, min(c.dup_acks_pending + s.frames, MAX_DUPLICATE_ACKS))
        return
    if rcv.has_gap and c.use_sack:
        request_dup_acks(c, 1)  # data that acknowledges as much would not report what is behind the gap
    elif c.dup_acks_pending:
        cancel_dup_acks(c)
    c.on_readable()
    if now >= c.receive_tuning.round_ends:
        _tune(c, s, now)
    if rcv.eof:
        become(c, AFTER_PEERS_FIN[c.state], now)
    elif c.delayed_ack.should_delay(s.frames, len(s.payload), now) and whole and not c.ack_pending:
        if c.delayed_ack.at < c.scheduled_at:
            c.tcp.schedule(c)
        return
    request_ack(c)
