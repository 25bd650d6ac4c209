"""The steps of one stream to another rank: sends and receives, each strictly in order."""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np
import numpy.typing as npt

from softnic.collectives.steps import RecvStep, SendStep
from softnic.collectives.stream import PeerStream

_PLACEMENT_LOOKAHEAD = 16
"""Receives that are searched for the place of arriving bytes."""


class PeerQueue:
    """The steps over one stream to rank `rank`.

    Received bytes belong to the first of `incoming`, once the header that this rank sent for its operation matched:
    `matched` is the number of the last such operation.
    """

    __slots__ = ("incoming", "matched", "outgoing", "rank", "stream")

    def __init__(self, rank: int, stream: PeerStream) -> None:
        self.rank = rank
        self.stream = stream
        self.outgoing: deque[SendStep] = deque()
        self.incoming: deque[RecvStep] = deque()
        self.matched = 0
        stream.set_placement(self._place)

    def receive(self) -> bool:
        """Move received bytes to where they belong; return whether any moved."""
        incoming, stream = self.incoming, self.stream
        unread = stream.unread
        while incoming and incoming[0].op.number <= self.matched and incoming[0].advance(stream):
            incoming.popleft().op.on_step_done()
        return stream.unread < unread

    def send(self) -> None:
        """Hand the stream what may be sent."""
        outgoing, stream = self.outgoing, self.stream
        while outgoing and outgoing[0].advance(stream):
            op = outgoing.popleft().op
            op.zerocopy_marks[stream] = stream.zerocopy_bytes
            op.on_step_done()

    @property
    def is_unfinished(self) -> bool:
        """Whether the steps need a stream that still takes or brings bytes."""
        stream = self.stream
        if self.outgoing or stream.zerocopy_pending:
            return True
        return sum(step.missing for step in self.incoming) > stream.unread

    def drop(self, now: float) -> None:
        """Forget all steps and reset the stream."""
        self.incoming.clear()
        self.outgoing.clear()
        self.stream.set_placement(None)
        self.stream.abort(now)
        self.stream.consume(self.stream.unread)

    def _place(self, start: int, size: int) -> npt.NDArray[np.uint8] | None:
        """Return the memory for bytes that are about to be decoded. Bytes that are combined, and those of an operation
        whose header has not matched, have none."""
        for step in islice(self.incoming, _PLACEMENT_LOOKAHEAD):
            left = step.block.size - step.received
            if start < left:
                return step.place(start, size) if start >= 0 and step.op.number <= self.matched else None
            start -= left + step.pad_left
        return None
