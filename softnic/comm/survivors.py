"""The calls of MPI that go on after a rank is lost, for communicators that never do: all their ranks are there."""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic.comm.buffers import IN_PLACE
from softnic.comm.groups import GROUP_EMPTY, Group
from softnic.comm.operators import OPS
from softnic.comm.request import Request


class Survivors:
    """A lost rank ends its communicators on all others. Until then none has failed, and Agree and Shrink lose none."""

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
        """
        place = np.asarray(memoryview(flag))
        if place.dtype != np.intc or place.size != 1:
            raise ValueError("flag: one integer of C is expected")
        request: Request = self.Iallreduce(IN_PLACE, place, OPS["BAND"])
        return request

    def Shrink(self: Any) -> Any:
        """Return a duplicate: no rank is lost."""
        return self.Dup()

    def Ishrink(self: Any) -> tuple[Any, Request]:
        """Start Shrink, and return the new communicator and its Request."""
        made = self.Dup()
        return made, made.Ibarrier()
