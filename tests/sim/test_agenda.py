"""The nodes of a cluster as one actor: those that are due act in their order, and the others cost nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from softnic.sim.agenda import Agenda
from softnic.sim.clock import VirtualClock


class Node:
    """Acts at given times; when it acts, it makes others due at once."""

    def __init__(self, index: int, times: list[int], wakes: list[int], log: list[tuple[float, int]]) -> None:
        self._index = index
        self._times = sorted(set(times))
        self._wakes = wakes
        self._log = log
        self._due = math.inf
        self.others: list[Node] = []
        self.report: Callable[[float], None] = lambda _time: None
        self._plan(-1.0)

    def _plan(self, now: float) -> None:
        self._due = next((float(time) for time in self._times if time > now), math.inf)

    def touch(self, now: float) -> None:
        self._due = now
        self.report(now)

    def advance(self, now: float) -> None:
        self._log.append((now, self._index))
        self._plan(now)
        for wake in self._wakes:
            self.others[wake % len(self.others)].touch(now)
        self._wakes = []

    def next_time(self) -> float:
        return self._due


NODES = st.lists(
    st.tuples(st.lists(st.integers(0, 5), max_size=4), st.lists(st.integers(0, 9), max_size=3)), min_size=1, max_size=6
)


def run(spec: list[tuple[list[int], list[int]]], with_agenda: bool) -> list[tuple[float, int]]:
    log: list[tuple[float, int]] = []
    nodes = [Node(index, times, list(wakes), log) for index, (times, wakes) in enumerate(spec)]
    agenda = Agenda()
    for index, node in enumerate(nodes):
        node.others = nodes
        if with_agenda:
            node.report = agenda.reporter(index)
            agenda.add(node)
    VirtualClock().run_until([agenda] if with_agenda else nodes, lambda: False, 10.0)
    return log


@given(NODES)
def test_nodes_act_at_the_same_instants_and_in_the_same_order_as_actors_of_the_clock(
    spec: list[tuple[list[int], list[int]]],
) -> None:
    assert run(spec, with_agenda=True) == run(spec, with_agenda=False)


def test_a_node_that_is_due_at_no_time_is_left_alone() -> None:
    agenda = Agenda()
    log: list[tuple[float, int]] = []
    agenda.add(Node(0, [], [], log))
    assert agenda.next_time() == math.inf
    agenda.advance(5.0)
    assert log == []


def test_a_report_before_its_node_was_added_does_nothing() -> None:
    agenda = Agenda()
    agenda.reporter(0)(1.0)
    assert agenda.next_time() == math.inf
