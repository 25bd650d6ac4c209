"""Several messages at a time between this rank and others, in both directions, as part of one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softnic.comm import messages
from softnic.comm.connections import CommConnections
from softnic.comm.constants import ERR_TRUNCATE, PROC_NULL
from softnic.comm.errors import ArgumentError
from softnic.comm.matching import Arrival, PendingRecv

EXCHANGE_TAGS = 1 << 40
"""First of the tags for these messages, which no other call has."""


class ExchangeSend(NamedTuple):
    """A message to a rank. PROC_NULL: to nobody."""

    dest: int
    tag: int
    data: memoryview


class ExchangeRecv:
    """A message from a rank: into `memory`, or into memory of its own if that is None. PROC_NULL: from nobody."""

    def __init__(self, source: int, tag: int, memory: memoryview | None = None) -> None:
        self.memory = memory
        self.source = source
        self.pending = PendingRecv(source, EXCHANGE_TAGS + tag, self._place)

    def _place(self, message: Arrival) -> memoryview:
        size = message.announce.size
        if self.memory is None:
            self.memory = memoryview(bytearray(size))
        if size > self.memory.nbytes:
            text = f"rank {message.source} sent {size} bytes: the receive buffer takes {self.memory.nbytes}"
            raise ArgumentError(text, rank=message.source, code=ERR_TRUNCATE)
        return self.memory[:size]


def exchange(connections: CommConnections, sends: Sequence[ExchangeSend], receives: Sequence[ExchangeRecv]) -> None:
    """Send and receive all these messages. Raises CommError, ArgumentError if one does not fit."""
    matcher = connections.matcher
    wanted = [each for each in receives if each.source != PROC_NULL]
    for each in wanted:
        matcher.begin_receive(each.pending)
    sent = []
    for dest, tag, data in sends:
        if dest != PROC_NULL:
            announce = messages.Announce(EXCHANGE_TAGS + tag, data.nbytes, "")
            sent.append((dest, matcher.begin_send(dest, announce, data)))

    def done() -> bool:
        received = all([matcher.is_received(each.pending) for each in wanted])
        return all([matcher.sent(dest, transfer) for dest, transfer in sent]) and received

    try:
        connections.progress.run(done)
    finally:
        for each in wanted:
            matcher.give_up(each.pending)
    for each in wanted:
        if each.pending.misfit is not None:
            raise each.pending.misfit
