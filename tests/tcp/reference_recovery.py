"""Loss recovery in Python: the reference of native/tcp/rack.c and recovery.c."""

from __future__ import annotations

from typing import Any

from softnic.tcp import seq
from softnic.tcp.recovery import RecoveryState
from tests.tcp import reference_steps as steps

NEVER = steps.NEVER
BETA = 0.7
SCHEDULE, RECOVERS, UNDONE, DONE = 8, 128, 256, 1


# RACK


def duplicate(c: Any, una: int, nxt: int) -> None:
    rack = c.rack
    if rack.probe_end is not None and rack.probe_repeats:
        rack.probe_dsacked = True
    elif rack.dsack_round is None or una >= rack.dsack_round:
        rack.dsack_round = nxt
        rack.multiplier += 1
        rack.persist = 16


def recovered(c: Any) -> None:
    c.rack.persist -= 1
    if c.rack.persist <= 0:
        c.rack.multiplier = 1


def reordering_window(c: Any, recovering: bool) -> float:
    rack, srtt = c.rack, c.rtt.srtt
    if not rack.reordering_seen and (recovering or 2 * c.snd.scoreboard.sacked >= 5 * c.congestion.smss):
        return 0.0
    least = rack.minimum.least
    return float(min(rack.multiplier * least / 4, srtt) if least < NEVER else srtt)


def probe_answered(c: Any, ack: int) -> bool:
    rack = c.rack
    if rack.probe_end is None or ack < rack.probe_end:
        return False
    rack.probe_end = None
    return bool(rack.probe_repeats and not rack.probe_dsacked)


# Congestion control


def reduces(c: Any) -> bool:
    return bool(c.congestion.name != "bbr")


def on_loss(window: Any, flight_size: int) -> None:
    if window.name == "bbr":
        return
    if window.name == "reno":
        window.ssthresh, window.acknowledged = max(flight_size // 2, 2 * window.smss), 0
        return
    had = min(flight_size, window.cwnd) / window.smss
    window.w_max = had * (1 + BETA) / 2 if had < window.w_max else had
    window.prior, window.began_at = had, None
    window.ssthresh = max(int(BETA * had * window.smss), 2 * window.smss)


def on_timeout(window: Any, flight_size: int, first: bool) -> None:
    if first:
        on_loss(window, flight_size)
    window.cwnd = window.smss


# Recovery


def _enter(c: Any, state: RecoveryState) -> None:
    c.recovery.state, c.recovery.is_open = state, state is RecoveryState.OPEN


def _remember(c: Any) -> None:
    c.recovery.may_undo, c.recovery.stamp = c.snd.scoreboard.sent_once, None


def begin(c: Any) -> None:
    recovery, size = c.recovery, c.snd.scoreboard.size
    _remember(c)
    recovery.flight_size = max(size, 1)
    recovery.arrived = recovery.sent_bytes = 0
    on_loss(c.congestion, size)
    _enter(c, RecoveryState.RECOVERY)
    recovery.must_send, recovery.recover = True, c.snd.snd_nxt


def begin_after_timeout(c: Any, again: bool) -> None:
    recovery = c.recovery
    if not again and recovery.is_open:
        _remember(c)
    on_timeout(c.congestion, c.snd.scoreboard.size, not again and not recovery.is_fast)
    _enter(c, RecoveryState.LOSS)
    recovery.must_send, recovery.recover, recovery.duplicates = True, c.snd.snd_nxt, 0


def sent(c: Any, wire_bytes: int) -> None:
    recovery = c.recovery
    if not recovery.is_open or recovery.must_send:
        recovery.sent_bytes += wire_bytes
        recovery.must_send = False


def window(c: Any, arrived: int, advanced: bool) -> int:
    """RFC 6937, section 3.1."""
    recovery, target, pipe, smss = c.recovery, c.congestion.ssthresh, c.snd.scoreboard.pipe, c.congestion.smss
    recovery.arrived += arrived
    if pipe > target:
        allowed = -(-recovery.arrived * target // recovery.flight_size) - recovery.sent_bytes
    else:
        allowed = max(recovery.arrived - recovery.sent_bytes, arrived if advanced else 0)
        allowed = min(target - pipe, allowed + smss if advanced else allowed)
    return int(max(pipe + max(allowed, 0), smss))


def ends(c: Any, una: int) -> bool:
    if c.recovery.is_open or una < c.recovery.recover:
        return False
    _enter(c, RecoveryState.OPEN)
    c.recovery.may_undo = False
    return True


def undo(c: Any, echo: int | None) -> bool:
    """Whether recovery is undone: decided here, while the window from before is C's."""
    recovery = c.recovery
    needless = recovery.may_undo and recovery.stamp is not None and echo is not None and seq.after(recovery.stamp, echo)
    assert recovery.undo(echo) is bool(needless)
    return bool(needless)


# Acknowledgements


def take_blocks(c: Any, blocks: tuple[tuple[int, int], ...], ack: Any) -> bool:
    snd = c.snd
    buffer, una, nxt = snd.buffer, snd.snd_una, snd.snd_nxt
    spans = [(start := snd.position(first), start + ((last - first) & 0xFFFFFFFF)) for first, last in blocks]
    start, end = spans[0]
    dsack = start < una if end <= una else len(spans) > 1 and spans[1][0] <= start and end <= spans[1][1]
    for start, end in sorted(spans):
        if not una < start < end <= nxt:
            continue
        first = start if start >= buffer.end else buffer.segment_start(start)
        if first < start:
            start = buffer.segment_start(start + 63)
        if end < buffer.end and end < nxt:
            end = buffer.segment_start(end)
        if start < end:
            snd.scoreboard.sack(start, end, ack)
    return dsack


def look_for_losses(c: Any, now: float) -> bool:
    rack = c.rack
    until = c.snd.scoreboard.detect(
        rack.sent_at, rack.end, rack.rtt + reordering_window(c, not c.recovery.is_open), now
    )
    c.reo_timer = until
    return bool(until < c.scheduled_at)


def begin_recovery(c: Any) -> None:
    begin(c)
    c.rack.probe_end, c.pto = None, NEVER
    if reduces(c):
        c.congestion.cwnd = window(c, 0, False)


def _repair(c: Any, ack: Any, advanced: bool, dsack: bool, echo: int | None) -> int:
    snd, recovery, congestion = c.snd, c.recovery, c.congestion
    left = 0
    if dsack:
        duplicate(c, snd.snd_una, snd.snd_nxt)
    if c.rack.probe_end is not None and probe_answered(c, snd.snd_una) and recovery.is_open:
        on_loss(congestion, ack.flight_size)
        congestion.cwnd = min(congestion.cwnd, congestion.ssthresh)
    if advanced and not recovery.is_open:
        was_fast = recovery.is_fast
        if undo(c, echo if c.use_timestamps else None):
            snd.scoreboard.undo_lost_marks()
            left |= UNDONE
        elif ends(c, snd.snd_una):
            if was_fast and reduces(c):
                congestion.cwnd = congestion.ssthresh
            recovered(c)
    if not c.use_sack or not (snd.scoreboard.sacked or not recovery.is_open):
        c.reo_timer = NEVER
    elif look_for_losses(c, ack.now):
        left |= SCHEDULE
    if snd.scoreboard.lost and recovery.is_open:
        begin_recovery(c)
        left |= RECOVERS
    return left


def acknowledged(c: Any, ack: Any, advanced: bool, dsack: bool, echo: int | None) -> int:
    left = DONE
    steps.measure(c, ack, advanced, echo or 0)
    if dsack or steps.is_repairing(c):
        left |= _repair(c, ack, advanced, dsack, echo)
    else:
        c.reo_timer = NEVER
    if ack.wire_bytes:
        steps.arrived(c, ack)
        if c.recovery.is_fast and reduces(c):
            c.congestion.cwnd = window(c, ack.wire_bytes, advanced)
        elif advanced or not reduces(c):
            c.congestion.on_ack(ack)
    if (advanced or ack.wire_bytes) and steps.rearm_after_ack(c, ack.now, advanced):
        left |= SCHEDULE
    return left


# Retransmissions


def next_sent(c: Any) -> int:
    lost = c.snd.scoreboard.first_lost()
    return int(c.snd.snd_nxt if lost is None else c.snd.buffer.segment_start(lost[0]))


def again_end(c: Any, start: int, stop: int, budget: int) -> int:
    snd = c.snd
    buffer = snd.buffer
    begin_at = buffer.segment_start(start)
    most = begin_at + (c.super_segment if buffer.tag_range(begin_at).words else budget * snd.mss)
    end = buffer.reach(begin_at, min(stop, buffer.end, most), snd.fin_queued)
    if end <= start:
        end = buffer.reach(begin_at, min(snd.snd_nxt, buffer.end, most), snd.fin_queued)
    return int(end)


def sent_again(c: Any, start: int, end: int, wire_bytes: int, now: float) -> bool:
    if end > start:
        c.snd.scoreboard.sent_again(start, end, wire_bytes, now)
    c.retransmits += 1
    if c.recovery.stamp is None and c.recovery.may_undo and c.use_timestamps:
        c.recovery.stamp = c.timestamps.value(now)
    sent(c, wire_bytes)
    steps.charge_pacing(c, wire_bytes, now)
    return False
