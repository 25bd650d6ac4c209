"""The errors of collectives. Each says which rank met what, and in which call."""

from __future__ import annotations

import sys
import threading


class CommError(RuntimeError):
    """A communication call failed, on this rank or another; the communicator is of no further use.

    `rank` is the rank at fault, None where no single one is; `call` the call of this rank that ended with it;
    `told` what another rank said, where this one heard of it only.
    """

    def __init__(self, text: str, *, rank: int | None = None, call: str = "", told: str = "") -> None:
        super().__init__(text)
        self.rank = rank
        self.call = call
        self.told = told


class ArgumentError(CommError, ValueError):
    """This rank's own arguments are wrong. The other ranks of the call get a CommError that says so."""


class LaunchError(CommError, ValueError):
    """The environment does not say plainly which rank of how many this process is."""


def uncaught() -> str:
    """The exception that ends this process, for other ranks; empty if there is none, or the process goes on."""
    if threading.main_thread().is_alive() or hasattr(sys, "ps1"):
        return ""
    error: BaseException | None = getattr(sys, "last_value", None)
    if error is None:
        return ""
    return f"it raised {type(error).__name__}" + (f": {error}" if str(error) else "")
