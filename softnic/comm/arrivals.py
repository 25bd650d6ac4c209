"""Messages announced to this rank, and the receives that wait for them."""

from __future__ import annotations

from collections.abc import Callable

from softnic.comm import messages
from softnic.comm.errors import ArgumentError
from softnic.comm.zerocopy_channel import RecvOp

ANY = -1
"""Any source, any tag."""
OWN_TAGS = 1 << 31
"""First of the tags for internal messages, which ANY does not match."""


class SourceNumbers:
    """How the program numbers the sources of messages."""

    first_source = 0
    """Rank that the program calls 0: the first of the other group, where there are two."""


class Arrival:
    """A message announced to this rank."""

    __slots__ = ("announce", "held", "inline", "numbers", "order", "source", "transfer")

    def __init__(
        self, source: int, announce: messages.Announce, transfer: RecvOp, order: int, numbers: SourceNumbers
    ) -> None:
        self.source = source
        self.announce = announce
        self.transfer = transfer
        self.order = order
        """Order of arrival over all sources."""
        self.numbers = numbers
        self.held: memoryview | None = None
        """Memory in which it is held until it is received."""
        self.inline = False
        """It used its sender's credit."""

    @property
    def sender(self) -> int:
        """The source as the program numbers it."""
        return self.source - self.numbers.first_source


class PendingRecv:
    """A receive in progress. `place` returns the memory for a message, or raises ArgumentError if it does not fit."""

    __slots__ = ("done", "message", "misfit", "place", "source", "tag")

    def __init__(self, source: int, tag: int, place: Callable[[Arrival], memoryview]) -> None:
        self.source = source
        self.tag = tag
        self.place = place
        self.message: Arrival | None = None
        self.misfit: ArgumentError | None = None
        """Why the message does not fit; it is received, and dropped."""
        self.done = False
        """The message is in its place."""

    def memory(self, message: Arrival) -> memoryview:
        """Return the memory for a message, memory of its own if it does not fit."""
        if self.misfit is None:
            try:
                return self.place(message)
            except ArgumentError as error:
                self.misfit = error
        return memoryview(bytearray(message.announce.size))

    def matches(self, source: int, announce: messages.Announce) -> bool:
        return (
            self.message is None
            and self.source in (ANY, source)
            and (self.tag == announce.tag or (self.tag == ANY and announce.tag < OWN_TAGS))
        )
