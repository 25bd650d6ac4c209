"""What the application's own code raises in a call is raised there, as it is, and the communicator goes on."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from softnic import MPI
from softnic.comm.errors import CommError
from softnic.comm.transport import NicConnection
from softnic.mpi.collectives.parts import CollectiveArgs
from softnic.mpi.communicator import Communicator
from tests.comm.engine_nics import EngineNics
from tests.mpi.ranks import failures, run

RAISED: dict[str, Callable[[], Exception]] = {
    "FileNotFoundError": lambda: FileNotFoundError(2, "no such file"),
    "ConnectionResetError": lambda: ConnectionResetError(104, "of the application's own socket"),
    "ValueError": lambda: ValueError("of the application"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text"),
    "UnsupportedOperation": lambda: io.UnsupportedOperation("fileno"),
    "ZeroDivisionError": lambda: ZeroDivisionError("division by zero"),
}


def failing(kind: str) -> Any:
    raise RAISED[kind]()


class Unpicklable:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        failing(self.kind)


class Unloadable(Unpicklable):
    def __reduce__(self) -> Any:
        return failing, (self.kind,)


class Exporting:
    """A buffer whose export fails."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __dlpack_device__(self) -> Any:
        failing(self.kind)

    __dlpack__ = __dlpack_device__


def with_operator(kind: str, call: Callable[[MPI.Op], Any]) -> Any:
    op = MPI.Op.Create(lambda *_: failing(kind))
    try:
        return call(op)
    finally:
        op.Free()


Attempt = Callable[[Communicator, str], Any]
ONES, ROOM = np.ones(3), np.zeros(3)
ON_EVERY_RANK: dict[str, Attempt] = {
    "unpickling what was broadcast": lambda c, k: c.bcast(Unloadable(k)),
    "unpickling what was gathered": lambda c, k: c.allgather(Unloadable(k)),
    "unpickling what was exchanged": lambda c, k: c.alltoall([Unloadable(k)] * c.size),
    "unpickling what was scattered": lambda c, k: c.scatter([Unloadable(k)] * c.size),
    "unpickling a long object": lambda c, k: c.allgather((bytes(5000), Unloadable(k))),
    "an operator of objects": lambda c, k: c.allreduce(c.rank, lambda *_: failing(k)),
    "an operator of a scan": lambda c, k: (c.scan(c.rank, lambda *_: failing(k)), failing(k)),
    "an operator of buffers": lambda c, k: with_operator(k, lambda op: c.Allreduce(ONES, ROOM.copy(), op)),
    "a nonblocking one": lambda c, k: with_operator(k, lambda op: c.Iallreduce(ONES, ROOM.copy(), op).Wait()),
    "one of several": lambda c, k: with_operator(
        k, lambda op: MPI.Request.Waitall([c.Iallreduce(ONES, ROOM.copy(), op), c.Ibarrier()])
    ),
    "of a scattered reduction": lambda c, k: with_operator(
        k, lambda op: c.Reduce_scatter_block(np.ones(3 * c.size), ROOM.copy(), op)
    ),
    "pickling to send": lambda c, k: c.send(Unpicklable(k), 1 - c.rank),
    "pickling to send later": lambda c, k: c.isend(Unpicklable(k), 1 - c.rank),
    "pickling to gather": lambda c, k: c.gather(Unpicklable(k)),
    "a message": lambda c, k: c.sendrecv(Unloadable(k), 1 - c.rank),
    "a message received later": lambda c, k: (c.isend(Unloadable(k), 1 - c.rank), c.irecv().wait()),
    "a buffer to send": lambda c, k: c.Send(Exporting(k), 1 - c.rank),
    "a buffer to receive into": lambda c, k: c.Irecv(Exporting(k), 1 - c.rank),
    "a buffer of a collective": lambda c, k: c.Allreduce(Exporting(k), ROOM.copy()),
}  # fmt: skip


@pytest.mark.parametrize("what", ON_EVERY_RANK)
def test_it_is_raised_as_it_is_and_the_communicator_goes_on(what: str) -> None:

    def program(comm: Communicator) -> list[tuple[str, Any, str, int]]:
        found = []
        for kind in RAISED:
            with pytest.raises(Exception) as caught:  # noqa: PT011
                ON_EVERY_RANK[what](comm, kind)
            error = caught.value
            found.append((kind, type(error), str(error), comm.allreduce(comm.rank)))
        return found

    expected = [(kind, type(RAISED[kind]()), str(RAISED[kind]()), 1) for kind in RAISED]
    assert run(2, program) == [expected, expected]


def test_a_request_whose_result_raises_is_complete() -> None:
    """Others that were waited for together with it are complete, too, and have their values."""

    def program(comm: Communicator) -> Any:
        if comm.rank == 0:
            comm.send(Unloadable("ValueError"), 1, 1)
            comm.send("the other", 1, 2)
            return comm.allreduce(1)
        requests = [comm.irecv(source=0, tag=1), comm.irecv(source=0, tag=2)]
        statuses: list[MPI.Status] = []
        with pytest.raises(ValueError, match="of the application"):
            MPI.Request.waitall(requests, statuses)
        assert requests == [MPI.REQUEST_NULL] * 2
        assert [status.error for status in statuses] == [MPI.ERR_OTHER, MPI.SUCCESS]
        return comm.allreduce(1)

    assert run(2, program) == [2, 2]


def test_an_error_of_this_rank_as_it_delivers_a_result_is_its_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of all ranks were right, and so the others have their results."""
    write_back = CollectiveArgs.write_back
    refused = threading.local()

    def written(args: CollectiveArgs) -> None:
        if getattr(refused, "here", False):
            raise ValueError("84 bytes are assigned to 21")
        write_back(args)

    monkeypatch.setattr(CollectiveArgs, "write_back", written)

    def program(comm: Communicator) -> Any:
        result = np.zeros(7)
        refused.here = comm.rank == 1
        if comm.rank == 1:
            with pytest.raises(ValueError, match="84 bytes are assigned to 21"):
                comm.Allreduce(np.ones(7), result)
            refused.here = False
        else:
            comm.Allreduce(np.ones(7), result)
        return comm.rank == 1 or result[0], comm.allreduce(1)

    assert run(3, program) == [(3, 3), (True, 3), (3, 3)]


class WithoutMemory(EngineNics):
    """NICs of which one registers no memory once `refuses` is set."""

    refuses = False

    def join(
        self, place: tuple[int, int], channels: Any, _process: object = None, _lanes: object = ()
    ) -> NicConnection:
        nic = super().join(place, channels)

        def number(region: Any) -> int:
            if self.refuses and place[0] == 0:
                raise OSError(12, "Cannot allocate memory")
            return nic.number(region)

        return replace(nic, number=number)


def test_what_the_transport_raises_ends_the_communicator() -> None:
    nics = WithoutMemory()

    def program(comm: Communicator) -> None:
        comm.Barrier()
        nics.refuses = True
        comm.Allreduce(np.ones(3), np.zeros(3))

    for error in failures(2, program, nics):
        assert isinstance(error, CommError)
        assert "[Errno 12] Cannot allocate memory" in str(error)
        assert error.rank == 0
