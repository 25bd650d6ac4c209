"""What fails in a world, and how it is repaired."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import Protocol

from softnic.link.emulation_spec import EmulationSpec
from softnic.sim.clock import VirtualClock
from tests.simulation.node import WorldNode
from tests.simulation.scenario import Fault

FLAPS = 5
"""How often a flapping link is lost."""

Pair = tuple[int, int]
"""Sender and receiver, by the numbers of their nodes."""


class Faulty(Protocol):
    """What faults change of a world."""

    clock: VirtualClock
    nodes: list[WorldNode]

    def block(self, pair: Pair, by: int) -> None:
        """Stop a node's frames from reaching another (1), or undo that (-1)."""

    def log_line(self, text: str) -> None: ...


def schedule(world: Faulty, faults: Iterable[Fault]) -> None:
    """Let faults happen at their times."""
    for fault in faults:
        _KINDS[fault.kind](world, fault)


def _block(world: Faulty, pairs: list[Pair], at: float, seconds: float, text: str) -> None:
    def change(by: int, line: str) -> None:
        for pair in pairs:
            world.block(pair, by)
        world.log_line(line)

    world.clock.at(at, partial(change, 1, text))
    world.clock.at(at + seconds, partial(change, -1, f"{text} is over"))


def _partition(world: Faulty, fault: Fault) -> None:
    inside, everyone = set(fault.nodes), range(len(world.nodes))
    pairs = [pair for pair in product(everyone, everyone) if (pair[0] in inside) != (pair[1] in inside)]
    _block(world, pairs, fault.at, fault.seconds, f"partition between {sorted(inside)} and the others")


def _one_way_partition(world: Faulty, fault: Fault) -> None:
    receiver, sender = fault.nodes[:2]
    text = f"one-way partition from node{sender} to node{receiver}"
    _block(world, [(sender, receiver)], fault.at, fault.seconds, text)


def _flap(world: Faulty, fault: Fault) -> None:
    index = fault.nodes[0]
    others = [other for other in range(len(world.nodes)) if other != index]
    pairs = [(index, other) for other in others] + [(other, index) for other in others]
    step = fault.seconds / (2 * FLAPS)
    for turn in range(FLAPS):
        _block(world, pairs, fault.at + 2 * turn * step, step, f"link loss of node{index}")


def _degraded_link(world: Faulty, fault: Fault) -> None:
    node = world.nodes[fault.nodes[0]]
    assert fault.link is not None

    def change(spec: EmulationSpec, text: str) -> None:
        node.link.change(spec)
        node.log(text)

    world.clock.at(fault.at, partial(change, fault.link, f"its link is now {fault.link}"))
    world.clock.at(fault.at + fault.seconds, partial(change, node.spec.link, "its link is repaired"))


def _crash(world: Faulty, fault: Fault) -> None:
    node = world.nodes[fault.nodes[0]]

    def crash() -> None:
        if not node.alive:
            return
        node.log("its NIC dies")
        node.crash()
        world.clock.at(world.clock.now + fault.seconds, restart)

    def restart() -> None:
        node.log("its NIC starts again")
        node.boot_nic()

    world.clock.at(fault.at, crash)


def _freeze(world: Faulty, fault: Fault) -> None:
    node = world.nodes[fault.nodes[0]]

    def freeze() -> None:
        node.log(f"stands still for {fault.seconds:.3f} s")
        node.freeze(world.clock.now + fault.seconds)

    world.clock.at(fault.at, freeze)


def _jump(world: Faulty, fault: Fault) -> None:
    node = world.nodes[fault.nodes[0]]

    def jump() -> None:
        node.log(f"its clock jumps ahead by {fault.seconds:.3f} s")
        node.jump(fault.seconds)

    world.clock.at(fault.at, jump)


_KINDS = {
    "partition": _partition,
    "one-way partition": _one_way_partition,
    "flap": _flap,
    "degraded link": _degraded_link,
    "crash": _crash,
    "freeze": _freeze,
    "jump": _jump,
}
