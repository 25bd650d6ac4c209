"""Whole groups in virtual time: nodes with an executor each, on a network in memory, and what processes post."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.collectives import CollectiveEngine, schedule
from softnic.collectives.collective_op import WHOLE
from softnic.collectives.elements import name_of
from softnic.ipc.work_queue import StagedPart, WorkCompletion, WorkFailed, WorkRequest
from softnic.link.emulation import EmulatedLink
from softnic.link.emulation_spec import EmulationSpec
from softnic.link.memory import MemoryNetwork
from softnic.nic.node import Node
from softnic.sim.clock import VirtualClock
from softnic.tcp.connection import Connection
from softnic.tcp.info import ConnectionInfo
from softnic.tcp.peer_stream import peer_streams

Array = npt.NDArray[Any]
BASE_IP = 0x0A4D0001
PORT = 5000
LOSSY = {"delay_s": 1e-4, "jitter_s": 5e-5, "loss": 0.01, "duplicate": 0.005, "reorder": 0.02}
"""A bad link, for `Group(link=...)`."""


class Member:
    """A node and the executor of its rank, as a daemon runs them."""

    def __init__(self, node: Node, rank: int) -> None:
        self.node = node
        self.rank = rank
        self.executor: CollectiveEngine | None = None
        self.completed: list[int] = []
        self.failures: list[WorkFailed] = []
        self.posted = 0
        self.dead = False
        """It neither hears nor says anything."""

    def advance(self, now: float) -> None:
        if self.dead:
            return
        self.node.receive(now)
        self.node.host.events.clear()
        if self.executor is not None:
            self.executor.advance(now)
            while self.executor.replies:
                reply = self.executor.replies.popleft()
                if isinstance(reply, WorkCompletion):
                    self.completed.append(reply.number)
                else:
                    self.failures.append(reply)
        self.node.send(now)

    def next_time(self) -> float | None:
        if self.dead:
            return None
        times = [self.node.next_time(), self.executor.next_time() if self.executor else None]
        return min((time for time in times if time is not None), default=None)


class Group:
    """`size` ranks, connected and joined. `link` is what every node's way out is like.

    `messages`: they have streams for single messages, too."""

    def __init__(
        self,
        size: int,
        *,
        seed: int = 0,
        link: dict[str, Any] | None = None,
        links: dict[int, dict[str, Any]] | None = None,
        messages: bool = False,
        **node: Any,
    ) -> None:
        network, rng = MemoryNetwork(), random.Random(seed)
        options = {"offloads": {0x28: "bounded:10"}, **node}
        self.members: list[Member] = []
        for rank in range(size):
            way_out = EmulatedLink(
                network.port(), EmulationSpec(**((links or {}).get(rank) or link or {})), seed=rng.getrandbits(32)
            )
            own = random.Random(rng.getrandbits(32))
            self.members.append(Member(Node(BASE_IP + rank, way_out, rng=own, name=f"n{rank}", **options), rank))
        self.clock = VirtualClock()
        self.words, self.data = self._connect(PORT), self._connect(PORT + 1)
        self.messages = [self._connect(PORT + 2 + kind) for kind in range(2 * messages)]
        for member in self.members:
            control, data = (peer_streams(ends[member.rank]) for ends in (self.words, self.data))
            pairs = None
            if messages:
                plain, tagged = (peer_streams(ends[member.rank]) for ends in self.messages)
                pairs = {other: (plain[other], tagged[other]) for other in data}
            member.executor = CollectiveEngine(member.rank, size, control, data, pairs)

    def _connect(self, port: int) -> list[dict[int, Connection]]:
        """A connection from every rank to each lower one; by rank, those of this rank."""
        ends: list[dict[int, Connection]] = [{} for _ in self.members]
        for low, listening in enumerate(self.members):
            listener = listening.node.host.listen(0, port, 100, self.clock.now)
            for high in range(low + 1, len(self.members)):
                host = self.members[high].node.host
                ends[high][low] = host.connect(BASE_IP + low, port, self.clock.now)
                self.clock.run(self.members, partial(bool, listener.queue))
                accepted = listener.accept()
                assert accepted is not None
                ends[low][high] = accepted
        return ends

    def connections(self, rank: int) -> dict[int, list[ConnectionInfo]]:
        """The states of a rank's connections for blocks, by rank."""
        return {other: [connection.info(self.clock.now)] for other, connection in self.data[rank].items()}

    def post(self, rank: int, source: Array, result: Array, collective: str, **fields: Any) -> int:
        """One rank's post over all its blocks, or of a `part` of them. Returns its number."""
        member = self.members[rank]
        member.posted += 1
        part = fields.pop("part", WHOLE)
        size = len(self.members)
        algorithm = fields.pop("algorithm", "ring")
        cut = schedule.blocks(collective, algorithm, source.size, size)
        counts = fields.pop("counts", tuple(block.stop - block.start for block in cut))
        call = fields.pop("call", f"I{collective}")
        post = WorkRequest(
            member.posted, call, collective, algorithm, name_of(source.dtype), counts, (0, 0), (0, 0), **fields
        )
        assert member.executor is not None
        member.executor.post(post, raw(source), raw(result), part)
        return member.posted

    def run(self, limit_s: float = 60.0) -> None:
        """Until every post is complete or failed."""

        def over() -> bool:
            return all(
                member.failures or len(member.completed) == member.posted for member in self.members if not member.dead
            )

        self.clock.run(self.members, over, limit_s)

    def staged(self, collective: str, sources: Sequence[Array], **fields: Any) -> list[Array]:
        """Runs one on all ranks, whose contributions come in parts after their posts; returns their results."""
        memory = [np.full_like(source, 77) for source in sources]
        pending: list[deque[tuple[StagedPart, Array, Array]]] = []
        for rank, (source, buffer) in enumerate(zip(sources, memory, strict=True)):
            blocks = schedule.blocks(collective, fields["algorithm"], source.size, len(sources))
            own: Sequence[int] = range(len(blocks))
            if collective in ("allgather", "bcast"):
                own = [rank] if collective == "allgather" else [0] if rank == fields["root"] else []
            number = self.post(rank, buffer, buffer, collective, **fields, staged=True)
            parts = deque[tuple[StagedPart, Array, Array]]()
            step = 64 * (rank + 7)
            for block in own:
                there, data = buffer[blocks[block]], source[blocks[block]]
                for end in (*range(step, data.size, step), data.size) if data.size else ():
                    part = StagedPart(number, block, end * data.itemsize)
                    parts.append((part, data[end - step if end % step == 0 else end // step * step : end], there))
            pending.append(parts)
        while any(pending):
            for member, parts in zip(self.members, pending, strict=True):
                for _ in range(min(member.rank + 1, len(parts))):
                    part, data, there = parts.popleft()
                    end = part.size // data.itemsize
                    there[end - data.size : end] = data
                    assert member.executor is not None
                    member.executor.stage(part)
            self.clock.run_for(self.members, 1e-4)
        self.run()
        assert not [member.failures for member in self.members if member.failures]
        return memory

    def collective(
        self, collective: str, sources: Sequence[Array], *, in_place: bool = False, **fields: Any
    ) -> list[Array]:
        """Runs one on all ranks; returns their results, all blocks of them."""
        sources = [source.copy() for source in sources]
        before = [source.copy() for source in sources]
        results = sources if in_place else [np.full_like(source, 77) for source in sources]
        if collective in ("allgather", "bcast"):
            results = sources
        for rank, (source, result) in enumerate(zip(sources, results, strict=True)):
            self.post(rank, source, result, collective, **fields)
        self.run()
        assert not [member.failures for member in self.members if member.failures]
        if results is not sources:
            assert all(map(np.array_equal, sources, before)), "what a rank contributes changed"
        return list(results)


def raw(array: Array) -> memoryview:
    view: memoryview = array.view(np.uint8).data
    return view
