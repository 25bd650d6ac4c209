"""What goes wrong in a world, and how it is made good again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from tests.simulation.scenario import Fault

if TYPE_CHECKING:
    from tests.simulation.world import World

FLAPS = 5
"""Times that a flapping link is lost."""


def apply(world: World, faults: Iterable[Fault]) -> None:
    """Has them happen in their time."""
    for fault in faults:
        _KINDS[fault.kind](world, fault)


def _sever(world: World, pairs: list[tuple[int, int]], at: float, seconds: float, what: str) -> None:
    """These do not hear each other for so long: (who says, who hears)."""

    def cut(by: int, text: str) -> None:
        for pair in pairs:
            world.severed[pair] += by
        world.tell(text)

    world.clock.at(at, partial(cut, 1, what))
    world.clock.at(at + seconds, partial(cut, -1, f"{what} is over"))


def _partition(world: World, fault: Fault) -> None:
    inside, everyone = set(fault.machines), range(len(world.machines))
    pairs = [pair for pair in product(everyone, everyone) if (pair[0] in inside) != (pair[1] in inside)]
    _sever(world, pairs, fault.at, fault.seconds, f"partition: {sorted(inside)} and the others")


def _deaf(world: World, fault: Fault) -> None:
    hears, says = fault.machines[:2]
    _sever(world, [(says, hears)], fault.at, fault.seconds, f"node{hears} does not hear node{says}")


def _flap(world: World, fault: Fault) -> None:
    index = fault.machines[0]
    others = [other for other in range(len(world.machines)) if other != index]
    pairs = [(index, other) for other in others] + [(other, index) for other in others]
    step = fault.seconds / (2 * FLAPS)
    for turn in range(FLAPS):
        _sever(world, pairs, fault.at + 2 * turn * step, step, f"node{index} has no link")


def _storm(world: World, fault: Fault) -> None:
    machine = world.machines[fault.machines[0]]
    assert fault.link is not None

    def change(spec: object, text: str) -> None:
        machine.way.change(fault.link if spec is None else machine.spec.link)  # type: ignore[arg-type]
        world.tell(f"{machine.name}: {text}")

    world.clock.at(fault.at, partial(change, None, f"its link is now {fault.link}"))
    world.clock.at(fault.at + fault.seconds, partial(change, machine, "its link is as it was"))


def _crash(world: World, fault: Fault) -> None:
    machine = world.machines[fault.machines[0]]

    def crash() -> None:
        if machine.node is None:
            return
        machine.log("its NIC dies")
        machine.crash()
        world.clock.at(world.now + fault.seconds, boot)

    def boot() -> None:
        machine.log("its NIC starts again")
        machine.boot()

    world.clock.at(fault.at, crash)


def _freeze(world: World, fault: Fault) -> None:
    machine = world.machines[fault.machines[0]]

    def freeze() -> None:
        machine.log(f"stands still for {fault.seconds:.3f} s")
        machine.freeze(world.now + fault.seconds)

    world.clock.at(fault.at, freeze)


def _jump(world: World, fault: Fault) -> None:
    machine = world.machines[fault.machines[0]]

    def jump() -> None:
        machine.log(f"its clock jumps by {fault.seconds:.3f} s")
        machine.jump(fault.seconds)

    world.clock.at(fault.at, jump)


_KINDS = {
    "partition": _partition,
    "deaf": _deaf,
    "flap": _flap,
    "storm": _storm,
    "crash": _crash,
    "freeze": _freeze,
    "jump": _jump,
}
