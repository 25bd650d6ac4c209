"""A Request: what an I... call returns, by mpi4py's names, and awaitable.

The NIC works on the collective whether or not anybody asks. Its result is in the receive buffer when the Request was
waited for, or found complete by a test; until then the buffers of the call belong to it. The Request is
`MPI.REQUEST_NULL` from then on. If the collective failed, each of these raises CommError, every time.

A Request that nobody keeps goes on to its end, and its buffers are let go then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Literal

from softnic.comm.offload_queue import Operation
from softnic.comm.p2p import ANY_SOURCE, ANY_TAG, UNDEFINED, Status
from softnic.comm.public_names import PublicNames
from softnic.comm.waiting import wait


class Request(PublicNames):
    """A collective in progress, or REQUEST_NULL."""

    def __init__(self, operation: Operation | None = None) -> None:
        self._operation = operation

    def Wait(self, status: Status | None = None) -> Literal[True]:
        """Returns when the result is there. An interrupt (KeyboardInterrupt) leaves the Request as it was: it can be
        waited for again."""
        operation = self._operation
        if operation is not None and not operation.settled and operation.group is not None:
            wait([operation.group], lambda: operation.settled)
        self._finish(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Whether the result is there."""
        if not self.Get_status():
            return False
        self._finish(status)
        return True

    def Get_status(self, status: Status | None = None) -> bool:
        """Whether Test would say yes; the Request stays what it is."""
        _fill(status)
        operation = self._operation
        if operation is not None and not operation.settled and operation.group is not None:
            operation.group.advance()
        return operation is None or operation.settled

    def wait(self, status: Status | None = None) -> None:
        """Wait; what it returns is the object that was received, so nothing."""
        self.Wait(status)

    def test(self, status: Status | None = None) -> tuple[bool, None]:
        """Test, and the object that was received: none."""
        return self.Test(status), None

    def Cancel(self) -> None:
        """Gives the collective up. No rank can go on without this one: where it is not complete, the communicator ends,
        and every rank has an error that says who cancelled what. This rank has it, too, when it waits. A Request that
        is complete stays so."""
        if self._operation is not None and self._operation.group is not None:
            self._operation.group.cancel(self._operation)

    def Free(self) -> None:
        """Forgets the Request, which goes on to its end: its buffers must not be touched before that, so wait for it
        unless the program ends."""
        self._operation = None

    cancel = Cancel
    free = Free

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for asyncio. To be cancelled or timed out there does nothing to the Request itself."""
        operation = self._operation
        if operation is not None and not operation.settled and operation.group is not None:
            yield from operation.group.over(operation).__await__()
        self._finish(None)

    # -- several -----------------------------------------------------------------------------------------------------

    @classmethod
    def Waitall(cls, requests: Iterable[Request], statuses: Iterable[Status] | None = None) -> Literal[True]:
        """Returns when all are complete."""
        for request in requests:
            request.Wait()
        _fill(*(statuses or ()))
        return True

    @classmethod
    def Testall(cls, requests: Iterable[Request], statuses: Iterable[Status] | None = None) -> bool:
        """Whether all are complete; if not, none is changed."""
        requests = list(requests)
        if not all([request.Get_status() for request in requests]):
            return False
        return cls.Waitall(requests, statuses)

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """Returns the index of one that is complete; UNDEFINED where all were so before."""
        active = _active(requests)
        _wait_for_any(active)
        return cls._first(active, requests, status)

    @classmethod
    def Testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """The index of one that is complete, and True; UNDEFINED and whether all were so before."""
        active = _active(requests)
        if active and not any([request.Get_status() for request in active]):
            return UNDEFINED, False
        return cls._first(active, requests, status), True

    @classmethod
    def Waitsome(cls, requests: Sequence[Request], statuses: Iterable[Status] | None = None) -> list[int] | None:
        """Returns the indices of all that are complete, at least one; None where all were so before."""
        _wait_for_any(_active(requests))
        return cls.Testsome(requests, statuses)

    @classmethod
    def Testsome(cls, requests: Sequence[Request], statuses: Iterable[Status] | None = None) -> list[int] | None:
        """The indices of all that are complete; None where all were so before."""
        if not _active(requests):
            return None
        found = [index for index, request in enumerate(requests) if request and request.Get_status()]
        for index in found:
            requests[index].Wait()
        _fill(*(statuses or ()))
        return found

    @classmethod
    def waitall(cls, requests: Iterable[Request], statuses: Iterable[Status] | None = None) -> list[None]:
        requests = list(requests)
        cls.Waitall(requests, statuses)
        return [None] * len(requests)

    @classmethod
    def testall(
        cls, requests: Iterable[Request], statuses: Iterable[Status] | None = None
    ) -> tuple[bool, list[None] | None]:
        requests = list(requests)
        done = cls.Testall(requests, statuses)
        return done, [None] * len(requests) if done else None

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, None]:
        return cls.Waitany(requests, status), None

    @classmethod
    def testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool, None]:
        return *cls.Testany(requests, status), None

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: Iterable[Status] | None = None
    ) -> tuple[list[int] | None, list[None] | None]:
        """Waitsome, and the objects that were received: none."""
        found = cls.Waitsome(requests, statuses)
        return found, None if found is None else [None] * len(found)

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: Iterable[Status] | None = None
    ) -> tuple[list[int] | None, list[None] | None]:
        """Testsome, and the objects that were received: none."""
        found = cls.Testsome(requests, statuses)
        return found, None if found is None else [None] * len(found)

    # ----------------------------------------------------------------------------------------------------------------

    @staticmethod
    def _first(active: list[Request], requests: Sequence[Request], status: Status | None) -> int:
        if not active:
            _fill(status)
            return UNDEFINED
        found = next(request for request in active if request.Get_status())
        index = next(index for index, request in enumerate(requests) if request is found)
        found.Wait(status)
        return index

    def _finish(self, status: Status | None) -> None:
        _fill(status)
        if self._operation is not None:
            self._operation.result()
            self._operation = None

    def __bool__(self) -> bool:
        """Whether it is not REQUEST_NULL."""
        return self._operation is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        return self._operation is other._operation

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        if self._operation is None:
            return "MPI.REQUEST_NULL"
        return f"<Request: {self._operation.call}, {'over' if self._operation.settled else 'in progress'}>"


REQUEST_NULL = Request()
"""What every Request is like once it was waited for."""


def _active(requests: Iterable[Request]) -> list[Request]:
    return [request for request in requests if request]


def _wait_for_any(active: list[Request]) -> None:
    operations = [request._operation for request in active if request._operation is not None]
    groups = {operation.group for operation in operations if operation.group is not None}
    if operations and not any(operation.settled for operation in operations):
        wait(groups, lambda: any(operation.settled for operation in operations))


def _fill(*statuses: Status | None) -> None:
    """A collective has no source, tag or count to tell."""
    for status in statuses:
        if status is not None:
            status.fill(ANY_SOURCE, ANY_TAG, 0)
