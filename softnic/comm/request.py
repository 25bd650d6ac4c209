"""Request, the result of a nonblocking call: mpi4py's names, and awaitable.

The NIC executes the collective by itself. Its result is in the receive buffer after a wait, or a test that returned
True; until then the buffers of the call belong to the Request. From then on it equals `MPI.REQUEST_NULL`. If the
collective failed, each wait and test raises CommError.

A Request without references is still executed, and its buffers are released after that.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Literal

from softnic.comm.offload_queue import PostedRequest
from softnic.comm.p2p import ANY_SOURCE, ANY_TAG, UNDEFINED, Status
from softnic.comm.public_names import PublicNames
from softnic.comm.waiting import wait


class Request(PublicNames):
    """A collective in progress, or REQUEST_NULL.

    Methods for several Requests are class methods and take `requests`. A `status` or `statuses`, if given, are filled
    as mpi4py does for collectives: without source, tag and count.
    """

    def __init__(self, posted: PostedRequest | None = None) -> None:
        self._posted = posted

    def Wait(self, status: Status | None = None) -> Literal[True]:
        """Wait for the result and return True. An interrupt (KeyboardInterrupt) leaves the Request as it was."""
        posted = self._posted
        if posted is not None and not posted.settled and posted.queue is not None:
            wait([posted.queue], lambda: posted.settled)
        self._finish(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Return whether the result is there."""
        if not self.Get_status():
            return False
        self._finish(status)
        return True

    def Get_status(self, status: Status | None = None) -> bool:
        """Return what Test would return; the Request does not change."""
        _fill(status)
        posted = self._posted
        if posted is not None and not posted.settled and posted.queue is not None:
            posted.queue.advance()
        return posted is None or posted.settled

    def wait(self, status: Status | None = None) -> None:
        """Wait for the result. There is no object to return."""
        self.Wait(status)

    def test(self, status: Status | None = None) -> tuple[bool, None]:
        """Return the result of Test, and None for the object."""
        return self.Test(status), None

    def Cancel(self) -> None:
        """Give up the collective.

        The other ranks cannot complete it: if it is not complete, the communicator ends, and every rank gets an error
        with the rank and the call, this one when it waits. A complete Request is not changed.
        """
        if self._posted is not None and self._posted.queue is not None:
            self._posted.queue.cancel(self._posted)

    def Free(self) -> None:
        """Release the Request, which is still executed: its buffers must not be used before its end."""
        self._posted = None

    cancel = Cancel
    free = Free

    def __await__(self) -> Generator[Any, None, None]:
        """Wait in asyncio. Cancellation and timeouts there do not affect the Request itself."""
        posted = self._posted
        if posted is not None and not posted.settled and posted.queue is not None:
            yield from posted.queue.wait_async(posted).__await__()
        self._finish(None)

    # -- several -----------------------------------------------------------------------------------------------------

    @classmethod
    def Waitall(cls, requests: Iterable[Request], statuses: Iterable[Status] | None = None) -> Literal[True]:
        """Wait until all are complete, and return True."""
        for request in requests:
            request.Wait()
        _fill(*(statuses or ()))
        return True

    @classmethod
    def Testall(cls, requests: Iterable[Request], statuses: Iterable[Status] | None = None) -> bool:
        """Return whether all are complete; if not, none is changed."""
        requests = list(requests)
        if not all([request.Get_status() for request in requests]):
            return False
        return cls.Waitall(requests, statuses)

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """Wait for one; return its index, UNDEFINED if all were complete before."""
        active = _active(requests)
        _wait_for_any(active)
        return cls._first(active, requests, status)

    @classmethod
    def Testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """Return the index of a complete one, and True; otherwise UNDEFINED, and whether all were complete before."""
        active = _active(requests)
        if active and not any([request.Get_status() for request in active]):
            return UNDEFINED, False
        return cls._first(active, requests, status), True

    @classmethod
    def Waitsome(cls, requests: Sequence[Request], statuses: Iterable[Status] | None = None) -> list[int] | None:
        """Wait for at least one; return the indices of all complete ones, None if all were complete before."""
        _wait_for_any(_active(requests))
        return cls.Testsome(requests, statuses)

    @classmethod
    def Testsome(cls, requests: Sequence[Request], statuses: Iterable[Status] | None = None) -> list[int] | None:
        """Return the indices of all complete ones, None if all were complete before."""
        if not _active(requests):
            return None
        found = [index for index, request in enumerate(requests) if request and request.Get_status()]
        for index in found:
            requests[index].Wait()
        _fill(*(statuses or ()))
        return found

    @classmethod
    def waitall(cls, requests: Iterable[Request], statuses: Iterable[Status] | None = None) -> list[None]:
        """Wait until all are complete; return None for each object."""
        requests = list(requests)
        cls.Waitall(requests, statuses)
        return [None] * len(requests)

    @classmethod
    def testall(
        cls, requests: Iterable[Request], statuses: Iterable[Status] | None = None
    ) -> tuple[bool, list[None] | None]:
        """Return the result of Testall, and None for each object if all are complete."""
        requests = list(requests)
        done = cls.Testall(requests, statuses)
        return done, [None] * len(requests) if done else None

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, None]:
        """Return the result of Waitany, and None for the object."""
        return cls.Waitany(requests, status), None

    @classmethod
    def testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool, None]:
        """Return the result of Testany, and None for the object."""
        return *cls.Testany(requests, status), None

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: Iterable[Status] | None = None
    ) -> tuple[list[int] | None, list[None] | None]:
        """Return the result of Waitsome, and None for each object."""
        found = cls.Waitsome(requests, statuses)
        return found, None if found is None else [None] * len(found)

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: Iterable[Status] | None = None
    ) -> tuple[list[int] | None, list[None] | None]:
        """Return the result of Testsome, and None for each object."""
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
        if self._posted is not None:
            self._posted.result()
            self._posted = None

    def __bool__(self) -> bool:
        """Whether it is not REQUEST_NULL."""
        return self._posted is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        return self._posted is other._posted

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        if self._posted is None:
            return "MPI.REQUEST_NULL"
        return f"<Request: {self._posted.call}, {'complete' if self._posted.settled else 'in progress'}>"


REQUEST_NULL = Request()
"""Equal to every Request that was waited for."""


def wait_within(request: Request, limit_s: float) -> bool:
    """Wait for the result, for `limit_s` at most. Return whether the request is settled; it does not change."""
    posted = request._posted
    if posted is not None and not posted.settled and posted.queue is not None:
        wait([posted.queue], lambda: posted.settled, limit_s)
    return posted is None or posted.settled


def _active(requests: Iterable[Request]) -> list[Request]:
    return [request for request in requests if request]


def _wait_for_any(active: list[Request]) -> None:
    waited = [request._posted for request in active if request._posted is not None]
    queues = {posted.queue for posted in waited if posted.queue is not None}
    if waited and not any(posted.settled for posted in waited):
        wait(queues, lambda: any(posted.settled for posted in waited))


def _fill(*statuses: Status | None) -> None:
    """A collective has no source, tag or count."""
    for status in statuses:
        if status is not None:
            status.fill(ANY_SOURCE, ANY_TAG, 0)
