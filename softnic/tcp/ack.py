"""Processing of acknowledgements by the sender.

In order: the ACK field and the SACK blocks (RFC 2018, 2883) update the scoreboard; round trips are measured (RFC 6298,
7323); RACK marks losses (RFC 8985); recovery begins, continues or ends (RFC 6937); congestion control moves its window;
timers are set. The loss-free path skips the steps about losses. All that is C (native/tcp/flow_ack.c), which the turn
uses too; here are the guesses for a peer without SACK, and what timers do.

For a peer without SACK each duplicate acknowledgement counts as the arrival of a frame behind the first missing one, as
in Linux. Which frame that was is a guess, replaced by the next acknowledgement of new data; the rest is common code.
"""

from __future__ import annotations

from softnic._native import lib
from softnic.packet.segment import Segment
from softnic.tcp.arm_timers import arm_rto, stop_pto, stop_reo_timer
from softnic.tcp.counters import StackCounters
from softnic.tcp.flow import Flow
from softnic.tcp.output import send_new, send_tail_again
from softnic.tcp.rack import DUPLICATE_THRESHOLD
from softnic.tcp.scoreboard import Ack


def process_ack(c: Flow, s: Segment, una: int, duplicates: int, now: float) -> None:
    """Processes a segment that acknowledges data up to position `una`, or reports SACK blocks.

    `una` is not beyond `snd_nxt`; `duplicates` is the number of duplicate acknowledgements that the segment stands for
    (RFC 5681, section 2).
    """
    ack = c.tcp.ack
    advanced = c.begin_ack(ack, una, now)
    dsack = False
    if not c.use_sack:
        _guess(c, advanced, duplicates, ack)
    elif s.sacks:
        dsack = take_blocks(c, s.sacks, ack)
    left = c.acknowledged(ack, advanced, dsack, s.timestamps[1] if s.timestamps is not None else None)
    count_recoveries(c.tcp.counters, left)
    if left & lib.SN_SCHEDULE:
        c.tcp.schedule(c)


def count_recoveries(counters: StackCounters, left: int) -> None:
    """Counts what a step in C reports of recovery."""
    counters.fast_retransmits += left & lib.SN_RECOVERS > 0
    counters.spurious_retransmits += left & lib.SN_UNDONE > 0


def take_blocks(c: Flow, blocks: tuple[tuple[int, int], ...], ack: Ack) -> bool:
    """Marks what SACK blocks report. Returns whether the first one is a D-SACK."""
    numbers = [number for block in blocks for number in block]
    return bool(lib.sn_flow_take_blocks(c.c, numbers, len(blocks), ack.c))


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
    stop_reo_timer(c)
    if c.snd.scoreboard:
        if c.look_for_losses(now):
            c.tcp.schedule(c)
        if c.snd.scoreboard.lost and c.recovery.is_open:
            c.begin_recovery()
            c.tcp.counters.fast_retransmits += 1
        c.tcp.wake(c)
