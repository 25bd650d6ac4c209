"""What the calls of a process group consist of: collectives that NICs execute, and messages between ranks.

A part is begun, looked after until it is over, and finished, all by the thread of its group (engine.py). Tensors are
read when it begins and written when it finishes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from softnic.comm import Communicator
from softnic.comm.progress_loop import Driver, Receiving, Sending
from softnic.comm.request import Request
from softnic.comm.scratch import Scratch
from softnic.torch.devices import Fence, Lanes
from softnic.torch.reduction import Fold, Multiplier, divide
from softnic.torch.staging import Placed, Stage

Post = Callable[[Communicator, Stage], Request]


@dataclass
class Means:
    """What parts are made with."""

    comm: Communicator
    driver: Driver
    pool: Scratch
    lanes: Lanes = field(default_factory=Lanes)

    def stage(self, count: int, dtype: torch.dtype) -> Stage:
        return Stage(self.pool, self.lanes, count, dtype)


class Part(ABC):
    """One thing that is under way."""

    source = -1
    """The rank that a message came from, once it is there."""

    @abstractmethod
    def begin(self, means: Means) -> None:
        """Raises CommError and OSError, after which the group is of no further use."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether it can be finished. Raises CommError."""

    @abstractmethod
    def finish(self) -> None:
        """Puts the results where they belong. Raises CommError if there are none."""


class Executed(Part):
    """A collective that NICs execute on a stage of `count` elements.

    `loads` are copied there, multiplied by `before`, and `post` hands them to the NIC. In the end they are folded, or
    multiplied by `after` or divided by `divisor`, and copied to `stores`.
    """

    def __init__(
        self,
        count: int,
        dtype: torch.dtype,
        post: Post,
        loads: Sequence[Placed],
        stores: Sequence[Placed],
        *,
        before: Multiplier | None = None,
        after: Multiplier | None = None,
        divisor: int = 1,
        fold: tuple[Fold, int] | None = None,
    ) -> None:
        self._count = count
        self._dtype = dtype
        self._post = post
        self._loads = loads
        self._stores = stores
        self._fence = Fence(tensor for _, tensor in [*loads, *stores])
        self._before = before
        self._after = after
        self._divisor = divisor
        self._fold = fold
        """Of so many ranks' equal blocks; the result is in the first."""

    def begin(self, means: Means) -> None:
        self._stage = means.stage(self._count, self._dtype)
        self._stage.load(self._loads, self._fence)
        if self._before is not None:
            self._stage.flat.mul_(self._before)
        self._request = self._post(means.comm, self._stage)

    @property
    def over(self) -> bool:
        return self._request.Get_status()

    def finish(self) -> None:
        self._request.Wait()
        flat = self._stage.flat
        if self._after is not None:
            flat.mul_(self._after)
        if self._divisor != 1:
            divide(flat, self._divisor)
        if self._fold is not None:
            combine, ranks = self._fold
            first, *others = flat.view(ranks, -1)
            for other in others:
                combine(first, other, out=first)
        self._stage.store(self._stores, self._fence)
        self._stage.free()


@dataclass(frozen=True)
class Letter:
    """One message: to or from `peer`."""

    peer: int
    tag: int
    tensor: torch.Tensor


class Exchanged(Part):
    """Messages on their way out and in, all at a time."""

    def __init__(self, sends: Sequence[Letter], receives: Sequence[Letter]) -> None:
        self._sends = sends
        self._receives = receives
        self._fence = Fence(letter.tensor for letter in [*sends, *receives])
        self._outgoing: list[tuple[Sending, Stage]] = []
        self._incoming: list[tuple[Receiving, Stage, torch.Tensor]] = []

    def begin(self, means: Means) -> None:
        for letter in self._receives:
            stage = means.stage(letter.tensor.numel(), letter.tensor.dtype)
            receiving = means.driver.receive(letter.peer, letter.tag, stage.bytes.numpy())
            self._incoming.append((receiving, stage, letter.tensor))
        for letter in self._sends:
            stage = means.stage(letter.tensor.numel(), letter.tensor.dtype)
            stage.load([(0, letter.tensor)], self._fence)
            self._outgoing.append((means.driver.send(letter.peer, letter.tag, stage.bytes.numpy()), stage))

    @property
    def over(self) -> bool:
        return all([way.over for way, _ in self._outgoing]) and all([way.over for way, *_ in self._incoming])

    def finish(self) -> None:
        for _, stage in self._outgoing:
            stage.free()
        for receiving, stage, tensor in self._incoming:
            stage.store([(0, tensor)], self._fence)
            stage.free()
            self.source = receiving.source


class Local(Part):
    """What is done here, with the results of the parts before it if need be."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def begin(self, _: Means) -> None:
        pass

    @property
    def over(self) -> bool:
        return True

    def finish(self) -> None:
        self._work()
