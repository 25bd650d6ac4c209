"""One world for many hours: does anything grow?

Programs come and go, teams compute, links and NICs fail now and then. Once an hour no new programs are started until
all have ended; then every NIC is at rest, and what it keeps is counted, object by object. At rest it must keep no more
after a day than after the first hours.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

from tests.simulation.actions import Author
from tests.simulation.faults import apply
from tests.simulation.invariants import Violation, reachable
from tests.simulation.scenario import Plan, draw_fault, draw_machine, draw_team
from tests.simulation.world import PATIENCE_S, World

MACHINES = 3
TALK_EVERY_S = 15.0
TEAM_EVERY_S = 300.0
FAULT_EVERY_S = 600.0
HOUR_S = 3600.0
SETTLED = 3
"""Hours after which tables that forget late (flows, caches) are as full as they get."""
GROWTH = 1.05
"""Allowed of what is kept at rest: dictionaries and queues keep some room of their fuller days."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What all NICs keep at rest."""

    hour: int
    talks: int
    """So far."""
    objects: int
    size_bytes: int


def soak(hours: float, *, seed: int = 0, tell: Callable[[str], None] = print) -> bool:
    """Runs the hours, tells what is kept after each, and whether that is no more in the end. False: it grew, or
    something was violated."""
    try:
        return evaluate(run(hours, seed=seed, tell=tell), tell)
    except Violation as violation:
        tell(f"violated: {violation}")
        return False


def evaluate(rows: list[Kept], tell: Callable[[str], None]) -> bool:
    """Whether nothing grew after the first hours: the least that was kept in the last quarter of them is no more than
    the most of the first."""
    quarter = -(-len(rows) // 4)
    first, last = rows[: quarter + SETTLED], rows[-quarter:]
    grew = any(
        min(kept(row) for row in last) > GROWTH * max(kept(row) for row in first)
        for kept in (attrgetter("objects"), attrgetter("size_bytes"))
    )
    tell(f"after {rows[-1].hour} hours and {rows[-1].talks} connections: {'it grows' if grew else 'nothing grows'}")
    return not grew


def run(hours: float, *, seed: int, tell: Callable[[str], None]) -> list[Kept]:
    """A row an hour. Raises Violation."""
    rng = random.Random(seed)
    machines = tuple(replace(draw_machine(rng), plain=False) for _ in range(MACHINES))
    world = World(Plan(seed=seed, machines=machines, conversations=(), teams=(), faults=(), horizon_s=0.0))
    author = Author(rng)
    rows = []
    talks = 0
    tell("  hour    talks  objects    bytes kept at rest")
    for hour in range(1, max(1, round(hours)) + 1):
        talks = _hour(world, author, rng, talks)
        rows.append(_at_rest(world, hour, talks))
        row = rows[-1]
        tell(f"{row.hour:6d} {row.talks:8d} {row.objects:8d} {row.size_bytes:8d}")
    return rows


def _hour(world: World, author: Author, rng: random.Random, talks: int) -> int:
    """Sets down what happens in an hour, but for its end. Returns how many conversations there were so far."""
    began, until = world.now, world.now + HOUR_S - PATIENCE_S
    for at in _times(rng, began, until, TALK_EVERY_S):
        client, server = rng.randrange(MACHINES), rng.randrange(MACHINES)
        talk = author.conversation(talks, at, client, server, quits=True)
        world.clock.at(at, partial(world.start_talk, talk))
        talks += 1
    for number, at in enumerate(_times(rng, began, until, TEAM_EVERY_S)):
        team = draw_team(rng, world.plan.machines, 0.0, False, number)
        assert team is not None
        world.clock.at(at, partial(world.start_team, replace(team, at=at)))
    faults = [replace(draw_fault(rng, MACHINES, 0.0), at=at) for at in _times(rng, began, until, FAULT_EVERY_S)]
    apply(world, faults)
    return talks


def _times(rng: random.Random, began: float, until: float, every_s: float) -> Iterator[float]:
    """When things happen that happen about so often."""
    at = began
    while (at := at + rng.expovariate(1 / every_s)) < until:
        yield at


def _at_rest(world: World, hour: int, talks: int) -> Kept:
    """Lets all programs end, and counts."""
    world.finish(hour * HOUR_S)
    world.rest()
    objects = size = 0
    for machine in world.machines:
        node = machine.node
        assert node is not None
        for each in reachable(node, beyond=node.link):
            objects += 1
            size += sys.getsizeof(each)
    world.talks.clear()
    world.teams.clear()
    return Kept(hour, talks, objects, size)
