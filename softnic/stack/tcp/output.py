"""What a connection sends (RFC 9293, sections 3.7 and 3.8; RFC 1122, section 4.2.3.4).

One call sends at most one super-segment, so that the layer above can take turns among connections. In order of
urgency: SYN; duplicate ACKs, alone, because only empty segments count as such; one retransmitted frame; new data
and FIN; an ACK where none of these carried it.

New data is limited by the peer's window in original bytes, and by the congestion window and the link in frames.
A short segment waits while another short one is in flight (Nagle's rule as Minshall softened it: the rest of a long
write does not wait) unless `nodelay`, a tag change or a FIN ends it; and one shortened by the peer's window waits for
a better one (silly window avoidance) until the persist timer forces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softnic.stack.segment import Flags, Options, Segment
from softnic.stack.tcp import seq
from softnic.stack.tcp.send_buffer import CUT
from softnic.stack.tcp.state import HANDSHAKE, SENDING, State

if TYPE_CHECKING:
    from softnic.stack.segment import Transmitted
    from softnic.stack.tcp.connection import Connection

FIN, SYN, RST, PSH, ACK = (int(flag) for flag in (Flags.FIN, Flags.SYN, Flags.RST, Flags.PSH, Flags.ACK))
_EMPTY = memoryview(b"")
_HEADERS = 66  # Ethernet, IPv4, TCP with timestamps: about what a frame has beside its payload


def output(c: Connection, now: float, frames: int) -> int:
    """Sends what is most urgent, at most `frames` frames of it. Returns the wire bytes; 0: nothing to send now."""
    if c.state in HANDSHAKE:
        return _send_syn(c, now) if c.syn_due else 0
    if c.state is State.CLOSED:
        return 0
    sent = 0
    if c.duplicates_due:
        count = c.duplicates_due + c.ack_due  # the first of them may acknowledge something
        c.ack_due, c.duplicates_due = False, 0
        for _ in range(count):
            sent += send_empty(c, now)
    if c.state in SENDING:
        if c.resend_due:
            c.resend_due = False
            sent += resend(c, now)
        else:
            sent += send_new(c, now, frames)
    if c.ack_due:
        c.ack_due = False
        sent += send_empty(c, now)
    return sent


def _send_syn(c: Connection, now: float) -> int:
    """SYN or SYN-ACK, with all options; its window is not scaled (RFC 7323, section 2.2)."""
    passive = c.state is State.SYN_RECEIVED
    segment = _segment(c, now, 0, SYN | ACK if passive else SYN)
    if not passive:
        segment.ack = 0
        segment.timestamps = (c.timestamps.value(now), 0)
    scale = c.own_scale if not passive or c.peer_scales else None
    segment.options = Options(mss=c.tcp.config.mtu - 40, window_scale=scale)
    result = c.tcp.transmit(segment, 1, now)
    if result is None:
        return 0  # still due: `Tcp.resolved` or the timer comes back to it
    c.syn_due = False
    if c.snd.snd_max == 0:
        c.snd.snd_max = c.snd.snd_nxt = 1
        c.syn_sent_at = now
    c.arm(now)
    return _count(c, result)


def _segment(c: Connection, now: float, position: int, flags: int, payload: memoryview = _EMPTY) -> Segment:
    rcv = c.rcv
    window = rcv.advertise()
    c.last_ack_sent = rcv.rcv_nxt
    stamp = (c.timestamps.value(now), c.timestamps.ts_recent) if c.use_timestamps else None
    return Segment(
        c.local[0],
        c.peer[0],
        c.local[1],
        c.peer[1],
        seq.number(c.snd.iss, position),
        seq.number(rcv.irs, rcv.rcv_nxt),
        flags,
        window,
        0,
        stamp,
        None,
        payload,
    )


def _count(c: Connection, result: Transmitted | None) -> int:
    if result is None:
        return 0
    c.frames_sent += result.frames
    c.wire_bytes_sent += result.wire_bytes
    return result.wire_bytes


def send_empty(c: Connection, now: float) -> int:
    """A bare ACK, at the end of what was ever sent, though some of that may be on its way again: there the peer hears
    it, unless it lies right of its window (as Linux)."""
    snd = c.snd
    c.delayed_ack.sent_alone()
    return _count(c, c.tcp.transmit(_segment(c, now, min(snd.snd_max, snd.snd_una + snd.snd_wnd), ACK), 1, now))


def send_reset(c: Connection, now: float) -> None:
    """RST at the place where the peer expects our next byte."""
    c.tcp.counters.resets_sent += 1
    _count(c, c.tcp.transmit(_segment(c, now, c.snd.snd_max, RST | ACK), 1, now))


def send_probe(c: Connection, now: float) -> None:
    """Provokes an ACK: an empty segment just left of the window (zero-window and keepalive probes, as Linux)."""
    _count(c, c.tcp.transmit(_segment(c, now, c.snd.snd_una - 1, ACK), 1, now))


def _send_range(c: Connection, now: float, start: int, end: int, fin: bool, frames: int) -> Transmitted | None:
    """Hands [start, end), and the FIN if asked, to the NIC."""
    buffer = c.snd.buffer
    flags = ACK
    if end == buffer.end:
        flags |= (PSH if end > start else 0) | (FIN if fin else 0)
    segment = _segment(c, now, start, flags, buffer.view(start, end) if end > start else _EMPTY)
    if end > start:
        piece = buffer.piece(start)
        segment.tos, segment.codec = piece.tag
        if piece.words:
            segment.phase = (start - piece.origin) % CUT
    result = c.tcp.transmit(segment, frames, now)
    if result is None or not result.frames:
        if c.rto_at == c.NEVER:  # nothing else would make us try again
            c.blocked = True
            c.stalled_since = now
            c.arm(now)
        return None
    c.blocked = False
    _count(c, result)
    c.ack_due = False
    c.delayed_ack.carried(now)
    if result.taken:
        buffer.cut_at(start + result.taken)
    return result


def resend(c: Connection, now: float) -> int:
    """Fast retransmit: the one frame that starts at the first unacknowledged byte."""
    snd = c.snd
    limit = min(snd.snd_max, snd.buffer.end)
    start = snd.buffer.segment_start(min(snd.snd_una, limit))
    most = c.tcp.config.super_segment if snd.buffer.piece(start).words else snd.mss
    end = snd.buffer.reach(start, min(limit, start + most), snd.fin_queued)
    result = _send_range(c, now, start, end, snd.snd_max > snd.buffer.end, 1)
    if result is None:
        return 0
    c.retransmits += 1
    snd.flight.sent_again(start + result.taken)
    return result.wire_bytes


def send_new(c: Connection, now: float, frames: int, force: bool = False) -> int:
    """Sends from snd_nxt on: what was never sent, or after a timeout what must be sent again."""
    snd = c.snd
    start = snd.snd_nxt
    buffer = snd.buffer
    if start > buffer.end or (start == buffer.end and not snd.fin_queued):
        return 0
    if not snd.flight and now - c.last_sent_at > c.rtt.rto and snd.snd_una == snd.snd_max:
        c.congestion.on_idle()
    budget = _frame_budget(c, buffer.end - start, frames)
    if not budget:
        return 0
    end, fin = _extent(c, now, start, budget, force)
    if end == start and not fin:
        return 0
    result = _send_range(c, now, start, end, fin, budget)
    if result is None:
        return 0
    taken = start + result.taken
    if fin and taken == end:
        taken += 1
    snd.snd_nxt = taken
    once = start >= snd.snd_max
    if not once:
        c.retransmits += 1
    if taken == buffer.end and result.taken % snd.mss:
        snd.snd_sml = taken
    if taken > snd.snd_max:
        snd.snd_max = taken
    snd.flight.sent(start, taken, result.wire_bytes, now, once)
    c.last_sent_at = now
    if c.persisting or c.rto_at == c.NEVER:
        c.persisting = False
        c.stalled_since = now
        c.arm(now)
    return result.wire_bytes


def _frame_budget(c: Connection, unsent: int, frames: int) -> int:
    """Frames that congestion control allows now, at most `frames`; one if nothing is in flight."""
    flight = c.snd.flight
    allowance = c.congestion.allowance(flight.wire_bytes)
    budget = allowance // c.congestion.smss
    if budget <= 0:
        if flight and allowance < unsent + _HEADERS:
            return 0
        budget = 1
    return min(budget, frames)


def _extent(c: Connection, now: float, start: int, budget: int, force: bool) -> tuple[int, bool]:
    """How far a segment from `start` goes, and whether the FIN goes with it; (start, False): it has to wait."""
    snd = c.snd
    buffer = snd.buffer
    limit = max(snd.snd_una + snd.snd_wnd, snd.snd_max)  # what was sent once may be sent again
    natural, closed = buffer.extent(start, snd.fin_queued)
    flush = c.nodelay or closed or snd.snd_sml <= snd.snd_una
    end = buffer.reach(start, max(start, min(limit, start + c.tcp.config.super_segment)), snd.fin_queued)
    if not buffer.piece(start).words:
        length = min(end - start, budget * snd.mss)
        if length > snd.mss and (start + length < natural or not flush):
            length -= length % snd.mss  # whole frames first; the next call decides on the short one
        end = start + length
    length = end - start
    full = length >= snd.mss or (length > 0 and (force or start < snd.snd_max))
    if end < natural:
        if full or (length and 2 * length >= snd.max_wnd):
            return end, False
        return _wait_for_window(c, now, start), False
    if snd.fin_queued and end == buffer.end:
        fin = end < limit
        return (end, fin) if length or fin else (_wait_for_window(c, now, start), False)
    if full or (length and (flush or not snd.flight)):
        return end, False
    return start, False


def _wait_for_window(c: Connection, now: float, start: int) -> int:
    """Only an ACK can open the window; if none is on its way, the persist timer asks for one."""
    if not c.snd.flight and not c.persisting:
        c.persisting = True
        c.stalled_since = now
        c.arm(now)
    return start
