"""A peer is reached at the best of its candidates that answers, and at another one where that falls silent."""

from __future__ import annotations

import select
from contextlib import ExitStack

import pytest

from softnic.link.reach.candidates import (
    KEEPALIVE_S,
    MAX_CANDIDATES,
    PROBES_S,
    SILENT_S,
    SUSPECT_S,
    TICK_S,
    Candidate,
    Reach,
)
from softnic.underlay import Address
from tests.link.doubles import A, B, C
from tests.link.reach.wires import Translator, Wire, drained, run, settle
from tests.link.sockets import BOTH_FAMILIES, plain_socket

HOSTS = BOTH_FAMILIES


class Offered:
    """A and B with a relay between them, and a direct way that may be closed.

    A reaches B at `direct.inside` and `relay.inside`; B hears A from their `outside`.
    """

    def __init__(self, stack: ExitStack, *, by_keys: bool) -> None:
        self.stack = stack
        self.a, self.b = Wire(stack, A, by_keys=by_keys), Wire(stack, B, by_keys=by_keys)
        self.direct, self.relay = (Translator(stack, self.a.link.address, self.b.link.address) for _ in range(2))
        self.parts = (self.a, self.direct, self.relay, self.b)

    def offer(self, *more: Candidate) -> None:
        self.a.link.offer(
            B,
            [
                Candidate(self.relay.inside.getsockname(), 10, relayed=True),
                Candidate(self.direct.inside.getsockname(), 5),
                *more,
            ],
        )
        self.b.link.offer(A, [Candidate(self.relay.address, 10, relayed=True), Candidate(self.direct.address, 5)])

    def exchange(self, now: float) -> None:
        for one, other in ((self.a, self.b), (self.b, self.a)):
            sent = one.send(other.mac, repr(now).encode(), now)
            settle(*self.parts, now=now)
            assert other.heard.count(sent) == 1

    def is_direct(self) -> bool:
        return not self.a.link.reached[B].relayed and not self.b.link.reached[A].relayed


@pytest.fixture(params=[True, False], ids=["nodes' keys", "network's key"])
def offered(request: pytest.FixtureRequest, stack: ExitStack) -> Offered:
    return Offered(stack, by_keys=request.param)


class TestChoosing:
    def test_all_are_asked_at_once_without_a_frame_to_send(self, stack: ExitStack) -> None:
        a = Wire(stack, A, by_keys=True)
        there = [plain_socket(stack) for _ in range(3)]
        a.link.offer(B, [Candidate(each.getsockname(), number) for number, each in enumerate(there)])
        a.step(1.0)
        asked = [drained(each) for each in there]
        assert [len(each) for each in asked] == [1, 1, 1]
        assert asked[0] == asked[1] == asked[2]
        run(a, start=1.0, end=30.0)
        assert all(2 <= len(drained(each)) <= 16 for each in there)

    def test_a_direct_way_is_found_and_used_by_both(self, offered: Offered) -> None:
        offered.offer()
        now = run(*offered.parts, start=1.0, end=4.0)
        assert offered.is_direct()
        offered.exchange(now)
        assert offered.a.counted.dropped_wrong_key == 0

    def test_without_one_the_relay_is_used(self, offered: Offered) -> None:
        offered.direct.passes = False
        offered.offer()
        now = run(*offered.parts, start=1.0, end=3.0)
        assert offered.a.link.reached[B].relayed
        assert offered.b.link.reached[A].relayed
        offered.exchange(now)

    def test_a_better_way_that_answers_later_takes_over_without_a_lost_frame(self, offered: Offered) -> None:
        offered.direct.passes = False
        offered.offer()
        now = run(*offered.parts, start=1.0, end=20.0)
        offered.direct.passes = True
        end = now + PROBES_S[-1] + 1
        while now < end:
            now += 0.25
            offered.exchange(now)
        assert offered.is_direct()

    def test_candidates_that_nobody_answers_at_are_asked_ever_more_rarely(self, offered: Offered) -> None:
        nobody = plain_socket(offered.stack)
        offered.offer(Candidate(nobody.getsockname(), 99))
        run(*offered.parts, start=1.0, end=61.0)
        first = len(drained(nobody))
        run(*offered.parts, start=61.0, end=361.0)
        assert 5 <= first <= 20
        assert len(drained(nobody)) <= 300 / PROBES_S[-1] + 1

    def test_a_way_that_falls_silent_is_replaced(self, offered: Offered) -> None:
        offered.offer()
        now = run(*offered.parts, start=1.0, end=4.0)
        assert offered.is_direct()
        offered.direct.passes = False
        silent_at = now
        while not offered.a.link.reached[B].relayed:
            now += 0.1
            offered.a.send(B, b"x", now)
            settle(*offered.parts, now=now)
            assert now < silent_at + SILENT_S + 3 * TICK_S
        for _ in range(20):  # B sends nothing, and hears that A has left the direct way
            now += 0.1
            offered.a.send(B, b"x", now)
            settle(*offered.parts, now=now)
        offered.exchange(now)

    def test_an_address_that_is_another_peers_stays_with_it(self, stack: ExitStack) -> None:
        a, b = (Wire(stack, mac, by_keys=True) for mac in (A, B))
        other = plain_socket(stack)
        a.link.add_peer(C, other.getsockname())
        a.link.offer(B, [Candidate(other.getsockname(), 9), Candidate(b.link.address)])
        assert a.link.reached[B].address == b.link.address
        assert a.link.reached[C].address == other.getsockname()

    def test_what_the_socket_does_not_reach_is_ignored(self, stack: ExitStack) -> None:
        a = Wire(stack, A, by_keys=True)
        with pytest.raises(OSError, match="none of the candidates"):
            a.link.offer(B, [Candidate(("no address", 1)), Candidate(a.link.address)])
        with pytest.raises(OSError, match="none of the candidates"):
            a.link.offer(B, [])
        assert a.link.peer_count == 0

    def test_candidates_are_bounded_and_may_be_replaced(self, stack: ExitStack) -> None:
        a = Wire(stack, A, by_keys=True)
        host = a.link.address[0]
        for first in (1000, 2000):
            a.link.offer(B, [Candidate((host, first + number), number) for number in range(100)])
        assert len(a.link.sorted_peers()[0]) <= MAX_CANDIDATES + 1


class TestKeepalive:
    def test_what_is_idle_is_kept_open(self, offered: Offered) -> None:
        offered.offer()
        now = run(*offered.parts, start=1.0, end=5.0)
        seen: list[float] = []
        step = offered.direct.step

        def watch(now: float) -> None:
            if select.select([offered.direct.inside], [], [], 0)[0]:
                seen.append(now)
            step(now)

        offered.direct.step = watch  # type: ignore[method-assign]
        run(*offered.parts, start=now, end=now + 100)
        gaps = [later - earlier for earlier, later in zip([now, *seen], seen, strict=False)]
        assert max(gaps) <= KEEPALIVE_S + 2 * TICK_S
        assert len(seen) <= 30
        assert offered.a.heard == offered.b.heard == []

    def test_peers_by_configuration_alone_get_none(self, stack: ExitStack) -> None:
        a, b = (Wire(stack, mac, by_keys=True) for mac in (A, B))
        a.link.add_peer(B, b.link.address)
        b.link.add_peer(A, a.link.address)
        a.send(B, b"x", 0.0)
        settle(a, b, now=0.0)
        assert b.heard
        assert a.link.next_time() is None
        assert b.link.next_time() is None


class TestReach:
    """The rules, without a socket."""

    ONE, TWO, RELAY, OTHER = (("192.0.2.1", port) for port in range(1, 5))

    def reach(self) -> Reach:
        made = Reach()
        made.set([Candidate(self.ONE, 1), Candidate(self.TWO, 2), Candidate(self.RELAY, 99, relayed=True)])
        return made

    @pytest.mark.parametrize(
        ("better", "worse"), [(TWO, ONE), (ONE, RELAY), (TWO, RELAY), (OTHER, RELAY), (ONE, OTHER)]
    )
    def test_what_is_better(self, better: Address, worse: Address) -> None:
        assert self.reach().is_better(better, worse)
        assert not self.reach().is_better(worse, better)

    def test_nothing_is_better_than_the_best(self) -> None:
        reach = self.reach()
        assert reach.probes(self.TWO, 0.0) == []
        assert reach.probes(self.RELAY, 0.0) == []  # not before it has moved
        reach.on_moved(0.0)
        assert set(reach.probes(self.RELAY, 1.0)) == {self.ONE, self.TWO}

    def test_silence_is_counted_while_frames_are_sent(self) -> None:
        reach = self.reach()
        assert not any(reach.is_silent(0.0, 0.0, tick * TICK_S) for tick in range(100))
        found = [
            reach.is_silent(50 + tick * TICK_S, 50.0, 50 + tick * TICK_S) for tick in range(int(2 * SILENT_S / TICK_S))
        ]
        assert found.index(True) * TICK_S == pytest.approx(SILENT_S, abs=TICK_S)
        assert not reach.is_silent(57.0, 57.0, 57.0)

    def test_a_way_is_suspected_before_it_is_silent_and_is_back_once(self) -> None:
        reach, tick = self.reach(), 0
        suspected = []
        for tick in range(8):
            now = 50 + tick * TICK_S
            assert not reach.is_silent(now, 50.0, now)
            suspected.append(reach.suspects(50.0, now))
        assert suspected.index(True) * TICK_S == pytest.approx(SUSPECT_S, abs=2 * TICK_S)
        assert not reach.is_back(50.0, now)
        assert reach.is_back(now, now)
        assert not reach.is_back(now, now)

    def test_candidates_are_new_once(self) -> None:
        reach = self.reach()
        assert set(reach.take_new()) == {self.ONE, self.TWO, self.RELAY}
        reach.set([Candidate(self.TWO, 2), Candidate(self.OTHER, 2)])
        reach.set([Candidate(self.TWO, 2), Candidate(self.OTHER, 2)])
        assert reach.take_new() == [self.OTHER]
        assert reach.take_new() == []

    def test_candidates_that_are_preferred_alike(self) -> None:
        reach = self.reach()
        assert not reach.is_equal(self.ONE, self.TWO)
        reach.set([Candidate(self.TWO, 2), Candidate(self.ONE, 2)])
        assert reach.is_equal(self.ONE, self.TWO)
        assert not reach.is_equal(self.OTHER, self.OTHER)
