"""Sending (RFC 9293, sections 3.7 and 3.8; RFC 1122, section 4.2.3.4).

One call of `output` sends at most one super-segment, so that flows can take turns. In order of urgency: SYN; duplicate
ACKs, alone, because only empty segments count as duplicates and have room for SACK blocks (RFC 2018, section 4, wants
them on data too, whose frames would then have to be smaller); retransmissions; new data and FIN; an ACK if none of
these carried it.

New data is limited by the peer's window in original bytes, and by the congestion window and the link in frames. A short
segment waits while another short one is in flight (Nagle's algorithm in Minshall's variant: the end of a long write
does not wait) unless `nodelay`, a tag change or a FIN ends it. A corked connection sends none for CORK_S. A segment
shortened by the peer's window waits for a larger window (silly window avoidance) until the persist timer forces it.
"""

from __future__ import annotations

import struct

from softnic._native import lib
from softnic.packet.segment import Flags, Options, Segment, Transmitted
from softnic.tcp import seq
from softnic.tcp.arm_timers import arm_cork, arm_rto, start_rto
from softnic.tcp.flow import NEVER, Flow, FlowServices
from softnic.tcp.path_mtu import update_mss
from softnic.tcp.send_buffer import LONGEST_BLOCK
from softnic.tcp.state import HANDSHAKE, SENDING, State

FIN, SYN, RST, PSH, ACK = (int(flag) for flag in (Flags.FIN, Flags.SYN, Flags.RST, Flags.PSH, Flags.ACK))
CORK_S = 0.2
"""For how long TCP_CORK holds a short segment back, as in Linux."""
MOST_SACKS: int = lib.SN_MOST_SACKS
"""Blocks of a SACK option; timestamps take the place of one (RFC 2018, section 3)."""
_NUMBERS = struct.Struct("=24x6I")  # of an sn_output: sequence and ACK number, flags, window, timestamps


def request_ack(c: Flow) -> None:
    """An ACK is due, alone or on the next data."""
    c.ack_pending = True
    if not c.queued:
        c.tcp.wake(c)


def request_dup_acks(c: Flow, count: int) -> None:
    """This many duplicate ACKs are due."""
    c.dup_acks_pending = count
    c.tcp.wake(c)


def cancel_dup_acks(c: Flow) -> None:
    c.dup_acks_pending = 0


def request_syn(c: Flow, again: bool = False) -> None:
    """A SYN or SYN-ACK is due; `again`: the first one was lost."""
    c.syn_pending = True
    c.retransmits += again
    c.tcp.wake(c)


def cancel_output(c: Flow) -> None:
    """Sends no more ACKs: the connection has ended."""
    c.ack_pending = False
    c.dup_acks_pending = 0
    c.delayed_ack.on_pure_ack()


def output(c: Flow, now: float, frames: int) -> int:
    """Sends what is most urgent, in at most `frames` frames. Returns the wire bytes; 0: nothing can be sent now."""
    if c.state in HANDSHAKE:
        return _send_syn(c, now) if c.syn_pending else 0
    if c.state is State.CLOSED:
        return 0
    sent = 0
    if c.dup_acks_pending:
        # One ACK with SACK blocks suffices. Without SACK each counts, except the first, which may acknowledge data.
        count = 1 if c.use_sack else c.dup_acks_pending + c.ack_pending
        c.ack_pending, c.dup_acks_pending = False, 0
        for _ in range(count):
            sent += send_empty(c, now)
    if c.state in SENDING:
        if c.snd.scoreboard.lost:
            sent += send_lost(c, now, frames)
        else:
            sent += send_new(c, now, frames)
    if c.ack_pending:
        c.ack_pending = False
        sent += send_empty(c, now)
    return sent


def report_gaps(c: Flow, now: float) -> None:
    """Sends the ACK that is due for gaps ahead of the flow's turn. A peer without SACK would not learn more from it."""
    if c.dup_acks_pending and c.use_sack and c.state not in HANDSHAKE and c.state is not State.CLOSED:
        c.ack_pending, c.dup_acks_pending = False, 0
        send_empty(c, now)


def _send_syn(c: Flow, now: float) -> int:
    """Sends a SYN or SYN-ACK with all options; its window is not scaled (RFC 7323, section 2.2)."""
    passive = c.state is State.SYN_RECEIVED
    segment = _segment(c, now, 0, SYN | ACK if passive else SYN)
    if not passive:
        segment.timestamps = (c.timestamps.value(now), 0)
    scale = c.tcp.config.window_scale if not passive or c.peer_scales else None
    permitted = c.use_sack or not passive
    mss = min(c.tcp.config.mtu - 40, c.user_mss or 0xFFFF)
    segment.options = Options(mss=mss, window_scale=scale, sack_permitted=permitted)
    result = c.tcp.transmit(segment, 1, now)
    if result is None:
        return 0  # still due: `TcpStack.resolved` or the timer retries
    c.syn_pending = False
    if c.snd.snd_nxt == 0:
        c.snd.on_syn_sent()
        c.syn_sent_at = now
    arm_rto(c, now)
    return count_sent(c, result)


def _segment(c: Flow, now: float, position: int, flags: int) -> Segment:
    tcp = c.tcp
    lib.sn_flow_fill(c.c, position, flags, now, tcp.out)
    sequence, ack, _, window, value, echo = _NUMBERS.unpack_from(tcp.out_fields)
    (src, sport), (dst, dport) = c.local, c.peer
    stamps = (value, echo) if c.use_timestamps else None
    return Segment(src, dst, sport, dport, sequence, ack, flags, window, 0, stamps, flow=c, ttl=c.ttl)


def count_sent(c: Flow, result: Transmitted | None) -> int:
    """Counts what was sent. Returns the wire bytes."""
    if result is None:
        return 0
    c.frames_sent += result.frames
    c.wire_bytes_sent += result.wire_bytes
    return result.wire_bytes


def send_empty(c: Flow, now: float) -> int:
    """Sends a bare ACK, with SACK blocks if there are any.

    Its sequence number is `snd_nxt`, or the right edge of the peer's window if that is lower, as in Linux.
    """
    snd = c.snd
    c.delayed_ack.on_pure_ack()
    segment = _segment(c, now, min(snd.snd_nxt, snd.snd_una + snd.snd_wnd), ACK)
    if c.use_sack and c.rcv.reports:
        segment.sacks = c.rcv.sacks()[: MOST_SACKS - c.use_timestamps]
    return count_sent(c, c.tcp.transmit(segment, 1, now))


def send_reset(c: Flow, now: float) -> None:
    """Sends a RST with the sequence number that the peer expects next."""
    c.tcp.counters.resets_sent += 1
    count_sent(c, c.tcp.transmit(_segment(c, now, c.snd.snd_nxt, RST | ACK), 1, now))


def send_reset_for(tcp: FlowServices, s: Segment, now: float) -> None:
    """Answers a segment that belongs to no connection with a RST (RFC 9293, section 3.5.2)."""
    tcp.counters.resets_sent += 1
    reply = Segment(s.dst, s.src, s.dport, s.sport, s.ack if s.flags & ACK else 0, 0, RST)
    if not s.flags & ACK:
        length = len(s.payload) + bool(s.flags & SYN) + bool(s.flags & FIN)
        reply.ack = seq.number(s.seq, length)
        reply.flags = RST | ACK
    tcp.transmit(reply, 1, now)


def send_probe(c: Flow, now: float) -> None:
    """Provokes an ACK by an empty segment just left of the window (zero-window and keepalive probes, as in Linux)."""
    count_sent(c, c.tcp.transmit(_segment(c, now, c.snd.snd_una - 1, ACK), 1, now))


def _send_range(c: Flow, now: float, start: int, end: int, fin: bool, frames: int) -> Transmitted | None:
    """Passes [start, end), and the FIN if `fin`, to the NIC. Returns None if nothing was sent."""
    buffer = c.snd.buffer
    flags = ACK
    if end == buffer.end:
        flags |= (PSH if end > start else 0) | (FIN if fin else 0)
    segment = _segment(c, now, start, flags)
    if end > start:
        add_payload(c, segment, start, end)
    result = c.tcp.transmit(segment, frames, now)
    if result is None or not result.frames:
        on_blocked(c, now)
        return None
    c.carried(start + result.consumed, result.frames, result.wire_bytes, now)
    return result


def add_payload(c: Flow, segment: Segment, start: int, end: int) -> None:
    """Adds [start, end) and its tag to a segment."""
    buffer = c.snd.buffer
    tag_range = buffer.tag_range(start)
    segment.payload = buffer.view(start, end)
    segment.tos, segment.codec = tag_range.tag
    segment.path_mtu = c.path_mtu
    segment.again = start < c.snd.snd_nxt
    if tag_range.words:
        segment.block_offset = (start - tag_range.origin) % LONGEST_BLOCK


def on_blocked(c: Flow, now: float) -> None:
    """The NIC took nothing: sets a timer to retry, unless another one runs."""
    if c.rto_at == NEVER:
        c.blocked = True
        start_rto(c, now)


def send_lost(c: Flow, now: float, frames: int) -> int:
    """Retransmits the first range marked lost, as far as the windows permit."""
    lost = c.snd.scoreboard.first_lost()
    if lost is None:
        return 0
    budget = _frame_budget(c, lost[1] - lost[0], frames, now)
    return _send_again(c, now, *lost, budget) if budget else 0


def send_tail_again(c: Flow, now: float) -> int:
    """Retransmits about the last frame as a tail loss probe (RFC 8985, section 7.3)."""
    snd = c.snd
    last = snd.scoreboard.ranges[-1]
    length = snd.mss
    if last.start < snd.buffer.end and snd.buffer.tag_range(last.start).words:
        length = (last.end - last.start) * c.congestion.smss // max(last.wire_bytes, c.congestion.smss)
    start = max(last.start, last.end - max(length, 1))
    if start < snd.buffer.end:
        start = max(last.start, snd.buffer.segment_start(start))
    return _send_again(c, now, start, last.end, 1)


def _send_again(c: Flow, now: float, start: int, stop: int, budget: int) -> int:
    """Retransmits at most `budget` frames of [start, stop), all of which was sent before."""
    snd = c.snd
    buffer = snd.buffer
    begin = end = start
    if start < buffer.end:
        begin, end = buffer.segment_start(start), c.again_end(start, stop, budget)
    fin = stop > buffer.end and end == buffer.end
    result = _send_range(c, now, begin, end, fin, budget)
    if result is None:
        return 0
    taken = begin + result.consumed
    if fin and taken == end:
        taken += 1
    c.sent_again(start, taken, result.wire_bytes, now)
    return result.wire_bytes


def send_new(c: Flow, now: float, frames: int, force: bool = False) -> int:
    """Sends new data; `force`: however little the window permits. Returns the wire bytes."""
    snd = c.snd
    start = snd.snd_nxt
    written = snd.buffer.end
    if start > written or (start == written and not snd.fin_queued):
        return 0
    if not snd.scoreboard and now - c.last_sent_at > c.rtt.rto:
        c.congestion.on_idle(now - c.last_sent_at)
    if now >= c.path_mtu_until:
        update_mss(c, now)
    budget = _frame_budget(c, written - start, frames, now)
    if not budget:
        return 0
    end = c.segment_end(start, budget, force)
    if end < 0:
        _wait_for_window(c, now)
        return 0
    fin = snd.fin_queued and end == written and end < snd.snd_una + snd.snd_wnd
    if end == start and not fin:
        if c.corked and c.cork_at == NEVER:
            arm_cork(c, now + CORK_S)
        return 0
    result = _send_range(c, now, start, end, fin, budget)
    if result is None:
        return 0
    taken = start + result.consumed
    is_short = taken == written and result.consumed % snd.mss > 0
    if fin and taken == end:
        taken, is_short = taken + 1, False
    if c.sent_new(taken, is_short, result.wire_bytes, now):
        c.tcp.schedule(c)
    return result.wire_bytes


def _frame_budget(c: Flow, unsent: int, frames: int, now: float) -> int:
    """Returns the frames that congestion control and pacing permit now, at most `frames`."""
    budget = c.frame_budget(unsent, frames, c.tcp.link_full_at, now)
    if budget < 0:
        c.tcp.schedule(c)
    return max(budget, 0)


def _wait_for_window(c: Flow, now: float) -> None:
    """Starts the persist timer if nothing is in flight whose acknowledgement could open the window."""
    if not c.snd.scoreboard and not c.persisting:
        start_rto(c, now, persist=True)
