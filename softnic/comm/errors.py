"""The errors of communicators. Each names the rank and the call, and has an error code of MPI."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from softnic.comm.error_classes import ERR_ARG, ERR_OTHER, ERR_PROC_FAILED, ERR_REVOKED, ERR_UNKNOWN, SUCCESS
from softnic.comm.error_codes import error_class, error_string


class CommError(RuntimeError):
    """A communication call failed, on this rank or another. Unless it is an ArgumentError, the communicator has ended.

    It compares with error codes and with other errors as its code does.

    Parameters
    ----------
    text
        What happened; or an error code, which stands for its text.

    Attributes
    ----------
    rank
        The rank at fault, None if it is not a single one.
    call
        The call of this rank that failed.
    told
        The text of another rank that reported the error; empty if this rank noticed it itself.
    code
        One of the ERR_ constants, or a code that the program has added.
    """

    def __init__(
        self,
        text: str | int = SUCCESS,
        *,
        rank: int | None = None,
        call: str = "",
        told: str = "",
        code: int = ERR_OTHER,
    ) -> None:
        super().__init__(text)
        self.rank = rank
        self.call = call
        self.told = told
        self.code = code
        if isinstance(text, int):
            self.code = text if text >= SUCCESS else ERR_UNKNOWN

    def Get_error_code(self) -> int:
        """Return the error code."""
        return self.code

    def Get_error_class(self) -> int:
        """Return the class of the error code, one of the ERR_ constants."""
        return error_class(self.code)

    def Get_error_string(self) -> str:
        """Return what happened."""
        return str(self)

    error_code = property(Get_error_code)
    error_class = property(Get_error_class)
    error_string = property(Get_error_string)

    def __str__(self) -> str:
        first = self.args[0] if self.args else ""
        return error_string(self.code) if isinstance(first, int) else str(first)

    def __repr__(self) -> str:
        if self.args and isinstance(self.args[0], int):
            return f"MPI.Exception({self.code})"
        return super().__repr__()

    def __int__(self) -> int:
        return self.code

    def __bool__(self) -> bool:
        return self.code != SUCCESS

    def __hash__(self) -> int:
        return hash(self.code)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, CommError)):
            return NotImplemented
        return self.code == int(other)

    def __lt__(self, other: int | CommError) -> bool:
        return self.code < int(other)

    def __le__(self, other: int | CommError) -> bool:
        return self.code <= int(other)

    def __gt__(self, other: int | CommError) -> bool:
        return self.code > int(other)

    def __ge__(self, other: int | CommError) -> bool:
        return self.code >= int(other)


REVOKED = "the communicator was revoked"
"""In the reason of the end of a communicator that a rank has revoked."""
_LOST = re.compile(r"rank \d+ (is gone|lost its NIC|has left|exited)")


def code_of_end(why: str) -> int:
    """Return the error code of calls on a communicator that has ended for a reason that a rank has given."""
    if REVOKED in why:
        return ERR_REVOKED
    return ERR_PROC_FAILED if _LOST.search(why) else ERR_OTHER


class ArgumentError(CommError, ValueError):
    """This rank's own arguments are wrong, or do not fit the message received. The communicator remains usable.

    The other ranks wait for this rank's next call.
    """

    def __init__(
        self, text: str | int, *, rank: int | None = None, call: str = "", told: str = "", code: int = ERR_ARG
    ) -> None:
        super().__init__(text, rank=rank, call=call, told=told, code=code)


class _TypeRefused(ArgumentError, TypeError):
    """An ArgumentError that is a TypeError."""


class _KeyRefused(ArgumentError, KeyError):
    """An ArgumentError that is a KeyError."""


class _BufferRefused(ArgumentError, BufferError):
    """An ArgumentError that is a BufferError."""


_REFUSALS: dict[type[Exception], type[ArgumentError]] = {
    TypeError: _TypeRefused,
    KeyError: _KeyRefused,
    BufferError: _BufferRefused,
}


class TransportError(OSError):
    """A NIC, a connection or the memory that NICs use has failed, which ends the communicator.

    Every other OSError of a call was raised by code of the application: a pickling, an operator, a buffer.
    """


@contextmanager
def transport_errors() -> Iterator[None]:
    """Raise OSErrors of sockets, NICs and their memory as TransportErrors."""
    try:
        yield
    except TransportError:
        raise
    except OSError as error:
        raise TransportError(*error.args) from error


_OF_APPLICATION = "_softnic_of_application"


@contextmanager
def application_code() -> Iterator[None]:
    """Mark what code of the application raises: calls pass it on as it is, and the communicator remains usable."""
    try:
        yield
    except Exception as error:
        with suppress(AttributeError, TypeError):  # it has no room for a mark
            setattr(error, _OF_APPLICATION, True)
        raise


class LaunchError(CommError, ValueError):
    """The environment does not define this process's rank and the number of ranks."""


class Refused(ValueError):
    """A wrong argument, before the rank and the call are known. `code` is its error class."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def failure_of(error: BaseException, call: str, where: str, rank: int) -> CommError | None:
    """Return an error of a call as the program gets it, with the rank and the call; None: as it is."""
    if hasattr(error, _OF_APPLICATION):
        return None
    if isinstance(error, ArgumentError):
        kind: type[ArgumentError] = type(error)
        return kind(f"{where}: {error}", rank=error.rank, call=call, code=error.code)
    if isinstance(error, CommError):
        return CommError(f"{where}: {error}", rank=error.rank, call=call, told=error.told, code=error.code)
    if isinstance(error, TransportError):
        return CommError(f"{where}: {error}", rank=rank, call=call)
    if isinstance(error, ValueError):
        kind = next((made for also, made in _REFUSALS.items() if isinstance(error, also)), ArgumentError)
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        return kind(f"{where}: {text}", rank=rank, call=call, code=getattr(error, "code", ERR_ARG))
    return None


def uncaught() -> str:
    """Return the exception that ends this process, for other ranks; empty if there is none."""
    if threading.main_thread().is_alive() or hasattr(sys, "ps1"):
        return ""
    error: BaseException | None = getattr(sys, "last_value", None)
    if error is None:
        return ""
    return f"it raised {type(error).__name__}" + (f": {error}" if str(error) else "")
