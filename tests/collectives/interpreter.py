"""Schedules run in memory, chunk by chunk, in any order that the rules of softnic/collectives/schedule allow.

What a chunk holds is how it came about: the ranks whose contributions were combined, in brackets where rounded. Memory
is shared as in a call in place: a message is read when its receiver takes it, not before, and no executor may keep more
than `room` chunks of a connection on their way.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from softnic.collectives.schedule import RecvBlock, Schedule, SendBlock

CHUNKS = 3
"""Of a block."""


@dataclass(eq=False)
class Sending:
    """One rank's side of a message. `behind`: the receive that it passes on."""

    peer: int
    block: int
    behind: Receiving | None
    lent: int = 0
    """Chunks that the connection has been given."""


@dataclass(eq=False)
class Receiving:
    """The other side. `behind`: the receive of the same block whose result this one is combined with."""

    peer: int
    block: int
    combine: bool
    last: bool
    behind: Receiving | None
    done: int = 0


@dataclass(eq=False)
class Rank:
    memory: dict[int, list[str]]
    """By block, what each chunk holds."""
    sending: dict[int, deque[Sending]] = field(default_factory=lambda: defaultdict(deque))
    """By peer."""
    receiving: dict[int, deque[Receiving]] = field(default_factory=lambda: defaultdict(deque))

    def load(self, schedule: Schedule) -> None:
        latest: dict[int, Receiving] = {}
        for step in schedule:
            before = latest.get(step.block)
            if isinstance(step, SendBlock):
                self.sending[step.peer].append(Sending(step.peer, step.block, before))
            else:
                behind = before if step.combine else None
                receiving = Receiving(step.peer, step.block, step.combine, step.last, behind)
                self.receiving[step.peer].append(receiving)
                latest[step.block] = receiving


class Interpreter:
    """All ranks and the connections between them. With `rounded`, messages and whole sums are rounded."""

    def __init__(self, schedules: Sequence[Schedule], blocks: int, *, room: int = 1, rounded: bool = False) -> None:
        self.ranks = [Rank({block: [f"{rank}"] * CHUNKS for block in range(blocks)}) for rank in range(len(schedules))]
        for rank, schedule in zip(self.ranks, schedules, strict=True):
            rank.load(schedule)
        self._room = room
        self._rounded = rounded
        self._wires: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)
        """From and to: blocks and chunks."""

    def run(self, random: Random) -> None:
        """To the end: in every round all connections get their turn, in another order, and some miss it."""
        ends = [(source, to) for source, rank in enumerate(self.ranks) for to in rank.sending]
        ends += [(source, to) for to, rank in enumerate(self.ranks) for source in rank.receiving]
        wires = list(dict.fromkeys(ends))
        chance, moved = 0.5, True
        while moved or chance < 1.0:
            chance = 0.5 if moved else 1.0
            moved = False
            random.shuffle(wires)
            for source, to in wires:
                if random.random() < chance:
                    moved |= self._lend(source, to)
                if random.random() < chance:
                    moved |= self._take(source, to)
        stuck = [f"{number}" for number, rank in enumerate(self.ranks) if any(rank.receiving.values())]
        unsent = [f"{number}" for number, rank in enumerate(self.ranks) if any(rank.sending.values())]
        assert not stuck, f"ranks wait for ever: {stuck}"
        assert not unsent, f"ranks cannot send: {unsent}"
        assert not any(self._wires.values()), "something was sent that nobody receives"

    def _lend(self, source: int, to: int) -> bool:
        """Gives a connection one more chunk, if that is ready and there is room."""
        queue = self.ranks[source].sending[to]
        if not queue or len(self._wires[source, to]) >= self._room:
            return False
        sending = queue[0]
        if sending.behind is not None and sending.behind.done <= sending.lent:
            return False
        self._wires[source, to].append((sending.block, sending.lent))
        sending.lent += 1
        if sending.lent == CHUNKS:
            queue.popleft()
        return True

    def _take(self, source: int, to: int) -> bool:
        """Receives one more chunk, if there is one and the receive that it is behind has gone so far."""
        queue = self.ranks[to].receiving[source]
        if not queue or not self._wires[source, to]:
            return False
        receiving = queue[0]
        if receiving.behind is not None and receiving.behind.done <= receiving.done:
            return False
        block, chunk = self._wires[source, to].popleft()
        assert (block, chunk) == (receiving.block, receiving.done), "another message than the one that was expected"
        come, own = self.ranks[source].memory[block][chunk], self.ranks[to].memory[block]
        if self._rounded:
            come = rounded(come)
        own[chunk] = f"({come}+{own[chunk]})" if receiving.combine else come
        if receiving.last:
            assert ranks_in(own[chunk]) == [*range(len(self.ranks))], "the last one is not the last one"
            if self._rounded:
                own[chunk] = rounded(own[chunk])
        receiving.done += 1
        if receiving.done == CHUNKS:
            queue.popleft()
        return True


def rounded(content: str) -> str:
    """Rounding what is rounded changes nothing."""
    return content if content.startswith("[") else f"[{content}]"


def ranks_in(content: str) -> list[int]:
    """The ranks whose contributions a chunk holds."""
    return sorted(int(word) for word in content.translate(str.maketrans("()[]+", "     ")).split())


def roundings(content: str) -> int:
    """How often the contribution that was rounded most has been."""
    depth = deepest = 0
    for letter in content:
        depth += (letter == "[") - (letter == "]")
        deepest = max(deepest, depth)
    return deepest


def common_order(schedules: Sequence[Schedule]) -> bool:
    """Whether all messages have an order that each rank's steps follow wherever one message has to wait for another:
    on the same connection, in the same block. Then no executor gets stuck."""
    waits: dict[tuple[int, int, int], set[tuple[int, int, int]]] = defaultdict(set)
    for rank, schedule in enumerate(schedules):
        counts: dict[tuple[int, int], int] = defaultdict(int)
        in_block: dict[int, tuple[int, int, int]] = {}
        for step in schedule:
            wire = (rank, step.peer) if isinstance(step, SendBlock) else (step.peer, rank)
            message = (*wire, counts[wire])
            counts[wire] += 1
            waits[message].update([(*wire, message[2] - 1)] if message[2] else [])
            if step.block in in_block:
                waits[message].add(in_block[step.block])
            if isinstance(step, RecvBlock):
                in_block[step.block] = message
    done: set[tuple[int, int, int]] = set()
    while ready := [message for message, before in waits.items() if before <= done]:
        done.update(ready)
        for message in ready:
            del waits[message]
    return not waits
