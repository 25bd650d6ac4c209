"""Generalized requests: a program's own operations, which are waited for like messages."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from softnic.comm.error_classes import ERR_OTHER, ERR_REQUEST
from softnic.comm.errors import ArgumentError, CommError
from softnic.comm.waiting import Waiter
from softnic.mpi.requests.request import Request
from softnic.mpi.requests.status import Status, fill_empty

Function = Callable[..., Any] | None
_waiters: list[Waiter] = []
os.register_at_fork(after_in_child=_waiters.clear)


class ProgramOperation:
    """An operation that the program completes, and the functions that it has given for it."""

    call = "Grequest"
    failure = None

    def __init__(self, query: Function, free: Function, cancel: Function, arguments: tuple[Any, Any]) -> None:
        self._query = query
        self._free = free
        self._cancel = cancel
        self._arguments, self._keywords = arguments
        self._value: Any = None
        self._error: CommError | None = None
        self._lock = threading.Lock()
        self.settled = False

    @property
    def queue(self) -> ProgramOperation:
        return self

    @property
    def waiter(self) -> Waiter:
        """The same for all: programs have few."""
        if not _waiters:
            _waiters.append(Waiter())
        return _waiters[0]

    def poll(self) -> bool:
        return self.settled

    def advance(self) -> None:
        """Nothing makes progress on it but the program."""

    def complete(self, value: Any) -> None:
        """Note that the operation is complete. Threads that wait for it return."""
        with self._lock:
            self._value = value
            self.settled = True
        self.waiter.notify()

    def fill(self, status: Status) -> None:
        fill_empty(status)
        self._error = self._run(self._query, status, *self._arguments)

    def result(self) -> Any:
        query_failed, self._error = self._error, None
        free_failed = self._run(self._free, *self._arguments)
        for failed in (query_failed, free_failed):
            if failed is not None:
                raise failed
        return self._value

    def cancel(self) -> None:
        """Ask the program to give it up."""
        if (failed := self._run(self._cancel, self.settled, *self._arguments)) is not None:
            raise failed

    def _run(self, function: Function, *arguments: Any) -> CommError | None:
        """Call one of the program's functions; return its failure, whose traceback is printed as mpi4py does."""
        if function is None:
            return None
        try:
            function(*arguments, **self._keywords)
        except CommError as error:
            traceback.print_exc(file=sys.stderr)
            return error
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            failure = ArgumentError(
                f"a function of a generalized request failed: {error}", call="Grequest", code=ERR_OTHER
            )
            failure.__cause__ = error
            return failure
        return None


class Grequest(Request):
    """A Request that the program itself completes.

    Parameters
    ----------
    request
        A Request of this kind, of which this becomes another name. None: it is a null request.
    status
        Status to fill in, or None.
    """

    @classmethod
    def Start(
        cls,
        query_fn: Function = None,
        free_fn: Function = None,
        cancel_fn: Function = None,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Grequest:
        """Return a new Request.

        Parameters
        ----------
        query_fn
            Called with the Status to fill, when the Request is complete.
        free_fn
            Called at the end of the Request.
        cancel_fn
            Called by Cancel, with whether the Request is complete.
        args, kwargs
            Further arguments of these functions.
        """
        made = cls(ProgramOperation(query_fn, free_fn, cancel_fn, (tuple(args or ()), dict(kwargs or {}))))
        made._shared.kind = Grequest
        made._operation = made._posted
        return made

    _operation: Any = None
    """What is to be completed, also after a wait."""

    def Complete(self) -> None:
        """Note that the operation is complete."""
        self.complete()

    def complete(self, obj: Any = None) -> None:
        """Note that the operation is complete; `wait` returns `obj`."""
        operation = self._posted or self._operation
        if not isinstance(operation, ProgramOperation):
            raise ArgumentError("Complete: this Request is no Grequest in progress", call="Complete", code=ERR_REQUEST)
        operation.complete(obj)

    def _finish(self, status: Status | None) -> Any:
        return super()._finish(Status() if status is None else status)
