"""Steps of a connection in Python: the reference of native/tcp/flow_{growth,receive,send,timers}.c.

They work on the fields of a connection, as the C does.
"""

from __future__ import annotations

from typing import Any

from softnic.tcp.bbr import Mode

NEVER = float("inf")


def sample_rtt(c: Any, rtt_s: float) -> None:
    rtt = c.rtt
    rtt.latest = rtt_s
    if rtt.srtt == 0.0:
        rtt.srtt = max(rtt_s, 1e-9)
        rtt.rttvar = rtt_s / 2
    else:
        rtt.rttvar += 1 / 4 * (abs(rtt.srtt - rtt_s) - rtt.rttvar)
        rtt.srtt += 1 / 8 * (rtt_s - rtt.srtt)
    _set_rto(rtt)


def back_off(c: Any) -> None:
    c.rtt.backoff += 1
    _set_rto(c.rtt)


def answered(c: Any) -> None:
    c.rtt.backoff = 0
    _set_rto(c.rtt)


def _set_rto(rtt: Any) -> None:
    rto = max(rtt.srtt + max(4 * rtt.rttvar, 0.001), rtt.min_s) if rtt.srtt else rtt.initial_s
    rtt.rto = min(rto * 2.0 ** min(rtt.backoff, 30), rtt.max_s)


def sample_minimum_rtt(c: Any, rtt_s: float, now: float) -> None:
    minimum = c.rack.minimum
    elapsed = now - minimum.since
    if elapsed > 60.0:
        minimum.before = minimum.now if elapsed < 120.0 else NEVER
        minimum.now, minimum.since = rtt_s, now
    elif rtt_s < minimum.now:
        minimum.now = rtt_s


def update_rack(c: Any, ack: Any, repeat_rtt: float | None) -> None:
    rack = c.rack
    if ack.reordered:
        rack.reordering_seen = True
    if not ack.has_newest:
        return
    sent = ack.newest
    rtt = ack.now - sent.sent_at
    if sent.never_retransmitted:
        sample_minimum_rtt(c, rtt, ack.now)
    elif (repeat_rtt is not None and repeat_rtt > rtt + 0.002) or rtt < rack.minimum.least < NEVER:
        return
    rack.rtt = rtt
    if (sent.sent_at, sent.end) > (rack.sent_at, rack.end):
        rack.sent_at, rack.end = sent.sent_at, sent.end


def probe_after(c: Any) -> float:
    if c.rack.probe_end is not None or c.snd.scoreboard.sacked:
        return NEVER
    if not c.rtt.srtt:
        return 1.0
    after = 2 * c.rtt.srtt
    if c.snd.scoreboard.pipe <= c.congestion.smss:
        after += c.rack.peer_ack_delay_s
    return float(max(after, 0.01))


def hystart_on_ack(c: Any, una: int, nxt: int, rtt: float) -> int:
    h = c.congestion.hystart
    if rtt > 0:
        h.current = min(h.current, rtt)
        h.samples += 1
    conservative = h.baseline < NEVER
    if h.samples >= 8 and h.current < NEVER:
        if conservative:
            if h.current < h.baseline:
                h.baseline = NEVER
        elif h.last < NEVER and h.current >= h.last + max(0.004, min(h.last / 8, 0.016)):
            h.baseline = h.current
            h.rounds = 0
    if una >= h.window_end:
        h.window_end = nxt
        h.last, h.current, h.samples = h.current, NEVER, 0
        if conservative:
            h.rounds += 1
            if h.rounds >= 5:
                return 0
    return 4 if h.baseline < NEVER else 1


def grow_window(c: Any, ack: Any) -> None:
    window = c.congestion
    if ack.rtt > 0:
        window.restarting = False
    left, used = ack.wire_bytes, 2 * ack.flight_size >= window.cwnd
    if window.cwnd < window.ssthresh:
        if not used:
            return
        divisor = hystart_on_ack(c, ack.una, ack.nxt, ack.rtt)
        if not divisor:
            window.ssthresh = window.cwnd
        else:
            step = min(left // divisor, window.ssthresh - window.cwnd)
            window.cwnd += step
            left -= step * divisor
    if window.cwnd >= window.ssthresh:
        (_avoid_as_reno if window.name == "reno" else _avoid_as_cubic)(window, ack, left, used)


def _avoid_as_reno(reno: Any, _ack: Any, arrived: int, used: bool) -> None:
    if not used:
        return
    reno.acknowledged += arrived
    if reno.acknowledged >= reno.cwnd:
        reno.acknowledged -= reno.cwnd
        reno.cwnd += reno.smss


def _avoid_as_cubic(cubic: Any, ack: Any, arrived: int, used: bool) -> None:
    """RFC 9438; the constants are those of its sections 4.3, 4.6 and 5."""
    beta, c = 0.7, 0.4
    if cubic.began_at is not None and not used:
        cubic.began_at += ack.now - cubic.seen_at
    cubic.seen_at = ack.now
    if not used:
        return
    window = cubic.cwnd / cubic.smss
    if cubic.began_at is None:
        cubic.began_at = ack.now
        cubic.w_max = max(cubic.w_max, window)
        cubic.k = ((cubic.w_max - window) / c) ** (1 / 3)
        cubic.estimate = window
    frames = arrived / cubic.smss
    cubic.estimate += (1.0 if cubic.estimate >= cubic.prior else 3 * (1 - beta) / (1 + beta)) * frames / window
    elapsed = ack.now - cubic.began_at
    if c * (elapsed - cubic.k) ** 3 + cubic.w_max < cubic.estimate:
        cubic.cwnd = max(cubic.cwnd, int(cubic.estimate * cubic.smss))
        return
    target = c * (elapsed + ack.srtt - cubic.k) ** 3 + cubic.w_max
    target = min(max(target, window), 1.5 * window)
    cubic.cwnd += int((target - window) / window * frames * cubic.smss)


def on_idle(c: Any, window: Any, idle_s: float) -> None:
    h, initial = window.hystart, 10 * window.smss
    if window.restarting:
        return
    window.restarting = True
    if window.name == "bbr":
        if idle_s > 60:
            window.begin_bbr()
            window.cwnd = initial
        return
    if window.began_at is not None:
        window.began_at += idle_s
    window.seen_at += idle_s
    if window.cwnd > initial:
        window.ssthresh = max(window.ssthresh, 3 * window.cwnd // 4)
        paced = min(c.rtt.srtt, c.rtt.latest) >= 0.002
        window.cwnd = max(window.cwnd >> int(idle_s / 10) if paced else 0, initial)
    h.window_end = h.samples = h.rounds = 0
    h.last = h.current = h.baseline = NEVER


def update_pacing(c: Any, window: Any, link_full_at: float, now: float) -> bool:
    least = min(c.rtt.srtt, c.rtt.latest)
    paced = least >= 0.002 and now - link_full_at > c.rtt.srtt
    c.pacer.rate = _pacing_rate(window, least) if paced else None
    return c.pacer.rate is not None


def _pacing_rate(window: Any, rtt: float) -> float | None:
    if window.name == "bbr":
        if not window.rate:
            return float(2.885 * window.cwnd / rtt)
        least = 2.885 * (10 * window.smss) / rtt if window.mode == Mode.STARTUP else 0.0
        return float(max(window.gain * window.rate, least))
    if window.restarting and window.cwnd <= 10 * window.smss:
        return None
    return float((2.0 if 2 * window.cwnd < window.ssthresh else 1.2) * window.cwnd / rtt)


def pacing_burst(c: Any, now: float) -> int:
    pacer = c.pacer
    if pacer.rate is None:
        return 1 << 30
    if now < pacer.free_at:
        return 0
    return int(max(2, int(pacer.rate * (0.001 + pacer.late_s)) // c.congestion.smss))


def charge_pacing(c: Any, wire_bytes: int, now: float) -> None:
    pacer = c.pacer
    if pacer.rate is not None:
        pacer.free_at = max(pacer.free_at, now - 0.001 - pacer.late_s) + wire_bytes / pacer.rate
        pacer.late_s = 0.0


def position(initial: int, number: int, near: int) -> int:
    half = 1 << 31
    return near + ((number - initial - near + half) & 0xFFFFFFFF) - half


def update_window(c: Any, at: int, ack: int, field: int, scaled: bool) -> bool:
    snd = c.snd
    if ack <= snd.snd_wl2 and at < snd.snd_wl1:
        return False
    window = field << snd.scale if scaled else field
    changed = window != snd.snd_wnd
    snd.snd_wnd, snd.snd_wl1, snd.snd_wl2 = window, at, ack
    snd.max_wnd = max(window, snd.max_wnd)
    return bool(changed)


def accepts(c: Any, at: int, length: int) -> bool:
    nxt, right = c.rcv.rcv_nxt, c.rcv.rcv_adv
    if at == nxt:
        return bool(right > nxt or not length)
    if at > nxt:
        return bool(at < right or (at == right and not length))
    return bool(at + length > nxt and right > nxt)


def should_delay(c: Any, frames: int, size: int, now: float) -> bool:
    delayed = c.delayed_ack
    delayed.arrived_at = now
    if size >= 128 * frames:
        delayed.frames += frames
        delayed.batch = delayed.batch or frames > 1
    if delayed.answers < delayed.needed or delayed.frames >= 2 or delayed.batch:
        return False
    if delayed.at == NEVER:
        delayed.at = now + delayed.delay_s
    return True


def on_pure_ack(c: Any) -> None:
    c.delayed_ack.at = NEVER
    c.delayed_ack.frames = 0


def on_piggybacked(c: Any, now: float) -> None:
    delayed = c.delayed_ack
    delayed.at, delayed.frames, delayed.batch = NEVER, 0, False
    if now - delayed.arrived_at <= delayed.delay_s:
        delayed.answers += 1
        if delayed.needed > 1 and delayed.answers >= 2 * delayed.needed:
            delayed.needed //= 2
            delayed.answers = delayed.needed
    delayed.arrived_at = -NEVER


def begin_ack(c: Any, ack: Any, una: int, now: float) -> bool:
    ack.begin(now, c.snd.scoreboard.size)
    if una <= c.snd.snd_una:
        return False
    c.snd.snd_una = una
    c.snd.buffer.release(una)
    c.snd.scoreboard.acknowledge(una, ack)
    if c.rtt.backoff:
        answered(c)
    return True


def measure(c: Any, ack: Any, advanced: bool, echo: int) -> None:
    if ack.has_newest and ack.never_retransmitted:
        ack.rtt = ack.now - ack.newest.sent_at
        sample_rtt(c, ack.rtt)
        update_rack(c, ack, None)
        return
    if advanced and c.use_timestamps and echo:
        ack.rtt = c.timestamps.rtt(echo, ack.now)
        sample_rtt(c, ack.rtt)
    if ack.has_newest:
        update_rack(c, ack, ack.rtt or None)


def is_repairing(c: Any) -> bool:
    board = c.snd.scoreboard
    return not c.recovery.is_open or c.rack.probe_end is not None or bool(board.sacked or board.lost)


def arrived(c: Any, ack: Any) -> None:
    board = c.snd.scoreboard
    board.arrived(ack)
    ack.una, ack.nxt, ack.srtt = c.snd.snd_una, c.snd.snd_nxt, c.rtt.srtt
    ack.pipe, ack.delivered, ack.lost_total = board.pipe, board.delivered, board.lost_total


def arm_rto(c: Any, now: float) -> bool:
    give_up_at = c.unacked_since + c.user_timeout_s
    after = c.rtt.rto
    if c.established and c.user_timeout_s <= 5.0 and c.rtt.backoff:
        after = min(after, max(after / 2.0 ** min(c.rtt.backoff, 30), c.user_timeout_s / 8))
    c.rto_at = min(now + after, max(now, give_up_at))
    return bool(c.rto_at < c.scheduled_at)


def arm_pto(c: Any, now: float) -> bool:
    c.pto = NEVER
    if c.use_sack and c.recovery.is_open and now + probe_after(c) < c.rto_at:
        c.pto = now + probe_after(c)
    return bool(c.pto < c.scheduled_at)


def rearm_after_ack(c: Any, now: float, advanced: bool) -> bool:
    if advanced:
        c.unacked_since = now
    if c.snd.scoreboard:
        return arm_rto(c, now) | arm_pto(c, now)
    c.rto_at = c.pto = NEVER
    if c.trim_at != NEVER:
        return False
    c.trim_at = now + c.trim_after_s
    return bool(c.trim_at < c.scheduled_at)


def heard(c: Any, at: int, stamp: int, now: float) -> bool:
    c.last_heard, c.keepalive_probes = now, 0
    if stamp >= 0 and at <= c.last_ack_sent and c.use_timestamps:
        c.timestamps.note(stamp, now)
    return bool(c.has_soft_error)


def segment_end(c: Any, start: int, budget: int, force: bool) -> int:
    snd, buffer = c.snd, c.snd.buffer
    limit = snd.snd_una + snd.snd_wnd
    tag_range, natural, closed = buffer.extent(start, snd.fin_queued)
    flush = c.nodelay or closed or snd.snd_sml <= snd.snd_una
    end = max(start, min(limit, start + c.super_segment))
    end = natural if natural <= end else tag_range.cut_before(start, end)
    if not tag_range.words and end - start > snd.mss:
        length = min(end - start, budget * snd.mss)
        if start + length < natural or not flush:
            length -= length % snd.mss
        end = start + length
    length = end - start
    full = length >= snd.mss or (length > 0 and force)
    if end < natural:
        takes = full or (length and (2 * length >= snd.max_wnd or start + c.super_segment <= limit))
        return int(end) if takes else -1
    if snd.fin_queued and end == buffer.end:
        return int(end) if length or end < limit else -1
    return int(end) if full or (length and flush) else start


def carried(c: Any, end: int, frames: int, wire_bytes: int, now: float) -> bool:
    c.blocked = c.ack_pending = False
    c.frames_sent += frames
    c.wire_bytes_sent += wire_bytes
    on_piggybacked(c, now)
    c.snd.buffer.cut_at(end)
    return False


def sent_new(c: Any, end: int, is_short: bool, wire_bytes: int, now: float) -> bool:
    snd = c.snd
    snd.scoreboard.sent(snd.snd_nxt, end, wire_bytes, now)
    snd.snd_nxt = end
    if is_short:
        snd.snd_sml = end
    if end >= snd.buffer.end and snd.scoreboard.pipe < c.congestion.cwnd:
        snd.scoreboard.mark_app_limited()
    if not c.recovery.is_open or c.recovery.must_send:
        c.recovery.sent_bytes += wire_bytes
        c.recovery.must_send = False
    charge_pacing(c, wire_bytes, now)
    c.last_sent_at = now
    rto = False
    if c.persisting or c.rto_at == NEVER:
        c.persisting, c.unacked_since = False, now
        rto = arm_rto(c, now)
    return arm_pto(c, now) or rto


def tune(c: Any, ahead: int, now: float, srtt_s: float, echoed_s: float | None) -> int:
    """Four times what was consumed in a round trip, of a millisecond at least."""
    tuning, rcv, tick = c.receive_tuning, c.rcv, 0.001
    sample = max(tick, srtt_s if echoed_s is None else echoed_s + tick)
    if tuning.rtt_s == 0.0:
        tuning.rtt_s = max(tick, srtt_s) if srtt_s else sample
    elif sample < tuning.rtt_s:
        tuning.rtt_s = sample
    else:
        tuning.rtt_s += 1 / 8 * (sample - tuning.rtt_s)
    taken, more = rcv.rcv_nxt - rcv.unread + ahead - tuning.position, 0
    elapsed = now - tuning.started
    if elapsed > 0 and tuning.started:
        wanted = int(4 * (taken + max(0, taken - tuning.consumed)) * min(1.0, tuning.rtt_s / elapsed))
        more = min(wanted, tuning.most, rcv.largest) - rcv.capacity
    tuning.position += taken
    tuning.consumed = taken
    tuning.started, tuning.round_ends = now, now + tuning.rtt_s
    return int(more)


def frame_budget(c: Any, unsent: int, frames: int, link_full_at: float, now: float) -> int:
    pipe, window = c.snd.scoreboard.pipe, c.congestion
    allowance = window.cwnd - pipe
    budget = allowance // window.smss
    if budget <= 0:
        if pipe and allowance < unsent + 66 and not c.recovery.must_send:
            return 0
        budget = 1
    if c.pacer.update(window, c.rtt, link_full_at, now):
        burst = pacing_burst(c, now)
        if not burst:
            c.pacing_timer = c.pacer.free_at
            return -1 if c.pacing_timer < c.scheduled_at else 0
        frames = min(frames, burst)
    return int(min(budget, frames))
