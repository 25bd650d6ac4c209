"""The calls of MPI for fault tolerance, by the names of ULFM: Revoke, Shrink, Agree, and what is known of failures.

A failure ends a communicator on all its ranks: every call on it raises an error, of the class ERR_PROC_FAILED if a rank
is lost. Then those that are left call Shrink, and go on with the communicator that it returns:

    try:
        comm.Allreduce(MPI.IN_PLACE, gradient)
    except MPI.Exception as error:
        if error.Get_error_class() not in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED):
            raise
        comm = comm.Shrink()

Source: the chapter on process fault tolerance that the MPI Forum discusses (User Level Failure Mitigation), and Bland
et al., "Post-failure recovery of MPI communication capability", IJHPCA 2013. How ranks agree, and which may go on where
some are silent: softnic/comm/survival/agreement.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from softnic.comm import messages
from softnic.comm.bootstrap.launch import NOWHERE
from softnic.comm.error_classes import ERR_PROC_FAILED
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.offload_queue import PostedRequest
from softnic.comm.survival.regroup import Regroup
from softnic.comm.survival.votes import Decision, Vote
from softnic.mpi.groups import GROUP_EMPTY, Group
from softnic.mpi.properties import InterGroups
from softnic.mpi.requests.request import Request
from softnic.mpi.state import CommunicatorState
from softnic.mpi.topology.neighbor_exchange import ExchangeRecv, ExchangeSend, NeighborOperation

_AGREE_TAG = -1
"""A tag that messages to neighbours do not have."""
_INTEGERS = np.iinfo(np.intc)


class Survivors:
    """Calls about failed ranks, and those that go on without them."""

    _state: CommunicatorState

    def Revoke(self) -> None:
        """End the communicator on every rank: all calls on it raise an error of the class ERR_REVOKED, but for Agree
        and Shrink. Where it has ended already, nothing happens. Other ranks need not call this."""
        if not self._state.ended:
            with suppress(CommError):  # it has ended meanwhile
                self._state.revoke()

    def Is_revoked(self) -> bool:
        """Return whether a rank has revoked the communicator, as far as this one has learnt of it."""
        return self._state.revoked

    def Get_failed(self) -> Group:
        """Return the group of the ranks that are known to have failed."""
        state = self._state
        failed, processes = state.failures.update(state.lost_ranks()), state.processes
        if not failed:
            return Group(GROUP_EMPTY)
        return Group.of([processes[rank] for rank in failed], processes[state.launch.rank])

    def Ack_failed(self, num_to_ack: int | None = None) -> int:
        """Acknowledge failed ranks, so that Agree does not report them any more; return how many are acknowledged.

        Parameters
        ----------
        num_to_ack
            Number of ranks of the group of Get_failed, from the first one; None: all.
        """
        failures = self._state.failures
        known = len(failures.update(self._state.lost_ranks()))
        wanted = known if num_to_ack is None else num_to_ack
        failures.acknowledged = max(failures.acknowledged, min(max(wanted, 0), known))
        return failures.acknowledged

    def Agree(self: Any, flag: int) -> int:
        """Return the bits that are set in `flag` on every rank that is left. All of them get the same, or an error.

        It works on a communicator that has ended, too, and takes longer than an all-reduce: each rank connects to each
        other one.

        Raises
        ------
        MPI.Exception
            Of the class ERR_PROC_FAILED on every rank, if a rank has failed that not all have acknowledged; then too
            few ranks are left for any agreement, or they go on without this one.
        """
        number = _checked(flag)
        if self._state.launch.size == 1:
            return number
        with self._state.survivors("Agree") as regroup:
            decision: Decision = self._agreed(regroup, "Agree", number, NOWHERE)
        if unknown := sorted({*decision.failed} - {*decision.acknowledged}):
            names = ", ".join(map(str, unknown))
            text = f"Agree on rank {self._state.launch.rank}: rank {names} has failed, and not all have acknowledged it"
            self._state.handle(error := CommError(text, rank=unknown[0], call="Agree", code=ERR_PROC_FAILED))
            raise error
        return decision.flag

    def Iagree(self: Any, flag: Any) -> Request:
        """Start Agree, and return its Request.

        Parameters
        ----------
        flag
            A buffer with one integer of C, which becomes the result.

        Notes
        -----
        As in ULFM, it has no place in the order of the collectives: ranks may make other calls before it is complete. A
        failure in the meantime is an error on some ranks, perhaps not on all: Agree is for that. Where the
        communicator has ended, this is Agree, and the Request is complete.
        """
        place = np.asarray(memoryview(flag))
        if place.dtype != np.intc or place.size != 1:
            raise ValueError("flag: one integer of C is expected")
        if self._state.ended:
            place[...] = self.Agree(int(place.reshape(-1)[0]))
            return Request(PostedRequest("Iagree"))
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
        """Return a communicator of the ranks that are left, in the same order. All of them call this.

        A rank that is lost meanwhile may still belong to it; the next call on it then fails, and it is to be shrunk
        again. The error handler is inherited; attributes and a topology are not. Where no rank is lost, it has all.

        Raises
        ------
        MPI.Exception
            Of the class ERR_PROC_FAILED: too few ranks are left, or they go on without this one.
            Or one of the two groups of the communicator has no rank left.
        """
        state: CommunicatorState = self._state
        if state.launch.size == 1:
            return self.Dup()
        with state.survivors("Shrink") as regroup, ExitStack() as stack:
            listener = stack.enter_context(state.listening(messages.CHANNELS * state.launch.size))
            host, port = listener.getsockname()
            decision = self._agreed(regroup, "Shrink", -1, (host, port))
            stack.pop_all()  # the listener is the new communicator's
        members, rank = decision.members, state.launch.rank
        launch = replace(
            state.launch,
            rank=members.index(rank),
            addresses=tuple((host, port) for host, port in decision.addresses),
            found=f"Shrink of a communicator of {state.launch.size}",
            epoch=decision.epoch,
        )
        smaller = state.subset(launch, members, listener if len(members) > 1 else None)
        if len(members) == 1:
            listener.close()
        made = self._shrunk(smaller, members)
        with suppress(CommError):  # a rank was lost again: the next call on it raises this
            made.Init()
        return made

    def _shrunk(self: Any, smaller: CommunicatorState, members: Sequence[int]) -> Any:
        """Return the communicator of these ranks of this one, of as many groups. Raises CommError."""
        groups = self._state.properties.inter
        if groups is None:
            return self.subset_class(smaller)
        local, remote = (
            [rank for rank in members if first <= rank < first + size]
            for first, size in (
                (groups.first_local, groups.local_size),
                (groups.first_remote, groups.remote_size),
            )
        )
        if not local or not remote:
            smaller.leave("a group is empty")
            raise CommError("Shrink: no rank of one of the two groups is left", call="Shrink", code=ERR_PROC_FAILED)
        is_first = groups.first_local == 0
        smaller.properties.inter = InterGroups(
            0 if is_first else len(remote), len(local), len(local) if is_first else 0, len(remote)
        )
        smaller.properties.named = self.inter_class
        return self.inter_class._named(smaller)

    def Ishrink(self: Any) -> tuple[Any, Request]:
        """Return what Shrink does, and a Request, which is complete."""
        return self.Shrink(), Request(PostedRequest("Ishrink"))

    def _agreed(self, regroup: Regroup, call: str, flag: int, address: tuple[str, int]) -> Decision:
        """Return what those that are left have agreed on, and note who has failed."""
        failures = self._state.failures
        suspects = failures.update(self._state.lost_ranks())
        decision = regroup.agree(Vote(call, flag, suspects[: failures.acknowledged], address), suspects)
        failures.update(decision.failed)
        return decision


def _checked(flag: int) -> int:
    """Return an integer of C. Raises ArgumentError."""
    if not _INTEGERS.min <= int(flag) <= _INTEGERS.max:
        raise ArgumentError(f"flag is {flag}: an integer of C is expected")
    return int(flag)
