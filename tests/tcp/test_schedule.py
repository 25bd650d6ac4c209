"""The schedule of a node's flows in C, against a dictionary, a deque and a sorted list."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic._native import ffi, lib
from softnic.tcp.flow import NEVER, TURN_BYTES, Flow
from softnic.tcp.scheduler import Scheduler
from tests.tcp.lab import Lab

OWN = 0x0A4D0001
LEAST = int(lib.SN_LEAST_TURN_BYTES)


class Flows:
    """Flows of a stack whose output is what a test says."""

    def __init__(self, count: int) -> None:
        lab = Lab()
        host = lab.a.host
        self.flows = [host.connect(host.ip if index % 3 == 2 else lab.b.ip, 80, lab.now) for index in range(count)]
        for flow in self.flows:
            host.tcp.scheduler.remove(flow)
            flow.rto_at = NEVER
            flow.syn_pending, flow.snd.snd_nxt = False, flow.snd.buffer.end
            flow.established = flow.writable = True
        self.order: list[int] = []
        self.sends: dict[int, int] = {}
        self.scheduler = Scheduler(host.ip, self._output)
        for flow in self.flows:
            self.scheduler.add(flow)

    def _output(self, flow: object, now: float, frames: int) -> int:  # noqa: ARG002
        index = self.flows.index(flow)  # type: ignore[arg-type]
        self.order.append(index)
        left = self.sends.get(index, 0)
        sent = min(left, frames * self.flows[index].congestion.smss)
        self.sends[index] = left - sent
        self.flows[index].ack_pending = self.sends[index] > 0  # there is something to send
        return sent

    def found(self, index: int) -> bool:
        flow = self.flows[index]
        at = lib.sn_schedule_find(self.scheduler.c, flow.peer[0], flow.peer[1], flow.local[1])
        return bool(at) and self.scheduler.flow_at(at) is flow


@given(st.lists(st.tuples(st.sampled_from("ar"), st.integers(0, 149)), max_size=300))
def test_a_flow_is_found_while_it_is_there(steps: list[tuple[str, int]]) -> None:
    made, there = Flows(150), set(range(150))
    for what, index in steps:
        if what == "a" and index not in there:
            made.scheduler.add(made.flows[index])
            there.add(index)
        elif what == "r":
            made.scheduler.remove(made.flows[index])
            there.discard(index)
    assert {index for index in range(150) if made.found(index)} == there
    assert made.scheduler.c.flows == len(there)


@given(
    st.lists(st.tuples(st.integers(0, 19), st.sampled_from([1.0, 2.0, 3.0, 5.0, NEVER]), st.floats(0, 2)), max_size=60)
)
def test_timers_are_due_in_the_order_of_their_times_and_then_of_setting(steps: list[tuple[int, float, float]]) -> None:
    """A deadline that is postponed is looked at when it was due before, and runs when it is due."""
    made, now, orders = Flows(20), 0.0, itertools.count()
    entries: dict[int, tuple[float, int]] = {}
    for index, after, later in steps:
        flow = made.flows[index]
        flow.close_at = now + after
        made.scheduler.schedule(flow)
        if now + after < entries.get(index, (NEVER, 0))[0]:
            entries[index] = now + after, next(orders)
        now += later
        expected = []
        while entries and (first := min(entries, key=entries.__getitem__)) is not None and entries[first][0] <= now:
            del entries[first]
            if made.flows[first].close_at <= now:
                expected.append(first)
            elif made.flows[first].close_at < NEVER:
                entries[first] = made.flows[first].close_at, next(orders)
        found = []
        while (due := made.scheduler.due(now)) is not None:
            found.append(made.flows.index(due))  # type: ignore[arg-type]
            made.scheduler.take(due)
            due.close_at = NEVER
        assert found == expected
    next_time = made.scheduler.next_time()
    assert next_time == min((at for at, _ in entries.values()), default=None)


def test_quick_timers_wake_and_decide_nothing() -> None:
    made = Flows(1)
    flow = made.flows[0]
    flow.pacing_timer = flow.delayed_ack.at = 5.0
    made.scheduler.schedule(flow)
    assert made.scheduler.due(4.0) is None
    assert not made.scheduler.wants_output
    assert made.scheduler.due(5.0) is None
    assert made.scheduler.wants_output
    assert (flow.pacing_timer, flow.delayed_ack.at, flow.ack_pending) == (NEVER, NEVER, True)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40 * TURN_BYTES // 10)), min_size=1, max_size=20))
def test_turns_alternate_and_are_counted_in_bytes(wanted: list[tuple[int, int]]) -> None:
    made = Flows(6)
    ring: deque[int] = deque()
    for index, size in wanted:
        made.sends[index] = made.sends.get(index, 0) + size
        if index % 3 != 2:
            made.scheduler.wake(made.flows[index])
            if index not in ring:
                ring.append(index)
    left, credit, expected = dict(made.sends), dict.fromkeys(range(6), TURN_BYTES), []
    while ring:
        index = ring[0]
        smss = made.flows[index].congestion.smss
        space = credit[index] if len(ring) > 1 else 1 << 40
        sent = min(left[index], max(1, space // smss) * smss)
        expected.append(index)
        left[index] -= sent
        credit[index] -= sent
        if sent and left[index] and credit[index] >= LEAST:
            continue
        ring.popleft()
        if sent and left[index]:
            ring.append(index)
            credit[index] = max(0, credit[index] + TURN_BYTES)
        else:
            credit[index] = TURN_BYTES
    made.scheduler.output(0.0, 1 << 40)
    assert made.order == expected
    assert not made.scheduler.wants_output


def test_a_flow_that_ends_in_its_turn_leaves_the_ring() -> None:
    made = Flows(3)
    for flow in made.flows[:2]:
        made.scheduler.wake(flow)
    made.scheduler.remove(made.flows[0])
    made.scheduler.wake(made.flows[0])  # it has ended: nothing wakes it
    made.scheduler.output(0.0, 1 << 20)
    assert made.order == [1]


def test_the_memory_of_a_flow_that_ends_as_it_sends_lives_until_that_is_counted() -> None:
    """Sanitized, this sees memory that is used after it was freed."""
    made = Flows(1)
    scheduler: Scheduler

    def ends(flow: Flow, now: float, frames: int) -> int:  # noqa: ARG001
        scheduler.remove(flow)
        return 1000

    scheduler = Scheduler(made.flows[0].local[0], ends)
    made.scheduler.remove(made.flows[0])
    scheduler.add(made.flows[0])
    scheduler.wake(made.flows[0])
    alive = weakref.ref(made.flows[0])
    del made
    gc.collect()
    assert scheduler.output(0.0, 1 << 20) == 1000
    gc.collect()
    assert alive() is None
    assert not scheduler.wants_output


def test_a_flow_is_queued_once() -> None:
    made = Flows(1)
    for _ in range(3):
        made.scheduler.wake(made.flows[0])
    assert lib.sn_ready_count(ffi.addressof(made.scheduler.c, "ready")) == 1


@pytest.mark.parametrize("queued", [True, False])
def test_flows_to_the_node_itself_have_a_ring_of_their_own(queued: bool) -> None:
    made = Flows(3)
    made.sends = {2: 5 << 20}
    if queued:
        made.scheduler.wake(made.flows[2])
    made.scheduler.output(0.0, 1 << 20)
    assert made.order == []
    made.scheduler.output_loopback(0.0)
    assert made.order == [2] * queued
    assert made.scheduler.wants_output_loopback is queued
