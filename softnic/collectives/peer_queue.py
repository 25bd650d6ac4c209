"""One DATA connection: what is sent on it and what comes from it, each strictly in order."""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np
import numpy.typing as npt

from softnic.collectives.steps import Incoming, Outgoing
from softnic.tcp.connection import Connection
from softnic.tcp.direct_placement import PlacementCursor

_LOOKED_AT = 16
"""Blocks ahead that a place is looked for in."""


class Lane:
    """The connection to rank `rank`. What comes belongs to the front of `incoming`, once that rank's Head for its
    request was found right: those up to request `met` are."""

    __slots__ = ("_claims", "connection", "incoming", "loaned", "met", "outgoing", "rank")

    def __init__(self, rank: int, connection: Connection) -> None:
        self.rank = rank
        self.connection = connection
        self.outgoing: deque[Outgoing] = deque()
        self.incoming: deque[Incoming] = deque()
        self.met = 0
        self.loaned = 0
        """Bytes lent to TCP so far."""
        self._claims = PlacementCursor(connection)

    def take(self) -> bool:
        """Moves what has come to where it belongs. Returns whether anything moved."""
        incoming, connection = self.incoming, self.connection
        unread = connection.rcv.unread
        while incoming and incoming[0].request.number <= self.met and incoming[0].take(connection):
            incoming.popleft().request.moved()
        return connection.rcv.unread < unread

    def give(self) -> None:
        """Hands TCP what may be sent."""
        outgoing = self.outgoing
        while outgoing and outgoing[0].give(self):
            request = outgoing.popleft().request
            request.marks[self] = self.loaned
            request.moved()

    @property
    def lacks(self) -> bool:
        """Whether it needs a connection that takes and brings more."""
        if self.outgoing or self.connection.snd.buffer.zerocopy.outstanding:
            return True
        return sum(move.block.size - move.received + move.pad for move in self.incoming) > self.connection.rcv.unread

    def returned(self, loaned: int) -> bool:
        """Whether of all bytes lent so far the first `loaned` are the lender's again."""
        return self.connection.snd.buffer.zerocopy.completed_bytes >= loaned

    def take_back(self, loaned: int) -> None:
        """Makes it so, by copying what TCP still needs."""
        lent = self.connection.snd.buffer.zerocopy
        if lent.completed_bytes < loaned:
            lent.copy_out(loaned - lent.completed_bytes)

    def claim(self, sequence: int, size: int) -> npt.NDArray[np.uint8] | None:
        """The place of bytes that are about to be decoded (`softnic.nic.nic.Place`). Those that are combined, or whose
        rank has not told its Head yet, have none."""
        start = self._claims.offset(sequence, size) if self.incoming else None
        if start is None:
            return None
        for move in islice(self.incoming, _LOOKED_AT):
            left = move.block.size - move.received
            if start < left:
                return move.place(start, size) if start >= 0 and move.request.number <= self.met else None
            start -= left + move.pad
        return None
