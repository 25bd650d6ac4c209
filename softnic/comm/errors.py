"""The errors of communicators. Each names the rank and the call."""

from __future__ import annotations

import sys
import threading


class CommError(RuntimeError):
    """A communication call failed, on this rank or another. Unless it is an ArgumentError, the communicator has ended.

    Attributes
    ----------
    rank
        The rank at fault, None if it is not a single one.
    call
        The call of this rank that failed.
    told
        The text of another rank that reported the error; empty if this rank noticed it itself.
    """

    def __init__(self, text: str, *, rank: int | None = None, call: str = "", told: str = "") -> None:
        super().__init__(text)
        self.rank = rank
        self.call = call
        self.told = told


class ArgumentError(CommError, ValueError):
    """This rank's own arguments are wrong, or do not fit the message received. The communicator remains usable.

    The other ranks wait for this rank's next call.
    """


class LaunchError(CommError, ValueError):
    """The environment does not define this process's rank and the number of ranks."""


def uncaught() -> str:
    """Return the exception that ends this process, for other ranks; empty if there is none."""
    if threading.main_thread().is_alive() or hasattr(sys, "ps1"):
        return ""
    error: BaseException | None = getattr(sys, "last_value", None)
    if error is None:
        return ""
    return f"it raised {type(error).__name__}" + (f": {error}" if str(error) else "")
