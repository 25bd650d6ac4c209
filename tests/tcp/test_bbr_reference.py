"""BBR in C does what the reference in Python does."""

from __future__ import annotations

from copy import copy
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from softnic.tcp.bbr import Bbr
from softnic.tcp.bbr import Mode as BbrMode
from softnic.tcp.scoreboard import Scoreboard
from tests.tcp.marks import new_ack
from tests.tcp.reference_bbr import ReferenceBbr

SMSS = 1000
FIELDS = (
    *(
        "cwnd",
        "mode",
        "gain",
        "rate",
        "least_rtt",
        "least_rtt_at",
        "recent_rtt",
        "recent_rtt_at",
        "round",
        "round_ends",
        "full_rate",
        "full_rounds",
    ),
    *("phase", "phase_at", "probe_ends", "limited_until", "resume", "restarting"),
    *("bound", "bound_step", "counted_delivered", "counted_lost", "round_flight", "lost_much"),
    *("crowded_at", "seen_lost"),
)


class Journey:
    """A sender whose path changes, with both implementations of its window."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bbr, self.reference = Bbr(SMSS), ReferenceBbr(SMSS)
        self.board = Scoreboard()
        self.now, self.end = 1000.0 * self.random.random(), 1
        self.arrivals: list[tuple[float, int]] = []
        """Times at which ends of ranges arrive, in order."""
        self.modes = {BbrMode.STARTUP}
        self.before: tuple[Bbr, ReferenceBbr] | None = None
        """Snapshots."""
        self.change_path()

    def change_path(self) -> None:
        choice = self.random.choice
        self.delay_s, self.rate = choice((0.0, 1e-6, 0.002, 0.05, 1.0)), choice((1e4, 1e6, 2e6, 1e9))

    def send(self) -> None:
        """Sends what the window permits, or less than that: then the application is the limit."""
        limited = self.random.random() < 0.1
        for _ in range(self.random.randrange(8) if limited else 40):
            if self.board.pipe + SMSS > self.bbr.cwnd:
                return
            size = self.random.choice((SMSS, SMSS, 8 * SMSS, 66))
            self.board.sent(self.end, self.end + size, size, self.now)
            self.end += size
            last = self.arrivals[-1][0] if self.arrivals else 0.0
            self.arrivals.append((max(last, self.now + self.delay_s) + size / self.rate, self.end))
        if limited:
            self.board.mark_app_limited()

    def acknowledge(self) -> None:
        """Acknowledges what has arrived, or the last range of it only, with or without a round-trip time."""
        count = min(len(self.arrivals), self.random.choice((1, 1, 2, 10)))
        if not count:
            self.now += self.random.choice((0.001, 0.5, 11.0))
            return
        self.now, una = max(self.now, self.arrivals[count - 1][0]), self.arrivals[count - 1][1]
        ack = new_ack(self.now, self.board.size)
        first = self.board.ranges[0]
        if self.random.random() < 0.05 and first.end < una:
            self.board.sack(first.end, una, ack)
        else:
            del self.arrivals[:count]
            self.board.acknowledge(una, ack)
        self.board.arrived(ack)
        ack.una, ack.nxt, ack.pipe, ack.delivered = una, self.end, self.board.pipe, self.board.delivered
        ack.lost_total = self.board.lost_total
        if ack.has_newest and self.random.random() < 0.9:
            ack.rtt = ack.srtt = self.now - ack.newest.sent_at
        self.bbr.on_ack(ack)
        self.reference.on_ack(ack)

    def disturb(self) -> None:
        """Does what others than acknowledgements do to a window."""
        kind = self.random.choice(("path", "timeout", "idle", "loss", "snapshot", "undo", "undo", "wait"))
        if kind == "path":
            self.change_path()
        elif kind == "timeout":
            self.bbr.on_timeout(self.board.size, True)
            self.reference.cwnd = SMSS
        elif kind == "idle":
            self.bbr.on_idle(1.0)
            self.reference.restarting = True
        elif kind == "loss":
            self.bbr.on_loss(self.board.size)
            self.board.mark_head_lost(SMSS)
        elif kind == "snapshot":
            self.before = Bbr(SMSS), copy(self.reference)  # which shares the measured rates
            self.before[0].copy_fields(self.bbr)
        elif kind == "undo" and self.before is not None:
            self.bbr.restore(self.before[0])
            self.reference = self.before[1]
            self.before = None
        else:
            self.now += self.random.choice((0.1, 3.0, 11.0))

    def run(self, steps: int) -> None:
        for step in range(steps):
            self.send()
            self.acknowledge()
            if self.random.random() < 0.02:
                self.disturb()
            for name in FIELDS:
                assert getattr(self.bbr, name) == getattr(self.reference, name), f"step {step}: {name}"
            assert self.bbr.pacing_rate(0.01) == self.reference.pacing_rate(0.01)
            self.modes.add(BbrMode(self.bbr.mode))


@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 300))
@example(seed=1, steps=300)
def test_it_is_the_same_in_c(seed: int, steps: int) -> None:
    Journey(seed).run(steps)


def test_journeys_pass_through_all_modes() -> None:
    modes = set()
    for seed in range(20):
        journey = Journey(seed)
        journey.run(300)
        modes |= journey.modes
    assert modes == set(BbrMode)
