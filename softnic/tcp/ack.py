"""Processing of acknowledgements by the sender.

In order: the ACK field and the SACK blocks (RFC 2018, 2883) update the scoreboard; round trips are measured (RFC 6298,
7323); RACK marks losses (RFC 8985); recovery begins, continues or ends (RFC 6937); congestion control moves its window;
timers are set. The loss-free path skips the steps about losses.

For a peer without SACK each duplicate acknowledgement counts as the arrival of a frame behind the first missing one, as
in Linux. Which frame that was is a guess, replaced by the next acknowledgement of new data; the rest is common code.
"""

from __future__ import annotations

from softnic.packet.segment import Segment
from softnic.tcp.arm_timers import arm_reo_timer, arm_rto, rearm_after_ack, stop_pto
from softnic.tcp.flow import NEVER, Flow
from softnic.tcp.output import send_new, send_tail_again
from softnic.tcp.rack import DUPLICATE_THRESHOLD
from softnic.tcp.scoreboard import Ack


def process_ack(c: Flow, s: Segment, una: int, duplicates: int, now: float) -> None:
    """Processes a segment that acknowledges data up to position `una`, or reports SACK blocks.

    `una` is not beyond `snd_nxt`; `duplicates` is the number of duplicate acknowledgements that the segment stands for
    (RFC 5681, section 2).
    """
    snd, recovery = c.snd, c.recovery
    scoreboard = snd.scoreboard
    ack = c.tcp.ack
    advanced = c.begin_ack(ack, una, now)
    dsack = False
    if not c.use_sack:
        _guess(c, advanced, duplicates, ack)
    elif s.sacks:
        dsack = _take_blocks(c, s.sacks, ack)
    c.measure(ack, advanced, s.timestamps[1] if s.timestamps is not None else 0)
    if dsack or c.is_repairing():
        _repair(c, s, ack, advanced, dsack)
    elif c.reo_timer != NEVER:
        arm_reo_timer(c, NEVER)
    if ack.wire_bytes:
        c.arrived(ack)
        if not recovery.is_open and recovery.is_fast and c.congestion.reduces:
            c.congestion.set_window(recovery.window(ack.wire_bytes, advanced, c.congestion, scoreboard))
        elif advanced or not c.congestion.reduces:  # SACKed data alone does not grow a window
            c.congestion.on_ack(ack)
    if advanced or ack.wire_bytes:
        rearm_after_ack(c, now, advanced)


def _take_blocks(c: Flow, blocks: tuple[tuple[int, int], ...], ack: Ack) -> bool:
    """Marks what SACK blocks between `snd_una` and `snd_nxt` report.

    Returns whether the first block is a D-SACK: below `snd_una` or within the second one (RFC 2883, section 4).
    """
    snd = c.snd
    buffer, una, nxt = snd.buffer, snd.snd_una, snd.snd_nxt
    spans = [(start := snd.position(first), start + ((last - first) & 0xFFFFFFFF)) for first, last in blocks]
    start, end = spans[0]
    dsack = start < una if end <= una else len(spans) > 1 and spans[1][0] <= start and end <= spans[1][1]
    for start, end in sorted(spans):  # in stream order, or they would look like reordering
        if not una < start < end <= nxt:
            continue
        # coding blocks are retransmitted whole, so only whole ones count
        first = start if start >= buffer.end else buffer.segment_start(start)
        if first < start:
            start = buffer.segment_start(start + 63)
        if end < buffer.end and end < nxt:
            end = buffer.segment_start(end)
        if start < end:
            snd.scoreboard.sack(start, end, ack)
    return dsack


def _guess(c: Flow, advanced: bool, duplicates: int, ack: Ack) -> None:
    """Marks what acknowledgements of a peer without SACK imply."""
    snd, recovery = c.snd, c.recovery
    scoreboard = snd.scoreboard
    if advanced:
        recovery.reset_duplicates()
        scoreboard.on_sack_reneging()
        if recovery.is_fast and snd.snd_una < recovery.recover and scoreboard:
            scoreboard.mark_head_lost(c.congestion.smss)  # a partial acknowledgement (RFC 6582, section 3.2)
            recovery.force_send()
    # Duplicates of segments from before the last recovery do not count again (RFC 6582, section 4).
    if duplicates <= 0 or not scoreboard or (not recovery.is_fast and snd.snd_una < recovery.recover):
        return
    in_a_row = recovery.count_duplicates(duplicates)
    ack.never_retransmitted = False
    start = max(snd.snd_una + snd.mss, scoreboard.highest)
    scoreboard.sack(start, min(start + duplicates * snd.mss, snd.snd_nxt), ack)
    if not recovery.is_fast and in_a_row >= DUPLICATE_THRESHOLD:
        scoreboard.mark_head_lost(c.congestion.smss)


def _repair(c: Flow, s: Segment, ack: Ack, advanced: bool, dsack: bool) -> None:
    """Marks losses, and begins or ends recovery."""
    now = ack.now
    snd, rack, recovery = c.snd, c.rack, c.recovery
    scoreboard = snd.scoreboard
    if dsack:
        rack.duplicate(snd.snd_una, snd.snd_nxt)
    if rack.probe_end is not None and rack.probe_answered(snd.snd_una) and recovery.is_open:
        c.congestion.on_loss(ack.flight_size, now)  # the probe repaired a loss that was not detected
        c.congestion.set_window(min(c.congestion.cwnd, c.congestion.ssthresh))
    if advanced and not recovery.is_open:
        before = recovery.undo(s.timestamps[1] if s.timestamps is not None and c.use_timestamps else None)
        if before is not None:
            c.replace_congestion(before)
            scoreboard.undo_lost_marks()
            c.tcp.counters.spurious_retransmits += 1
        was_fast = recovery.is_fast
        if recovery.ends(snd.snd_una):
            if was_fast and c.congestion.reduces:
                c.congestion.set_window(c.congestion.ssthresh)
            rack.recovered()
    if c.use_sack and (scoreboard.sacked or not recovery.is_open):
        look_for_losses(c, now)
    else:
        arm_reo_timer(c, NEVER)
    if scoreboard.lost and recovery.is_open:
        begin_recovery(c, now)


def look_for_losses(c: Flow, now: float) -> None:
    """Lets RACK mark losses, and sets its timer."""
    scoreboard = c.snd.scoreboard
    window = c.rack.window(scoreboard, not c.recovery.is_open, c.congestion.smss, c.rtt.srtt)
    arm_reo_timer(c, c.rack.detect(scoreboard, window, now))


def begin_recovery(c: Flow, now: float) -> None:
    """Starts fast recovery."""
    snd = c.snd
    c.tcp.counters.fast_retransmits += 1
    c.recovery.begin(c.congestion, snd.scoreboard, snd.snd_nxt, now)
    c.rack.cancel_probe()
    stop_pto(c)
    if c.congestion.reduces:
        c.congestion.set_window(c.recovery.window(0, False, c.congestion, snd.scoreboard))


def on_pto(c: Flow, now: float) -> None:
    """Sends a tail loss probe: new data or the last frame, to provoke an acknowledgement (RFC 8985, section 7.3)."""
    stop_pto(c)
    snd = c.snd
    if not snd.scoreboard:
        return
    c.recovery.force_send()
    repeats = not send_new(c, now, 1)
    if repeats and not send_tail_again(c, now):
        c.recovery.force_send(False)
        return
    c.tcp.counters.tail_loss_probes += 1
    c.rack.probed(snd.snd_nxt, repeats)
    stop_pto(c)
    arm_rto(c, now)


def on_reo_timer(c: Flow, now: float) -> None:
    """Marks late ranges as lost at the end of the reordering window (RFC 8985, section 6.2)."""
    arm_reo_timer(c, NEVER)
    if c.snd.scoreboard:
        look_for_losses(c, now)
        if c.snd.scoreboard.lost and c.recovery.is_open:
            begin_recovery(c, now)
        c.tcp.wake(c)
