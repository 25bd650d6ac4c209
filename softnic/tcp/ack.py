"""What an acknowledgement means to the sender: what has arrived, how long that took, what is lost, how much may follow.

In this order: the ACK field and the SACK blocks (RFC 2018, 2883) go to the scoreboard, round trips are measured
(RFC 6298, 7323), RACK says what is lost (RFC 8985), recovery begins, goes on or ends (RFC 6937), congestion control
moves its window, and timers are set. Where nothing is lost, which is the rule, most of it is passed over.

For a peer without SACK each duplicate acknowledgement stands for a frame that has arrived behind the first missing one
(as Linux): which one is a guess that the next acknowledgement of something new replaces. So all others follow one way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softnic.tcp.arm_timers import arm, arm_probe
from softnic.tcp.output import send_new, send_tail_again
from softnic.tcp.rack import DUPLICATE_THRESHOLD
from softnic.tcp.scoreboard import Ack
from softnic.tcp.trim import schedule_trim

if TYPE_CHECKING:
    from softnic.packet.segment import Segment
    from softnic.tcp.connection import Connection


def process_ack(c: Connection, s: Segment, una: int, duplicates: int, now: float) -> None:
    """A segment acknowledges up to `una`, which is not beyond what was sent, or reports blocks; `duplicates`: it stands
    for so many duplicate acknowledgements (RFC 5681, section 2)."""
    snd, recovery = c.snd, c.recovery
    scoreboard = snd.scoreboard
    ack = Ack(now, scoreboard.size)
    advanced = una > snd.snd_una
    if advanced:
        snd.acknowledge(una, ack)
        if c.rtt.backoff:
            c.rtt.answered()
        c.unacked_since = now
    dsack = False
    if not c.use_sack:
        _guess(c, advanced, duplicates, ack)
    elif s.sacks:
        dsack = _take_blocks(c, s.sacks, ack)
    _measure(c, s, ack, advanced)
    if recovery.open and c.rack.probe_end is None and not (scoreboard.sacked or scoreboard.lost or dsack):
        c.reo_timer = c.NEVER
    else:
        _repair(c, s, ack, advanced, dsack)
    if ack.wire_bytes:
        scoreboard.arrived(ack)
        if recovery.on and c.congestion.reduces:
            c.congestion.cwnd = recovery.window(ack.wire_bytes, advanced, c.congestion, scoreboard)
        elif advanced or not c.congestion.reduces:  # what came out of order makes no window grow
            _grow(c, ack)
    if advanced or ack.wire_bytes:
        set_timers(c, now)


def _take_blocks(c: Connection, blocks: tuple[tuple[int, int], ...], ack: Ack) -> bool:
    """SACK blocks, of which only those between `snd_una` and `snd_nxt` can be true. Returns whether the first one says
    that something came twice: it lies below `snd_una` or within the second (RFC 2883, section 4)."""
    snd = c.snd
    buffer, una, nxt = snd.buffer, snd.snd_una, snd.snd_nxt
    spans = [(start := snd.position(first), start + ((last - first) & 0xFFFFFFFF)) for first, last in blocks]
    start, end = spans[0]
    dsack = start < una if end <= una else len(spans) > 1 and spans[1][0] <= start and end <= spans[1][1]
    for start, end in sorted(spans):  # in the stream's order, or they would seem to come in another
        if not una < start < end <= nxt:
            continue
        # floats are sent again in the same pieces, so only whole ones count
        first = start if start >= buffer.end else buffer.segment_start(start)
        if first < start:
            start = buffer.segment_start(start + 63)
        if end < buffer.end and end < nxt:
            end = buffer.segment_start(end)
        if start < end:
            snd.scoreboard.sack(start, end, ack)
    return dsack


def _guess(c: Connection, advanced: bool, duplicates: int, ack: Ack) -> None:
    snd, recovery = c.snd, c.recovery
    scoreboard = snd.scoreboard
    if advanced:
        recovery.duplicates = 0
        scoreboard.on_sack_reneging()
        if recovery.on and snd.snd_una < recovery.recover and scoreboard:
            scoreboard.mark_head_lost(c.congestion.smss)  # a partial acknowledgement (RFC 6582, section 3.2)
            recovery.must_send = True
    # What was sent before the last loss is not believed twice (RFC 6582, section 4).
    if duplicates <= 0 or not scoreboard or (not recovery.on and snd.snd_una < recovery.recover):
        return
    recovery.duplicates += duplicates
    ack.never_retransmitted = False
    start = max(snd.snd_una + snd.mss, scoreboard.highest)
    scoreboard.sack(start, min(start + duplicates * snd.mss, snd.snd_nxt), ack)
    if not recovery.on and recovery.duplicates >= DUPLICATE_THRESHOLD:
        scoreboard.mark_head_lost(c.congestion.smss)


def _measure(c: Connection, s: Segment, ack: Ack, advanced: bool) -> None:
    """The round trip that this shows."""
    newest = ack.newest
    if newest is not None and ack.never_retransmitted:
        ack.rtt = ack.now - newest.sent_at
        c.rtt.sample(ack.rtt)
        c.rack.update(ack, None)
        return
    if advanced and s.timestamps is not None and c.use_timestamps and s.timestamps[1]:
        ack.rtt = c.timestamps.rtt(s.timestamps[1], ack.now)
        c.rtt.sample(ack.rtt)
    if newest is not None:
        c.rack.update(ack, ack.rtt or None)


def _repair(c: Connection, s: Segment, ack: Ack, advanced: bool, dsack: bool) -> None:
    """Finds what is lost, and begins or ends recovery."""
    now = ack.now
    snd, rack, recovery = c.snd, c.rack, c.recovery
    scoreboard = snd.scoreboard
    if dsack:
        rack.duplicate(snd.snd_una, snd.snd_nxt)
    if rack.probe_end is not None and rack.probe_answered(snd.snd_una) and recovery.open:
        c.congestion.on_loss(ack.flight_size, now)  # the probe repaired what nobody saw lost
        c.congestion.cwnd = min(c.congestion.cwnd, c.congestion.ssthresh)
    if advanced and not recovery.open:
        before = recovery.undo(s.timestamps[1] if s.timestamps is not None and c.use_timestamps else None)
        if before is not None:
            c.congestion = before
            scoreboard.undo_lost_marks()
            c.tcp.counters.spurious_retransmits += 1
        was_on = recovery.on
        if recovery.ends(snd.snd_una):
            if was_on and c.congestion.reduces:
                c.congestion.cwnd = c.congestion.ssthresh
            rack.recovered()
    c.reo_timer = c.NEVER
    if c.use_sack and (scoreboard.sacked or not recovery.open):
        look_for_losses(c, now)
    if scoreboard.lost and recovery.open:
        begin_recovery(c, now)


def look_for_losses(c: Connection, now: float) -> None:
    """Asks RACK."""
    scoreboard = c.snd.scoreboard
    window = c.rack.window(scoreboard, not c.recovery.open, c.congestion.smss, c.rtt.srtt)
    c.reo_timer = c.rack.detect(scoreboard, window, now)
    if c.reo_timer < c.scheduled_at:
        c.tcp.schedule(c)


def begin_recovery(c: Connection, now: float) -> None:
    """Something is lost."""
    snd = c.snd
    c.tcp.counters.fast_retransmits += 1
    c.recovery.begin(c.congestion, snd.scoreboard, snd.snd_nxt, now)
    c.rack.probe_end = None
    c.pto = c.NEVER
    if c.congestion.reduces:
        c.congestion.cwnd = c.recovery.window(0, False, c.congestion, snd.scoreboard)


def _grow(c: Connection, ack: Ack) -> None:
    snd = c.snd
    ack.una, ack.nxt, ack.srtt = snd.snd_una, snd.snd_nxt, c.rtt.srtt
    ack.pipe, ack.delivered = snd.scoreboard.pipe, snd.scoreboard.delivered
    c.congestion.on_ack(ack)


def set_timers(c: Connection, now: float) -> None:
    """After an acknowledgement of something new: the retransmission timer starts again (RFC 6298, section 5)."""
    if not c.snd.scoreboard.ranges:
        c.rto_at = c.pto = c.NEVER
        if c.trim_at == c.NEVER:
            schedule_trim(c, now)
        return
    arm(c, now)
    arm_probe(c, now)


def on_pto(c: Connection, now: float) -> None:
    """No acknowledgement has come: sends something new or the last frame again, so that one comes (section 7.3)."""
    c.pto = c.NEVER
    snd = c.snd
    if not snd.scoreboard:
        return
    c.recovery.must_send = True
    repeats = not send_new(c, now, 1)
    if repeats and not send_tail_again(c, now):
        c.recovery.must_send = False
        return
    c.tcp.counters.tail_loss_probes += 1
    c.rack.probed(snd.snd_nxt, repeats)
    c.pto = c.NEVER
    arm(c, now)


def on_reo_timer(c: Connection, now: float) -> None:
    """What was thought to be late only is lost."""
    c.reo_timer = c.NEVER
    if c.snd.scoreboard:
        look_for_losses(c, now)
        if c.snd.scoreboard.lost and c.recovery.open:
            begin_recovery(c, now)
        c.tcp.wake(c)
