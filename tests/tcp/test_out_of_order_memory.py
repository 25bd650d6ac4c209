"""Out-of-order data is charged to the node's budget by its memory use, and is dropped first."""

from __future__ import annotations

import ctypes
import gc
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softnic.tcp.budget import Budget
from softnic.tcp.config import TcpConfig
from softnic.tcp.reassembly import Reassembly
from tests.tcp.flows import flow, taken
from tests.tcp.lab import Lab, Pump, Wire
from tests.tcp.script import ACK, Script

MIB = 1 << 20
STREAM = random.Random(12).randbytes(1 << 17)
spans = st.tuples(st.integers(0, 3000), st.integers(1, 200) | st.sampled_from([9_000, 20_000, 60_000]))


def view(start: int, size: int) -> memoryview:
    return memoryview(STREAM)[start : start + size]


class Allocated(ctypes.Structure):
    """What glibc's mallinfo2 returns."""

    NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = tuple((name, ctypes.c_size_t) for name in NAMES.split())


def allocated() -> int:
    """Return the bytes that malloc has given out."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Allocated
    info = library.mallinfo2()
    return int(info.uordblks + info.hblkhd)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc's mallinfo2")
@pytest.mark.parametrize(("size", "step"), [(1, 2), (1, 1), (100, 101), (1448, 1448), (1448, 1500), (20_000, 20_001)])
def test_the_charge_is_the_memory_used(size: int, step: int) -> None:
    budget = Budget(1 << 40)
    reassembly = Reassembly(1 << 30, budget)
    count = min(5000, len(STREAM) // step)
    gc.collect()
    before = allocated()
    for index in range(count):
        assert reassembly.keep(index * step, view(index * step, size))
    measured = allocated() - before
    taken_bytes = (1 << 40) - budget.free
    assert 0.95 * measured - 1500 <= taken_bytes <= 2.5 * measured, measured  # but for what Python allocates meanwhile


@given(st.lists(spans, max_size=60), st.integers(0, 60_000), st.data())
@settings(deadline=None)
def test_bytes_and_charges_are_correct_for_any_arrivals(
    segments: list[tuple[int, int]], room: int, data: st.DataObject
) -> None:
    """Two queues share a budget that may be too small for both: each returns its stream, its SACK blocks are the ranges
    it holds, and at the end nothing is charged."""
    budget = Budget(room)
    given_up: list[int] = []
    kept = 0
    queues = [Reassembly(20, budget, given_up.append) for _ in range(2)]
    for start, size in segments:
        queue = data.draw(st.sampled_from(queues))
        kept += queue.keep(start, view(start, size)) and not queue.has_repeated
        queue.has_repeated = False
        assert budget.free >= 0
        held = [(at, bytes(piece)) for at, piece in queue.chunks()]
        assert all(piece == STREAM[at : at + len(piece)] for at, piece in held)
        assert all(before[0] + len(before[1]) <= after[0] for before, after in itertools.pairwise(held))
        islands = {position for at, piece in held for position in range(at, at + len(piece))}
        assert all(set(range(*block)) <= islands for block in queue.report())
        if data.draw(st.booleans()):
            position = data.draw(st.integers(0, 5000))
            found = taken(queue, position)
            assert found == STREAM[position : position + len(found)]
            assert all(position < at for at, _ in queue.chunks())
    assert sum(given_up) <= kept
    for queue in queues:
        queue.clear()
    assert budget.free == room


def test_the_largest_queue_makes_room_for_smaller_ones_and_for_buffers_that_grow() -> None:
    budget = Budget(100_000)
    dropped: dict[str, list[int]] = {name: [] for name in "abc"}
    a, b, c = (Reassembly(1000, budget, dropped[name].append) for name in "abc")
    assert a.keep(0, view(0, 10_000))
    while b.keep(20_000 + 20 * len(b.chunks()), view(0, 10)):
        pass
    assert not dropped["a"], "b has more than its share"
    held = len(b.chunks())
    assert c.keep(0, view(0, 10_000))
    assert dropped == {"a": [], "b": [held], "c": []}
    assert budget.take(budget.free + 1)
    assert sum(map(len, dropped.values())) == 2
    assert not budget.take(100_000)
    assert sum(map(len, dropped.values())) == 2, "nothing is dropped for what cannot be had"


def test_growth_of_a_window_is_charged() -> None:
    budget = Budget(10)
    queue = Reassembly(1000, budget)
    assert not queue.keep(0, view(0, 10_000))
    assert queue.keep(0, view(0, 10_000), paid=20_000)
    assert budget.free == 10


def test_an_attack_of_single_bytes_takes_no_more_than_the_budget() -> None:
    """More connections with gaps than there is memory for: the bound holds, all that is dropped is counted, and a
    connection with little is not dropped for those with much."""
    config = TcpConfig(buffer_memory=MIB)
    script = Script(config)
    first = script.accept()
    script.receive(ACK, 101, 1, bytes(2000))
    connections = []
    for script.sport in range(7000, 7020):
        connections.append(script.accept())
        for index in range(500):
            script.feed(ACK, 101 + 2 * index, 1, b"x")
        script.sent()
    counters = script.host.counters
    held = sum(len(flow(connection).out_of_order) for connection in connections)
    assert 4000 < held < MIB / 100
    assert counters.out_of_order + counters.dropped_reassembly == 20 * 500 + 1
    assert counters.out_of_order - counters.out_of_order_pruned == held + 1
    assert flow(first).out_of_order
    assert script.host.tcp.budget.free >= 0
    script.wait(10)
    assert script.host.tcp.budget.free == MIB
    assert not any(flow(connection).out_of_order for connection in (first, *connections))
    assert counters.out_of_order_pruned == counters.out_of_order


def test_out_of_order_data_is_kept_while_the_gap_is_filled() -> None:
    script = Script(TcpConfig())
    connection = script.accept()
    script.receive(ACK, 1001, 1, bytes(1000))
    for index in range(5):
        script.wait(6)
        script.receive(ACK, 1 + 100 * index, 1, bytes(100))
        assert flow(connection).out_of_order
    script.wait(8)
    assert not flow(connection).out_of_order
    script.receive(ACK, 501, 1, bytes(1500))
    assert flow(connection).unread == 2000


@pytest.mark.parametrize("seed", range(8))
def test_a_stream_survives_dropping_of_reported_data(seed: int) -> None:
    """The sender keeps data that SACK blocks have reported (RFC 2018, section 8)."""
    lab = Lab(Wire(delay_s=0.01, loss=0.03), seed=seed)
    a, b = lab.pair()
    pump, budget = Pump(a, b, STREAM * 4), lab.b.host.tcp.budget

    def turn() -> bool:
        if flow(b).out_of_order and lab.rng.random() < 0.5:
            before = budget.free
            assert budget.take(before + 1)
            assert not flow(b).out_of_order
            budget.give(before + 1)
        return pump()

    assert lab.run(turn, limit_s=600)
    assert pump.got == STREAM * 4
    assert lab.b.host.counters.out_of_order_pruned
