"""Several messages at a time between this rank and others, in both directions, as one operation.

Ranks make such calls in the same order, so that messages of two ranks with the same tag are matched by their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from softnic.comm import messages
from softnic.comm.arrivals import PendingRecv
from softnic.comm.message_engine import MessageEngine
from softnic.mpi.arguments.message_target import BytesTarget
from softnic.mpi.constants import PROC_NULL
from softnic.mpi.requests.operations import MessageOperation
from softnic.mpi.requests.status import Status, fill_empty

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
        self.source = source
        self._target = BytesTarget(memory)
        self.pending = PendingRecv(source, EXCHANGE_TAGS + tag, self._target.place)

    @property
    def memory(self) -> memoryview | None:
        """Where the message is; None: there is none."""
        return self._target.memory


class NeighborOperation(MessageOperation):
    """Messages being sent and received. `finish` is called when all of them are there."""

    def __init__(
        self,
        engine: MessageEngine,
        call: str,
        sends: Sequence[ExchangeSend],
        receives: Sequence[ExchangeRecv],
        finish: Callable[[], None],
    ) -> None:
        super().__init__(engine, call)
        self._call_finish = finish
        self._receives = [each.pending for each in receives if each.source != PROC_NULL]
        for receive in self._receives:
            engine.matcher.begin_receive(receive)
        self._transfers = []
        for dest, tag, data in sends:
            if dest != PROC_NULL:
                announce = messages.Announce(EXCHANGE_TAGS + tag, data.nbytes, "")
                self._transfers.append((dest, engine.matcher.begin_send(dest, announce, data)))
        self.begin()

    def run(self) -> None:
        """Wait within a call. Raises CommError, also if a message cannot arrive before this rank does more."""
        matcher = self._engine.matcher

        def done() -> bool:
            for receive in self._receives:
                matcher.is_received(receive)
            return self.poll()

        try:
            if not self.settled:
                self._engine.progress.run(done)
        finally:
            for receive in self._receives:
                matcher.give_up(receive)
            self._engine.leave(self)

    def _check(self) -> bool:
        matcher = self._engine.matcher
        received = all([matcher.arrived(receive) for receive in self._receives])
        if not all([matcher.sent(dest, transfer) for dest, transfer in self._transfers]) or not received:
            return False
        for receive in self._receives:
            if receive.misfit is not None:
                raise receive.misfit
        self._call_finish()
        return True

    def fill(self, status: Status) -> None:
        fill_empty(status)
