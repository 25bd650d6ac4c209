"""Processes of a virtual-time cluster: programs that compute for a given time, exchange bytes, and wait.

A program is a generator. It yields what it waits for, a `Condition`, and is resumed when that holds; in between no time
passes. What it exchanges are real bytes through its node's TCP and NIC.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from softnic.packet.segment import Tag
from softnic.tcp.connection import Connection

Floats = npt.NDArray[np.float32]


class Condition(Protocol):
    """What a program waits for."""

    def holds(self, now: float) -> bool: ...

    def next_time(self) -> float | None:
        """When it will hold, if time alone decides; None: when something happens."""


Program = Generator[Condition, None, None]


@dataclass(frozen=True, slots=True)
class Until:
    """A time."""

    time: float

    def holds(self, now: float) -> bool:
        return now >= self.time

    def next_time(self) -> float | None:
        return self.time


@dataclass(slots=True)
class Received:
    """So many bytes of a channel, into memory of the program's."""

    memory: memoryview
    count: int = 0

    def holds(self, now: float) -> bool:  # noqa: ARG002
        return self.count == len(self.memory)

    def next_time(self) -> float | None:
        return None


class Channel:
    """A connection as a program uses it: messages are queued to be sent, and received into memory, in order."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        connection.nodelay = True
        connection.set_blocks(True)
        self._outgoing: deque[tuple[Tag, memoryview]] = deque()
        self._incoming: deque[Received] = deque()

    def send(self, tag: Tag, data: memoryview) -> None:
        """`data` must not change before it has left: until the peer has answered what needed all of it, say."""
        self._outgoing.append((tag, data))
        self.write()

    def receive(self, memory: memoryview) -> Received:
        wanted = Received(memory)
        self._incoming.append(wanted)
        self.read()
        return wanted

    def write(self) -> None:
        """Moves what the connection takes; the rest when it says that it takes more."""
        while self._outgoing:
            tag, data = self._outgoing[0]
            self.connection.tag(tag)
            sent = self.connection.send(data)
            if sent < len(data):
                self._outgoing[0] = (tag, data[sent:])
                return
            self._outgoing.popleft()

    def read(self) -> None:
        """Moves what has arrived to where it is wanted."""
        taken = 0
        for view in list(self.connection.received):
            start = 0
            while self._incoming and start < len(view):
                wanted = self._incoming[0]
                count = min(len(view) - start, len(wanted.memory) - wanted.count)
                wanted.memory[wanted.count : wanted.count + count] = view[start : start + count]
                wanted.count += count
                start += count
                if wanted.count == len(wanted.memory):
                    self._incoming.popleft()
            taken += start
            if not self._incoming:
                break
        if taken:
            self.connection.consume(taken)


class Process:
    """Runs one program after the other."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._waits: Condition | None = None

    def start(self, program: Program) -> None:
        """Raises RuntimeError while another one runs."""
        if self._program is not None:
            raise RuntimeError("a process runs one program at a time")
        self._program, self._waits = program, None

    @property
    def running(self) -> bool:
        return self._program is not None

    def advance(self, now: float) -> None:
        """Resumes the program for as long as what it waits for holds."""
        while self._program is not None and (self._waits is None or self._waits.holds(now)):
            try:
                self._waits = next(self._program)
            except StopIteration:
                self._program = self._waits = None

    def next_time(self) -> float | None:
        if self._program is None:
            return None
        return None if self._waits is None else self._waits.next_time()


def raw(array: Floats) -> memoryview:
    """The bytes of an array."""
    view: memoryview = array.view(np.uint8).data
    return view
