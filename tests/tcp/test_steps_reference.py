"""Each step of a connection in C does what the reference in Python does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from softnic.packet.segment import Tag
from softnic.tcp.ack import take_blocks
from softnic.tcp.config import TcpConfig
from softnic.tcp.scoreboard import Ack
from tests.tcp import reference_recovery as recovery
from tests.tcp import reference_steps as reference
from tests.tcp.flow_state import differences, numbers_of, state_of
from tests.tcp.lab import TAGGED
from tests.tcp.script import Script

NEVER = float("inf")
NOW = 1000.0
NXT = 40_001
"""`snd_nxt` and the end of what is written."""


def late(random: Random) -> float:
    return random.choice((NEVER, NOW, NOW - random.random(), NOW + random.random()))


def short(random: Random) -> float:
    return random.choice((0.0, 1e-7, 0.0005, 0.01, random.random(), 90.0 * random.random()))


def idle(random: Random) -> float:
    return random.choice((0.3, 1.0, 25.0, 60.0, 61.0, 1e6))


def set_numbers(c: Any, random: Random) -> None:
    """Sets what the steps read, within its limits."""
    choice = random.choice
    c.keepalive_probes, c.has_soft_error, c.last_ack_sent = choice((0, 2)), choice((True, False)), 2
    c.blocked, c.persisting = choice((True, False)), choice((True, False))
    c.use_timestamps, c.use_sack = choice((True, False)), choice((True, True, False))
    c.rto_at, c.scheduled_at, c.trim_at = late(random), late(random), choice((NEVER, late(random)))
    c.unacked_since, c.user_timeout_s = NOW - short(random), choice((0.1, 30.0))
    rtt, minimum, window = c.rtt, c.rack.minimum, c.congestion
    rtt.latest = short(random)
    rtt.srtt, rtt.rttvar, rtt.rto, rtt.backoff = short(random), short(random), 0.3, choice((0, 0, 1, 5, 40))
    minimum.before, minimum.now, minimum.since = (
        choice((NEVER, 0.01)),
        choice((NEVER, 0.02)),
        NOW - 200 * random.random(),
    )
    c.rack.sent_at, c.rack.end, c.rack.rtt = NOW - short(random), random.randrange(NXT), short(random)
    c.rack.probe_end = choice((None, None, random.randrange(NXT)))
    c.rack.reordering_seen, c.rack.multiplier, c.rack.persist = choice((True, False)), choice((1, 3)), choice((1, 16))
    c.rack.probe_repeats, c.rack.probe_dsacked = choice((True, False)), choice((True, False))
    c.rack.dsack_round = choice((None, random.randrange(NXT)))
    if random.random() < 0.5:
        c.recovery.begin()
    if random.random() < 0.3:
        c.recovery.begin_after_timeout(choice((True, False)))
    c.recovery.sent_again(choice((None, 500)))
    c.recovery.must_send, c.recovery.recover = choice((True, False)), random.randrange(NXT)
    c.recovery.arrived, c.recovery.sent_bytes = random.randrange(80_000), random.randrange(80_000)
    c.recovery.flight_size = random.randrange(1, 80_000)
    window.cwnd = random.randrange(window.smss, 80_000)
    window.ssthresh = choice((1 << 40, window.cwnd, random.randrange(80_000)))
    window.restarting = choice((True, False))
    if window.name == "reno":
        window.acknowledged = random.randrange(window.cwnd)
    else:
        window.w_max, window.prior, window.estimate = (60 * random.random() for _ in range(3))
        window.k, window.seen_at = 4 * random.random(), NOW - random.random()
        window.began_at = choice((None, NOW - 10 * random.random()))
    hystart = window.hystart
    hystart.window_end, hystart.samples, hystart.rounds = (random.randrange(limit) for limit in (NXT, 10, 6))
    hystart.last, hystart.current, hystart.baseline = (choice((NEVER, 0.1 * random.random())) for _ in range(3))
    c.pacer.rate, c.pacer.free_at, c.pacer.late_s = (
        choice((None, 1e7 * random.random() + 1)),
        late(random),
        short(random),
    )
    if c.pacer.free_at == NEVER:
        c.pacer.free_at = 0.0
    snd, delayed = c.snd, c.delayed_ack
    snd.snd_wnd, snd.max_wnd, snd.snd_wl1, snd.snd_wl2, snd.scale = 5 << 7, 1 << 20, 100, 100, choice((0, 7))
    c.rcv.rcv_nxt, c.rcv.rcv_adv = 100, choice((100, 300))
    delayed.at, delayed.arrived_at, delayed.frames = choice((NEVER, NOW)), NOW - choice((0, 0.0005, 1)), choice((0, 1))
    delayed.needed, delayed.answers, delayed.batch = choice((1, 2, 8)), random.randrange(17), choice((True, False))


def send(c: Any, random: Random) -> None:
    """Fills the scoreboard: ranges sent, sent again, lost and reported by SACK blocks."""
    board, at = c.snd.scoreboard, 1
    c.tag(Tag(random.choice((0, TAGGED))))
    c.send(bytes(NXT - 1))
    while at < NXT:
        end = min(NXT, at + random.randrange(1, 12_000))
        board.sent(at, end, end - at + 66, NOW - random.choice((0.5, 0.02, random.random())))
        at = end
    c.snd.snd_nxt = NXT
    for _ in range(random.randrange(4)):
        start = random.randrange(1, NXT - 1)
        end = random.randrange(start + 1, NXT)
        if random.random() < 0.5:
            board.sent_again(start, end, end - start + 66, NOW - 0.1 * random.random())
        else:
            board.sack(start, end, a_begun_ack())
    if random.random() < 0.3:
        board.time_out(0.01, 0.01, NOW)


def a_begun_ack() -> Ack:
    ack = Ack()
    ack.begin(NOW, 1000)
    return ack


def connection(seed: int) -> Any:
    random = Random(seed)
    config = TcpConfig(congestion=random.choice(("cubic", "reno")), send_buffer=1 << 16)
    c = Script(config).accept(timestamps=(1000, 0), window_scale=7, sack_permitted=True)
    send(c, random)
    set_numbers(c, random)
    return c


def an_ack(c: Any, random: Random) -> Ack:
    """An acknowledgement of some of what was sent."""
    ack = a_begun_ack()
    if random.random() < 0.8:
        c.snd.scoreboard.acknowledge(random.randrange(1, NXT + 1), ack)
    ack.rtt, ack.flight_size = random.choice((0.0, 0.03)), random.randrange(80_000)
    ack.srtt, ack.una, ack.nxt = c.rtt.srtt, random.randrange(NXT), NXT
    return ack


Step = Callable[[Any, Random], object]


def sized(call: Callable[[Any, int, int, float], object]) -> Step:
    return lambda c, r: call(c, r.randrange(1, 4), r.randrange(1000), NOW)


STEPS: dict[str, tuple[Step, Step]] = {
    "sample": (lambda c, r: c.rtt.sample(short(r)), lambda c, r: reference.sample_rtt(c, short(r))),
    "back off": (lambda c, _: c.rtt.back_off(), lambda c, _: reference.back_off(c)),
    "answered": (lambda c, _: c.rtt.answered(), lambda c, _: reference.answered(c)),
    "minimum": (
        lambda c, r: c.rack.minimum.sample(short(r), NOW),
        lambda c, r: reference.sample_minimum_rtt(c, short(r), NOW),
    ),
    "rack": (
        lambda c, r: c.rack.update(an_ack(c, r), r.choice((None, 0.001, 5.0))),
        lambda c, r: reference.update_rack(c, an_ack(c, r), r.choice((None, 0.001, 5.0))),
    ),
    "probe after": (
        lambda c, _: c.rack.probe_after(c.snd.scoreboard, c.congestion.smss, c.rtt.srtt),
        lambda c, _: reference.probe_after(c),
    ),
    "hystart": (
        lambda c, r: c.congestion.hystart.on_ack(r.randrange(NXT), NXT, short(r)),
        lambda c, r: reference.hystart_on_ack(c, r.randrange(NXT), NXT, short(r)),
    ),
    "grow": (
        lambda c, r: c.congestion.on_ack(an_ack(c, r)),
        lambda c, r: reference.grow_window(c, an_ack(c, r)),
    ),
    "idle": (
        lambda c, r: any_window(c, r).on_idle(idle(r)),
        lambda c, r: reference.on_idle(c, any_window(c, r), idle(r)),
    ),
    "pacing": (
        lambda c, r: c.pacer.update(any_window(c, r), c.rtt, NOW - short(r), NOW),
        lambda c, r: reference.update_pacing(c, any_window(c, r), NOW - short(r), NOW),
    ),
    "burst": (lambda c, _: c.pacer.burst(c.congestion.smss, NOW), lambda c, _: reference.pacing_burst(c, NOW)),
    "charge": (
        lambda c, r: c.pacer.sent(r.randrange(1 << 20), NOW),
        lambda c, r: reference.charge_pacing(c, r.randrange(1 << 20), NOW),
    ),
    "acknowledgement": (
        lambda c, r: c.snd.position(r.getrandbits(32)),
        lambda c, r: reference.position(c.snd.iss, r.getrandbits(32), c.snd.snd_una),
    ),
    "sequence": (
        lambda c, r: c.rcv.position(r.getrandbits(32)),
        lambda c, r: reference.position(c.rcv.irs, r.getrandbits(32), c.rcv.rcv_nxt),
    ),
    "window": (
        lambda c, r: c.snd.update_window(
            r.randrange(98, 103), r.randrange(98, 103), r.choice((5, 9)), r.random() < 0.8
        ),
        lambda c, r: reference.update_window(
            c, r.randrange(98, 103), r.randrange(98, 103), r.choice((5, 9)), r.random() < 0.8
        ),
    ),
    "accepts": (
        lambda c, r: c.rcv.accepts(r.choice((50, 99, 100, 101, 299, 300, 301)), r.choice((0, 1, 60))),
        lambda c, r: reference.accepts(c, r.choice((50, 99, 100, 101, 299, 300, 301)), r.choice((0, 1, 60))),
    ),
    "delay": (sized(lambda c, *given: c.delayed_ack.should_delay(*given)), sized(reference.should_delay)),
    "pure": (lambda c, _: c.delayed_ack.on_pure_ack(), lambda c, _: reference.on_pure_ack(c)),
    "piggybacked": (lambda c, _: c.delayed_ack.on_piggybacked(NOW), lambda c, _: reference.on_piggybacked(c, NOW)),
    "begin": (
        lambda c, r: told(c.begin_ack, r, r.randrange(NXT + 1), NOW),
        lambda c, r: told(lambda *given: reference.begin_ack(c, *given), r, r.randrange(NXT + 1), NOW),
    ),
    "measure": (
        lambda c, r: told(c.measure, an_ack(c, r), r.random() < 0.5, r.choice((0, 5, r.getrandbits(32)))),
        lambda c, r: told(
            lambda *given: reference.measure(c, *given),
            an_ack(c, r),
            r.random() < 0.5,
            r.choice((0, 5, r.getrandbits(32))),
        ),
    ),
    "repairing": (lambda c, _: c.is_repairing(), lambda c, _: reference.is_repairing(c)),
    "duplicate": (
        lambda c, r: c.rack.duplicate(r.randrange(NXT), NXT),
        lambda c, r: recovery.duplicate(c, r.randrange(NXT), NXT),
    ),
    "recovered": (lambda c, _: c.rack.recovered(), lambda c, _: recovery.recovered(c)),
    "reordering window": (
        lambda c, r: c.rack.window(c.snd.scoreboard, r.random() < 0.5, c.congestion.smss, c.rtt.srtt),
        lambda c, r: recovery.reordering_window(c, r.random() < 0.5),
    ),
    "probe answered": (
        lambda c, r: c.rack.probe_answered(r.randrange(NXT)),
        lambda c, r: recovery.probe_answered(c, r.randrange(NXT)),
    ),
    "loss": (
        lambda c, r: any_window(c, r).on_loss(r.randrange(80_000)),
        lambda c, r: recovery.on_loss(any_window(c, r), r.randrange(80_000)),
    ),
    "timeout": (
        lambda c, r: any_window(c, r).on_timeout(r.randrange(80_000), r.random() < 0.5),
        lambda c, r: recovery.on_timeout(any_window(c, r), r.randrange(80_000), r.random() < 0.5),
    ),
    "begin recovery": (lambda c, _: c.begin_recovery(), lambda c, _: recovery.begin_recovery(c)),
    "recovery after a timeout": (
        lambda c, r: c.recovery.begin_after_timeout(r.random() < 0.5),
        lambda c, r: recovery.begin_after_timeout(c, r.random() < 0.5),
    ),
    "recovery window": (
        lambda c, r: c.recovery.window(r.randrange(80_000), r.random() < 0.5),
        lambda c, r: recovery.window(c, r.randrange(80_000), r.random() < 0.5),
    ),
    "ends": (lambda c, r: c.recovery.ends(r.randrange(NXT)), lambda c, r: recovery.ends(c, r.randrange(NXT))),
    "sent in recovery": (lambda c, _: c.recovery.sent(3000), lambda c, _: recovery.sent(c, 3000)),
    "blocks": (
        lambda c, r: told(lambda ack: take_blocks(c, some_blocks(c, r), ack), a_begun_ack()),
        lambda c, r: told(lambda ack: recovery.take_blocks(c, some_blocks(c, r), ack), a_begun_ack()),
    ),
    "losses": (lambda c, _: c.look_for_losses(NOW), lambda c, _: recovery.look_for_losses(c, NOW)),
    "acknowledged": (
        lambda c, r: told(c.acknowledged, an_ack(c, any_of(c, r)), *some_news(r)),
        lambda c, r: told(lambda *given: recovery.acknowledged(c, *given), an_ack(c, any_of(c, r)), *some_news(r)),
    ),
    "next": (lambda c, _: c.next_sent(), lambda c, _: recovery.next_sent(c)),
    "again end": (
        lambda c, r: c.again_end(*a_loss(c, r)),
        lambda c, r: recovery.again_end(c, *a_loss(c, r)),
    ),
    "sent again": (
        lambda c, r: c.sent_again(*a_repetition(r), 3000, NOW),
        lambda c, r: recovery.sent_again(c, *a_repetition(r), 3000, NOW),
    ),
    "arrived": (
        lambda c, r: told(c.arrived, an_ack(c, r)),
        lambda c, r: told(lambda *given: reference.arrived(c, *given), an_ack(c, r)),
    ),
    "rto": (lambda c, _: c.arm_rto(NOW), lambda c, _: reference.arm_rto(c, NOW)),
    "pto": (lambda c, _: c.arm_pto(NOW), lambda c, _: reference.arm_pto(c, NOW)),
    "rearm": (
        lambda c, r: c.rearm_after_ack(NOW, r.random() < 0.5),
        lambda c, r: reference.rearm_after_ack(c, NOW, r.random() < 0.5),
    ),
    "tune": (
        lambda c, r: c.receive_tuning.advance(c.rcv, *a_round(c, r)),
        lambda c, r: reference.tune(c, *a_round(c, r)),
    ),
    "heard": (lambda c, r: c.heard(*a_sign(r)), lambda c, r: reference.heard(c, *a_sign(r))),
    "budget": (
        lambda c, r: c.frame_budget(*a_chance(c, r)),
        lambda c, r: reference.frame_budget(c, *a_chance(c, r)),
    ),
    "segment end": (lambda c, r: c.segment_end(*a_plan(c, r)), lambda c, r: reference.segment_end(c, *a_plan(c, r))),
    "carried": (
        lambda c, r: c.carried(r.randrange(1, NXT), 3, 4000, NOW),
        lambda c, r: reference.carried(c, r.randrange(1, NXT), 3, 4000, NOW),
    ),
    "sent new": (
        lambda c, r: c.sent_new(NXT + r.randrange(1, 3000), r.random() < 0.5, 3000, NOW),
        lambda c, r: reference.sent_new(c, NXT + r.randrange(1, 3000), r.random() < 0.5, 3000, NOW),
    ),
}


def any_window(c: Any, random: Random) -> Any:
    """The connection's congestion control, BBR sometimes: test_bbr_reference.py has the rest of it."""
    if random.random() < 0.3:
        c.set_congestion("bbr")
        c.congestion.rate, c.congestion.gain = random.choice((0.0, 1e7 * random.random())), random.choice((0.75, 1.25))
    return c.congestion


def any_of(c: Any, random: Random) -> Random:
    """Gives a connection BBR sometimes."""
    any_window(c, random)
    return random


def some_blocks(c: Any, random: Random) -> tuple[tuple[int, int], ...]:
    """SACK blocks, some of which report what is acknowledged, or nonsense."""
    places = [sorted(random.randrange(NXT) for _ in range(2)) for _ in range(random.randrange(1, 5))]
    if random.random() < 0.3:
        places.insert(0, places[0])
    return tuple((c.snd.iss + first & 0xFFFFFFFF, c.snd.iss + last & 0xFFFFFFFF) for first, last in places[:4])


def some_news(random: Random) -> tuple[bool, bool, int | None]:
    """Whether snd_una moved, whether there was a D-SACK, and the timestamp echoed."""
    return random.random() < 0.7, random.random() < 0.3, random.choice((None, 0, 499, 501, random.getrandbits(32)))


def a_loss(c: Any, random: Random) -> tuple[int, int, int]:
    """A range that was lost, and the frames that may be sent."""
    c.super_segment = random.choice((400, 5000, 1 << 20))
    start = random.randrange(1, NXT - 1)
    return start, random.randrange(start + 1, NXT), random.choice((1, 2, 64))


def a_repetition(random: Random) -> tuple[int, int]:
    start = random.randrange(1, NXT - 1)
    return start, random.choice((start, random.randrange(start, NXT)))


def a_round(c: Any, random: Random) -> tuple[int, float, float, float | None]:
    """Bytes behind gaps, time, smoothed round trip and age of the timestamp at the end of a round."""
    tuning, choice = c.receive_tuning, random.choice
    c.rcv.rcv_nxt, c.rcv.unread = random.randrange(100, 1 << 20), random.randrange(100)
    tuning.position, tuning.started = random.randrange(100), choice((0.0, NOW, NOW - short(random)))
    tuning.rtt_s = choice((0.0, short(random)))
    ahead = choice((0, random.randrange(1 << 20)))
    return ahead, NOW, choice((0.0, short(random))), choice((None, 0.0, short(random)))


def a_sign(random: Random) -> tuple[int, int, float]:
    """Position and timestamp of a segment."""
    return random.randrange(4), random.choice((-1, 0, 7, 0xFFFFFFFF)), NOW


def a_chance(c: Any, random: Random) -> tuple[int, int, float, float]:
    """Unsent bytes, frames, when the link was last full, and the time."""
    c.recovery.must_send = random.choice((True, False))
    c.rtt.latest, c.rtt.srtt = 0.02, random.choice((0.0, 0.01, 0.05))
    c.congestion.cwnd = random.choice((c.congestion.smss, c.snd.scoreboard.pipe + random.randrange(8000)))
    return random.randrange(1, 5000), random.choice((1, 4, 64)), random.choice((-NEVER, NOW - 0.02)), NOW


def a_plan(c: Any, random: Random) -> tuple[int, int, bool]:
    """Start, frames and `force` of new data, with windows, tags and an end of the stream for which it may wait."""
    snd, choice = c.snd, random.choice
    c.nodelay, snd.fin_queued = choice((True, False)), choice((True, False))
    snd.snd_una = choice((1, 30_000, NXT))
    snd.snd_wnd, snd.max_wnd = choice((0, 500, 5000, 1 << 16)), choice((900, 1 << 20))
    snd.snd_sml, c.super_segment = choice((1, NXT)), choice((400, 5000, 1 << 20))
    c.tag(Tag(choice((0, TAGGED))))
    c.send(bytes(choice((0, 1, 63, 64, 999, 5000))))
    if random.random() < 0.5:
        c.tag(Tag(choice((0, TAGGED))))
    return choice((NXT, NXT, NXT - 700)), choice((1, 2, 64)), choice((True, False))


def told(call: Callable[..., object], ack: Any, *given: object) -> object:
    """Calls with an acknowledgement. Returns the result and what is in the acknowledgement then."""
    if isinstance(ack, Random):
        ack = a_begun_ack()
    result = call(ack, *given)
    return result, state_of(ack), ack.has_newest and ack.newest.end


@pytest.mark.parametrize("step", STEPS)
@given(seed=st.integers(0, 1 << 32))
@example(seed=1)
def test_it_is_the_same_in_c(step: str, seed: int) -> None:
    in_c, in_python = STEPS[step]
    one, other = connection(seed), connection(seed)
    assert in_c(one, Random(seed)) == in_python(other, Random(seed))
    if numbers_of(one) != numbers_of(other):
        assert differences(state_of(one), state_of(other)) == []
