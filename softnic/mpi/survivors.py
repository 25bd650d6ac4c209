"""The calls of MPI for fault tolerance. Here a lost rank ends its communicators, so there is never a failed rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic.mpi.groups import GROUP_EMPTY, Group
from softnic.mpi.operators import OPS
from softnic.mpi.requests.request import Request
from softnic.mpi.topology.neighbor_exchange import ExchangeRecv, ExchangeSend, NeighborOperation

_AGREE_TAG = -1
"""A tag that messages to neighbours do not have."""


class Survivors:
    """Calls about failed ranks. A communicator that works has none, so Agree and Shrink include all ranks."""

    def Is_revoked(self) -> bool:
        """Return False: no communicator can be revoked."""
        return False

    def Get_failed(self) -> Group:
        """Return an empty group."""
        return Group(GROUP_EMPTY)

    def Ack_failed(self, num_to_ack: int | None = None) -> int:
        """Return 0, the number of failed ranks, whatever `num_to_ack`."""
        del num_to_ack
        return 0

    def Agree(self: Any, flag: int) -> int:
        """Return the bits that are set in `flag` on every rank."""
        agreed: int = self.allreduce(flag, OPS["BAND"])
        return agreed

    def Iagree(self: Any, flag: Any) -> Request:
        """Start Agree, and return its Request.

        Parameters
        ----------
        flag
            A buffer with one integer of C, which becomes the result.

        Notes
        -----
        As in ULFM, it has no place in the order of the collectives: ranks may make other calls before it is complete.
        """
        place = np.asarray(memoryview(flag))
        if place.dtype != np.intc or place.size != 1:
            raise ValueError("flag: one integer of C is expected")
        with self._state.call("Iagree") as connections:
            given, others = memoryview(place.tobytes()), list(connections.progress.peers)
            receives = [ExchangeRecv(rank, _AGREE_TAG) for rank in others]

            def finish() -> None:
                for each in receives:
                    assert each.memory is not None
                    np.bitwise_and(place, np.frombuffer(each.memory, np.intc), out=place)

            sends = [ExchangeSend(rank, _AGREE_TAG, given) for rank in others]
            return Request(NeighborOperation(connections.engine, "Iagree", sends, receives, finish))

    def Shrink(self: Any) -> Any:
        """Return a duplicate: no rank is lost."""
        return self.Dup()

    def Ishrink(self: Any) -> tuple[Any, Request]:
        """Start Shrink, and return the new communicator and its Request."""
        made = self.Dup()
        return made, made.Ibarrier()
