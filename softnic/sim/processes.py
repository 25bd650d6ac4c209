"""Processes of a virtual-time cluster: programs that compute for a given time, exchange bytes, and wait.

A program is a generator. It yields a `Condition` and is resumed when that holds; no time passes between two yields.
What it exchanges are real bytes through its node's TCP and NIC.
"""

from __future__ import annotations

import math
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
        """Return when it will hold, or None if that depends on more than time."""


Program = Generator[Condition, None, None]


@dataclass(frozen=True, slots=True)
class Until:
    """Condition: a time has come."""

    time: float

    def holds(self, now: float) -> bool:
        return now >= self.time

    def next_time(self) -> float | None:
        return self.time


@dataclass(slots=True)
class Received:
    """Condition: the next bytes of a stream fill `memory`. `count` of them have arrived."""

    memory: memoryview
    count: int = 0

    def holds(self, now: float) -> bool:  # noqa: ARG002
        return self.count == len(self.memory)

    def next_time(self) -> float | None:
        return None


class ByteStream:
    """A program's side of a connection: queued sends, and receives into memory, each in order. Before the connection is
    made (`attach`), they wait."""

    def __init__(self, connection: Connection | None = None) -> None:
        self.connection: Connection | None = None
        self._sends: deque[tuple[Tag, memoryview]] = deque()
        self._receives: deque[Received] = deque()
        if connection is not None:
            self.attach(connection)

    def attach(self, connection: Connection) -> None:
        """Use this connection from now on."""
        self.connection = connection
        connection.set_nodelay(True)
        connection.set_blocks(True)
        self.write()
        self.read()

    def send(self, tag: Tag, data: memoryview) -> None:
        """Queue bytes. They must not change before the peer has answered a message that depends on all of them."""
        self._sends.append((tag, data))
        self.write()

    def receive(self, memory: memoryview) -> Received:
        """Queue memory to be filled."""
        receive = Received(memory)
        self._receives.append(receive)
        self.read()
        return receive

    def write(self) -> None:
        """Write what the send buffer has space for."""
        connection = self.connection
        while self._sends and connection is not None:
            tag, data = self._sends[0]
            connection.tag(tag)
            sent = connection.send(data)
            if sent < len(data):
                self._sends[0] = (tag, data[sent:])
                return
            self._sends.popleft()

    def read(self) -> None:
        """Copy what has arrived to the queued memory."""
        connection, consumed = self.connection, 0
        if connection is None:
            return
        for view in list(connection.received):
            start = 0
            while self._receives and start < len(view):
                receive = self._receives[0]
                count = min(len(view) - start, len(receive.memory) - receive.count)
                receive.memory[receive.count : receive.count + count] = view[start : start + count]
                receive.count += count
                start += count
                if receive.count == len(receive.memory):
                    self._receives.popleft()
            consumed += start
            if not self._receives:
                break
        if consumed:
            connection.consume(consumed)


class SimProcess:
    """Runs one program after the other."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._awaited: Condition | None = None

    def start(self, program: Program) -> None:
        """Start a program. Raises RuntimeError while another one runs."""
        if self._program is not None:
            raise RuntimeError("a process runs one program at a time")
        self._program, self._awaited = program, None

    @property
    def running(self) -> bool:
        return self._program is not None

    def advance(self, now: float) -> None:
        """Resume the program as long as the condition that it waits for holds."""
        while self._program is not None and (self._awaited is None or self._awaited.holds(now)):
            try:
                self._awaited = next(self._program)
            except StopIteration:
                self._program = self._awaited = None

    def next_time(self) -> float:
        """Return when the awaited condition will hold; infinity if that depends on more than time."""
        time = None if self._awaited is None else self._awaited.next_time()
        return math.inf if time is None else time


def as_bytes(array: Floats) -> memoryview:
    """Return the bytes of an array without copying."""
    view: memoryview = array.view(np.uint8).data
    return view
