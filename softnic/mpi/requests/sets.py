"""Waiting for several Requests, and testing them: the class methods of Request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol

from softnic.comm.error_classes import ERR_IN_STATUS, ERR_OTHER
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.message_engine import MessageEngine
from softnic.comm.waiting import Source, wait
from softnic.mpi.constants import UNDEFINED
from softnic.mpi.requests.status import Status, fill_empty


class Awaited(Protocol):
    """What a Request stands for: a collective (PostedRequest), a message (Operation), or a program's own."""

    @property
    def call(self) -> str: ...

    @property
    def settled(self) -> bool: ...

    @property
    def queue(self) -> Source | None: ...

    def poll(self) -> bool: ...

    def advance(self) -> None: ...

    def result(self) -> Any: ...

    def fill(self, status: Status) -> None: ...

    def cancel(self) -> None: ...


def wait_for(operations: Sequence[Awaited], enough: Callable[[Iterable[bool]], bool]) -> None:
    """Wait until all operations are settled, or any of them. Raises CommError if their communicator ends."""
    waited = [operation for operation in operations if not operation.settled]
    if not waited or (enough is any and len(waited) < len(operations)):
        return
    queues = {operation.queue for operation in waited}
    done = _all_settled(waited) if enough is all else lambda: any([operation.poll() for operation in waited])
    (*_, queue) = queues
    if len(queues) == 1 and isinstance(queue, MessageEngine):
        queue.run(done)
        return
    for operation in waited:
        operation.advance()
    wait([queue for queue in queues if queue is not None], done)


def _all_settled(waited: Sequence[Awaited]) -> Callable[[], bool]:
    """Return a function that looks at each operation until it is settled, and no longer."""
    left = list(reversed(waited))

    def done() -> bool:
        while left and left[-1].poll():
            left.pop()
        return not left

    return done


class RequestSets:
    """The methods for several Requests. Null and inactive ones are passed over."""

    @property
    def _posted(self) -> Awaited | None:
        raise NotImplementedError

    def _finish(self, status: Status | None) -> Any:
        raise NotImplementedError

    def Get_status(self, status: Status | None = None) -> bool:
        """Return whether the result is there; the Request does not change."""
        raise NotImplementedError

    @classmethod
    def Waitall(cls, requests: Sequence[Any], statuses: Any = None) -> Literal[True]:
        """Wait until all are complete, and return True."""
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def Testall(cls, requests: Sequence[Any], statuses: Any = None) -> bool:
        """Return whether all are complete; if not, none is changed."""
        return cls.testall(requests, statuses)[0]

    @classmethod
    def Waitany(cls, requests: Sequence[Any], status: Status | None = None) -> int:
        """Wait for one; return its index, UNDEFINED if all were complete before."""
        return cls.waitany(requests, status)[0]

    @classmethod
    def Testany(cls, requests: Sequence[Any], status: Status | None = None) -> tuple[int, bool]:
        """Return the index of a complete one, and True; otherwise UNDEFINED, and whether all were complete before."""
        return cls.testany(requests, status)[:2]

    @classmethod
    def Waitsome(cls, requests: Sequence[Any], statuses: Any = None) -> list[int] | None:
        """Wait for at least one; return the indices of all complete ones, None if all were complete before."""
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def Testsome(cls, requests: Sequence[Any], statuses: Any = None) -> list[int] | None:
        """Return the indices of all complete ones, None if all were complete before."""
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def Get_status_all(cls, requests: Sequence[Any], statuses: Any = None) -> bool:
        """Return what Testall would return; no Request is changed."""
        filled = [Status() for _ in requests]
        found = [request.Get_status(status) for request, status in zip(requests, filled, strict=True)]
        if all(found):
            _copy(filled, statuses)
        return all(found)

    @classmethod
    def Get_status_any(cls, requests: Sequence[Any], status: Status | None = None) -> tuple[int, bool]:
        """Return what Testany would return; no Request is changed."""
        if not any([request._posted is not None for request in requests]):
            fill_empty(status)
            return UNDEFINED, True
        for index, request in enumerate(requests):
            if request._posted is not None and request.Get_status(status):
                return index, True
        return UNDEFINED, False

    @classmethod
    def Get_status_some(cls, requests: Sequence[Any], statuses: Any = None) -> list[int] | None:
        """Return what Testsome would return; no Request is changed."""
        found = _settled(requests)
        if found:
            filled = [Status() for _ in found]
            for index, status in zip(found, filled, strict=True):
                requests[index].Get_status(status)
            _copy(filled, statuses)
        return found

    @classmethod
    def get_status_all(cls, requests: Sequence[Any], statuses: Any = None) -> bool:
        """Return the result of Get_status_all."""
        return cls.Get_status_all(requests, statuses)

    @classmethod
    def get_status_any(cls, requests: Sequence[Any], status: Status | None = None) -> tuple[int, bool]:
        """Return the result of Get_status_any."""
        return cls.Get_status_any(requests, status)

    @classmethod
    def get_status_some(cls, requests: Sequence[Any], statuses: Any = None) -> list[int] | None:
        """Return the result of Get_status_some."""
        return cls.Get_status_some(requests, statuses)

    @classmethod
    def waitall(cls, requests: Sequence[Any], statuses: Any = None) -> list[Any]:
        """Wait until all are complete; return the object of each, None for those without."""
        requests = list(requests)
        wait_for([request._posted for request in requests if request._posted is not None], all)
        return _finish_all(requests, statuses)

    @classmethod
    def testall(cls, requests: Sequence[Any], statuses: Any = None) -> tuple[bool, list[Any] | None]:
        """Return the result of Testall, and the object of each if all are complete."""
        requests = list(requests)
        if not all([request.Get_status() for request in requests]):
            return False, None
        return True, _finish_all(requests, statuses)

    @classmethod
    def waitany(cls, requests: Sequence[Any], status: Status | None = None) -> tuple[int, Any]:
        """Return the result of Waitany, and the object."""
        wait_for([request._posted for request in requests if request._posted is not None], any)
        index, _, value = cls.testany(requests, status)
        return index, value

    @classmethod
    def testany(cls, requests: Sequence[Any], status: Status | None = None) -> tuple[int, bool, Any]:
        """Return the result of Testany, and the object."""
        index, flag = cls.Get_status_any(requests)
        if index != UNDEFINED:
            return index, True, requests[index]._finish(status)
        fill_empty(status)
        return index, flag, None

    @classmethod
    def waitsome(cls, requests: Sequence[Any], statuses: Any = None) -> tuple[list[int] | None, list[Any] | None]:
        """Return the result of Waitsome, and the object of each."""
        wait_for([request._posted for request in requests if request._posted is not None], any)
        return cls.testsome(requests, statuses)

    @classmethod
    def testsome(cls, requests: Sequence[Any], statuses: Any = None) -> tuple[list[int] | None, list[Any] | None]:
        """Return the result of Testsome, and the object of each."""
        found = _settled(requests)
        if found is None:
            return None, None
        return found, _finish_all([requests[index] for index in found], statuses)


def _settled(requests: Sequence[Any]) -> list[int] | None:
    """Return the indices of those that are complete now, None if there is nothing to wait for."""
    active = [index for index, request in enumerate(requests) if request._posted is not None]
    if not active:
        return None
    found = [index for index in active if requests[index].Get_status()]
    if not found:
        os.sched_yield()
    return found


def _finish_all(requests: Sequence[Any], statuses: Any) -> list[Any]:
    """Return the results of Requests that are complete.

    Raises, after all of them, what the first one raised that has failed; a message that does not fit is of class
    ERR_IN_STATUS here, and each Status has the class of its own error.
    """
    filled: list[Status | None] = [None if statuses is None else Status() for _ in requests]
    values: list[Any] = []
    failures: list[Exception] = []
    for request, status in zip(requests, filled, strict=True):
        try:
            values.append(request._finish(status))
        except Exception as error:
            failures.append(error)
            if status is not None:
                status.Set_error(error.Get_error_class() if isinstance(error, CommError) else ERR_OTHER)
    _copy(filled, statuses)
    if not failures:
        return values
    first = failures[0]
    if isinstance(first, ArgumentError):
        raise type(first)(str(first), rank=first.rank, call=first.call, code=ERR_IN_STATUS) from first
    raise first


def _copy(filled: Sequence[Status | None], statuses: Any) -> None:
    """Copy Statuses to a caller's; a list becomes long enough."""
    if statuses is None:
        return
    if isinstance(statuses, list):
        statuses.extend(Status() for _ in range(len(statuses), len(filled)))
    for status, theirs in zip(filled, statuses, strict=False):
        theirs.copy_from(status)
