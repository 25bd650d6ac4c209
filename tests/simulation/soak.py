"""Runs one world for many hours, to see whether anything grows.

Applications come and go, jobs compute, links and NICs fail now and then. At the end of each hour no new applications
are started until all have ended; then every NIC is idle, and the objects that it keeps are counted. An idle NIC must
keep no more after a day than after the first hours.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

from tests.simulation.actions import ConversationGenerator
from tests.simulation.faults import schedule
from tests.simulation.invariants import Violation, reachable
from tests.simulation.scenario import Scenario, draw_fault, draw_job, draw_node
from tests.simulation.world import END_LIMIT_S, World

NODES = 3
CONVERSATION_EVERY_S = 15.0
JOB_EVERY_S = 300.0
FAULT_EVERY_S = 600.0
HOUR_S = 3600.0
SETTLED = 3
"""Hours after which tables that forget late (flows, caches) have reached their size."""
GROWTH = 1.05
"""Tolerated growth: dictionaries and queues keep some memory of their largest size."""


@dataclass(frozen=True, slots=True)
class IdleMemory:
    """What all NICs keep when they are idle, after an hour."""

    hour: int
    conversations: int
    """Since the start."""
    objects: int
    size_bytes: int


def soak(hours: float, *, seed: int = 0, report: Callable[[str], None] = print) -> bool:
    """Run the hours, and report what is kept after each. Returns whether nothing grew and nothing was violated."""
    try:
        return evaluate(run(hours, seed=seed, report=report), report)
    except Violation as violation:
        report(f"violated: {violation}")
        return False


def evaluate(rows: list[IdleMemory], report: Callable[[str], None]) -> bool:
    """Return whether nothing grew: the minimum of the last quarter does not exceed the maximum of the first hours."""
    quarter = -(-len(rows) // 4)
    first, last = rows[: quarter + SETTLED], rows[-quarter:]
    grew = any(
        min(size(row) for row in last) > GROWTH * max(size(row) for row in first)
        for size in (attrgetter("objects"), attrgetter("size_bytes"))
    )
    outcome = "memory grows" if grew else "nothing grows"
    report(f"after {rows[-1].hour} hours and {rows[-1].conversations} connections: {outcome}")
    return not grew


def run(hours: float, *, seed: int, report: Callable[[str], None]) -> list[IdleMemory]:
    """Return a row for each hour. Raises Violation."""
    rng = random.Random(seed)
    nodes = tuple(replace(draw_node(rng), plain=False) for _ in range(NODES))
    world = World(Scenario(seed=seed, nodes=nodes, conversations=(), jobs=(), faults=(), horizon_s=0.0))
    generator = ConversationGenerator(rng)
    rows = []
    conversations = 0
    report("  hour    conversations  objects    bytes kept when idle")
    for hour in range(1, max(1, round(hours)) + 1):
        conversations = _schedule_hour(world, generator, rng, conversations)
        rows.append(_at_rest(world, hour, conversations))
        row = rows[-1]
        report(f"{row.hour:6d} {row.conversations:16d} {row.objects:8d} {row.size_bytes:8d}")
    return rows


def _schedule_hour(world: World, generator: ConversationGenerator, rng: random.Random, conversations: int) -> int:
    """Schedule what happens in an hour but for its end. Returns the number of conversations since the start."""
    began, until = world.clock.now, world.clock.now + HOUR_S - END_LIMIT_S
    for at in _times(rng, began, until, CONVERSATION_EVERY_S):
        client, server = rng.randrange(NODES), rng.randrange(NODES)
        conversation = generator.draw(conversations, at, client, server, may_end_early=True)
        world.clock.at(at, partial(world.start_conversation, conversation))
        conversations += 1
    for number, at in enumerate(_times(rng, began, until, JOB_EVERY_S)):
        job = draw_job(rng, world.scenario.nodes, 0.0, False, number)
        assert job is not None
        world.clock.at(at, partial(world.start_job, replace(job, at=at)))
    schedule(world, [replace(draw_fault(rng, NODES, 0.0), at=at) for at in _times(rng, began, until, FAULT_EVERY_S)])
    return conversations


def _times(rng: random.Random, began: float, until: float, every_s: float) -> Iterator[float]:
    """Yield the times of events with this mean interval."""
    at = began
    while (at := at + rng.expovariate(1 / every_s)) < until:
        yield at


def _at_rest(world: World, hour: int, conversations: int) -> IdleMemory:
    """Let all applications end, and count what is kept."""
    world.finish(hour * HOUR_S)
    world.rest()
    objects = size = 0
    for node in world.nodes:
        for each in reachable(node.node, beyond=node.node.link):
            objects += 1
            size += sys.getsizeof(each)
    world.conversations.clear()
    world.jobs.clear()
    return IdleMemory(hour, conversations, objects, size)
