"""Error handlers: what a communicator does with an error besides raising it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from softnic.cluster.abort_record import record_abort
from softnic.comm.error_classes import ERR_ERRHANDLER
from softnic.comm.errors import CommError
from softnic.mpi.handles import Handle, constant

MOST = 32
"""Error handlers of the program that may exist at a time, as in mpi4py."""


class Failing(Protocol):
    """The communicator that an error occurs on."""

    def abort(self, text: str) -> None:
        """End it on every rank."""


def abort_job(failing: Failing, text: str, status: int) -> None:
    """End a communicator on every rank, and the job of `softnic run` with an exit status."""
    has_launcher = record_abort(status, os.environ)
    failing.abort(text)
    if has_launcher and threading.current_thread() is not threading.main_thread():
        os.kill(os.getpid(), signal.SIGTERM)  # SystemExit would end this thread only


class Action:
    """What a handler does. The error is raised afterwards."""

    def run(self, failing: Failing, comm: Any, error: CommError) -> None:
        """Act on an error of a call on the communicator."""


class _Abort(Action):
    """Ends the communicator on every rank, and this process."""

    def run(self, failing: Failing, comm: Any, error: CommError) -> None:
        del comm
        abort_job(failing, str(error), error.code)
        print(f"softnic: {error}", file=sys.stderr, flush=True)
        raise SystemExit(error.code) from error


@dataclass(eq=False)
class _Calls(Action):
    """Calls a function of the program with the communicator and the error code."""

    function: Callable[[Any, int], Any]

    def run(self, failing: Failing, comm: Any, error: CommError) -> None:
        del failing
        self.function(comm, error.code)


class Errhandler(Handle):
    """An error handler of communicators: ERRORS_RETURN, ERRORS_ARE_FATAL, ERRORS_ABORT, or one of the program."""

    null_code = ERR_ERRHANDLER

    def Free(self) -> None:
        """Release the handler. Communicators that have it keep it. Raises ArgumentError if it is null."""
        _created.discard(self._live())
        self._target = None


_created: set[Action] = set()


def created(function: Callable[[Any, int], Any]) -> Errhandler:
    """Return a handler that calls a function. Raises RuntimeError if the program has MOST of them."""
    if len(_created) >= MOST:
        raise RuntimeError(f"there are {MOST} error handlers already: free those that are not needed")
    action = _Calls(function)
    _created.add(action)
    return Errhandler._named(action)


ERRHANDLER_NULL = constant("ERRHANDLER_NULL", Errhandler())
ERRORS_RETURN = constant("ERRORS_RETURN", Errhandler._named(Action()))
"""Errors are exceptions, and nothing else happens."""
ERRORS_ARE_FATAL = constant("ERRORS_ARE_FATAL", Errhandler._named(_Abort()))
"""An error ends the job: this process by SystemExit, the others by an error."""
ERRORS_ABORT = constant("ERRORS_ABORT", Errhandler._named(_Abort()))
"""An error ends the ranks of its communicator."""
