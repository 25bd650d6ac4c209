"""How a task's elements travel: the one place where the elements of compressed collectives are converted, whoever
executes them.

NICs compress float32. Elements that cross the network as such without being it (softnic/collectives/elements.py says
which) are converted to a scratch array when a call begins; the task is then done in place over that array, and what
came of it is converted back in the end: from the same float32 on every rank, and so to the same bits. With one rank
nothing crosses a network, and nothing is converted.

    journey = Journey(task, rank, size)
    task = journey.begin(scratch) if journey.converts else journey.task
    ...                                          # executed, here or by the NIC
    journey.finish()
"""

from __future__ import annotations

from dataclasses import replace

from softnic.collectives.elements import carried, convert
from softnic.comm.buffers import Array
from softnic.comm.tasks import Task


class Journey:
    """One rank's part of a collective, on the way there and back."""

    def __init__(self, task: Task, rank: int, size: int) -> None:
        chosen = task.chosen
        self.elements = task.source.dtype
        """What the caller has."""
        self.dtype, codec = carried(self.elements, chosen.codec if size > 1 else None)
        """What crosses the network."""
        self.task = replace(task, chosen=replace(chosen, codec=codec))
        """To be executed as it is, if nothing is converted."""
        self.converts = self.dtype != self.elements
        self._given = task
        self._rank = rank
        self._scratch: Array | None = None

    def begin(self, scratch: Array) -> Task:
        """The task over `scratch`: as many elements as `task.count`, of `dtype`, from now on the task's until `finish`.
        What this rank contributes is put there."""
        given, own = self._given, self._given.blocks[self._rank] if self._given.collective == "allgather" else None
        self._scratch = scratch
        if own is not None:
            convert(given.source[own] if given.given is None else given.given, scratch[own])
        elif given.collective != "bcast" or given.root == self._rank:
            convert(given.source, scratch)
        return replace(self.task, source=scratch, result=scratch, given=None, own=None)

    def finish(self) -> None:
        """Puts the results where the caller wants them. Of no effect where nothing was converted."""
        given, scratch = self._given, self._scratch
        if scratch is None:
            return
        if given.own is not None:
            convert(scratch[given.blocks[self._rank]], given.own)
        elif given.result is not None:
            convert(scratch, given.result)
        self._scratch = None
