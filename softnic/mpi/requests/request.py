"""Request, the result of a nonblocking call: mpi4py's names, and awaitable.

The NIC executes collectives by itself; messages make progress in calls (operations.py). The result is in the receive
buffer after a wait, or a test that returned True; until then the buffers of the call belong to the Request. From then
on it equals `MPI.REQUEST_NULL`. If the call failed, the wait or test that completes it raises CommError.

A Request without references is still executed, and its buffers are released after that.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Generator
from typing import Any, Literal, Self

from softnic.comm.error_classes import ERR_REQUEST
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.waiting import wait, wait_async
from softnic.mpi.handles import Handle
from softnic.mpi.public_names import PublicNames
from softnic.mpi.requests.sets import Awaited, RequestSets, wait_for
from softnic.mpi.requests.status import Status, fill_empty


class Request(PublicNames, RequestSets):
    """A nonblocking call in progress, or REQUEST_NULL.

    Methods for several Requests are class methods and take `requests`. A `status` or `statuses`, if given, are filled
    as mpi4py does: for sends and collectives without source, tag and count.

    Parameters
    ----------
    request
        A Request, of which this becomes another name. None: it is a null request.
    """

    _shared: SharedRequest

    def __new__(cls, request: Request | Awaited | None = None) -> Self:  # noqa: ARG004
        """Take what `__init__` takes: subclasses may pass it on."""
        return super().__new__(cls)

    def __init__(self, request: Request | Awaited | None = None) -> None:
        if isinstance(request, Request):
            self._share(request._shared)
        elif request is None or (hasattr(request, "settled") and not isinstance(request, Handle)):
            self._shared = SharedRequest(request)
        else:
            raise TypeError(f"a Request is expected, not a {type(request).__name__}")

    @staticmethod
    def for_operation(operation: Awaited) -> Request:
        """Return the Request of an operation."""
        made = object.__new__(Request)
        made._shared = SharedRequest(operation)
        return made

    def _share(self, shared: SharedRequest) -> None:
        """Become another name of a Request. Raises TypeError if that is not of this class's kind."""
        kind = type(self)
        if kind not in (Request, shared.kind) and shared.exists and not issubclass(kind, shared.kind):
            raise TypeError(f"this Request is no {kind.__name__}")
        self._shared = shared

    @property
    def _posted(self) -> Awaited | None:
        return self._shared.operation

    def Wait(self, status: Status | None = None) -> Literal[True]:
        """Wait for the result and return True. An interrupt (KeyboardInterrupt) leaves the Request as it was."""
        self._wait(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Return whether the result is there."""
        return self._test(status)[0]

    def Get_status(self, status: Status | None = None) -> bool:
        """Return what Test would return; the Request does not change."""
        operation = self._posted
        if operation is None:
            fill_empty(status)
            return True
        if not operation.settled:
            operation.advance()
        if operation.settled and status is not None:
            operation.fill(status)
        if not operation.settled:
            os.sched_yield()  # the caller may ask at once again, on a core that a NIC needs
        return operation.settled

    def wait(self, status: Status | None = None) -> Any:
        """Wait for the result. Return the object received, None if there is none to return."""
        return self._wait(status)

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Return the result of Test, and the object received."""
        return self._test(status)

    def _wait(self, status: Status | None) -> Any:
        operation = self._posted
        if operation is not None and not operation.settled:
            wait_for([operation], all)
        return self._finish(status)

    def _test(self, status: Status | None) -> tuple[bool, Any]:
        if not self.Get_status():
            return False, None
        return True, self._finish(status)

    def get_status(self, status: Status | None = None) -> bool:
        """Return the result of Get_status."""
        return self.Get_status(status)

    def Cancel(self) -> None:
        """Give up the call.

        A receive that no message has been found for is complete then, and its Status is cancelled; a send is not
        affected. A collective cannot be completed by the other ranks: if it is not complete, the communicator ends, and
        every rank gets an error with the rank and the call, this one when it waits. A complete Request is not changed.
        Raises ArgumentError for REQUEST_NULL.
        """
        self._check_exists("Cancel")
        if self._posted is not None:
            self._posted.cancel()

    def Free(self) -> None:
        """Release the Request, which is still executed: its buffers must not be used before its end.

        Raises ArgumentError for REQUEST_NULL.
        """
        self._check_exists("Free")
        self._shared.operation = self._shared.restart = None

    def _check_exists(self, call: str) -> None:
        if not self:
            raise ArgumentError(f"{call}: this Request is MPI.REQUEST_NULL", call=call, code=ERR_REQUEST)

    def cancel(self) -> None:
        """Give up the call, as Cancel does."""
        self.Cancel()

    def free(self) -> None:
        """Release the Request, as Free does, if it is not null."""
        if self:
            self.Free()

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in asyncio. Cancellation and timeouts there do not affect the Request itself."""
        operation = self._posted
        if operation is not None and not operation.settled:
            assert operation.queue is not None
            yield from wait_async(operation.queue, operation.poll).__await__()
        return self._finish(None)

    def _finish(self, status: Status | None) -> Any:
        operation = self._posted
        if operation is None:
            fill_empty(status)
            return None
        if status is not None:
            operation.fill(status)
        try:
            value = operation.result()
        except Exception as error:
            if isinstance(error, ArgumentError) or not isinstance(error, CommError):  # the communicator goes on
                self._shared.operation = None
            raise
        self._shared.operation = None
        return value

    # Handles

    @property
    def handle(self) -> int:
        """A number for this Request, 0 for a null one."""
        return self._shared.handle if self else 0

    @classmethod
    def fromhandle(cls, handle: int) -> Self:
        """Return another name for the Request of this number."""
        made = cls()
        if handle:
            made._share(_by_handle[handle])
        return made

    def toint(self) -> int:
        """Return the number of this Request."""
        return self.handle

    def py2f(self) -> int:
        """Return the number of this Request."""
        return self.handle

    fromint = f2py = fromhandle

    def __bool__(self) -> bool:
        """Whether it is not REQUEST_NULL."""
        return self._shared.exists

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        return self._shared is other._shared or not (self or other)

    __hash__ = object.__hash__  # unlike mpi4py: asyncio.gather needs it

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self is REQUEST_NULL:
            return "REQUEST_NULL"
        if self:
            raise ValueError("a Request in progress cannot be pickled")
        return type(self), ()

    def __repr__(self) -> str:
        operation = self._posted
        if operation is None:
            return f"<{type(self).__name__}: inactive>" if self else "MPI.REQUEST_NULL"
        return f"<Request: {operation.call}, {'complete' if operation.settled else 'in progress'}>"


class SharedRequest:
    """What all names of a Request share."""

    __slots__ = ("__weakref__", "_handle", "kind", "operation", "restart")

    def __init__(self, operation: Awaited | None) -> None:
        self.operation = operation
        """What a wait waits for; None: nothing."""
        self.restart: Callable[[], Awaited] | None = None
        """Starts a persistent Request again."""
        self.kind: type[Request] = Request
        self._handle = 0

    @property
    def exists(self) -> bool:
        """Whether it is not a null request."""
        return self.operation is not None or self.restart is not None

    @property
    def handle(self) -> int:
        """A number, the same for all names."""
        if not self._handle:
            self._handle = next(_handles)
            _by_handle[self._handle] = self
        return self._handle


_handles = itertools.count(1)
_by_handle: weakref.WeakValueDictionary[int, SharedRequest] = weakref.WeakValueDictionary()
REQUEST_NULL = Request()
"""Equal to every Request that was waited for."""


def wait_within(request: Request, limit_s: float) -> bool:
    """Wait for the result, for `limit_s` at most. Return whether the request is settled; it does not change."""
    operation = request._posted
    if operation is not None and not operation.settled and operation.queue is not None:
        wait([operation.queue], lambda: operation.settled, limit_s)
    return operation is None or operation.settled
