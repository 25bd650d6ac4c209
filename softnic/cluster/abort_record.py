"""The exit code with which a rank aborts its job, left in a file for the command that started the ranks.

The other ranks fail because of the abort, and may end first: the launcher could not tell which rank's exit code counts.
The launcher names the file in SOFTNIC_ABORT; the first rank that aborts writes it before the others learn of the abort.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

VARIABLE = "SOFTNIC_ABORT"


class Aborted(NamedTuple):
    """A rank, and the exit code of the job that it asked for, 1 to 255."""

    rank: int
    exit_code: int


def record_abort(status: int, environment: Mapping[str, str]) -> bool:
    """Leave the exit status of this rank's job, unless a rank has done so. Return False without SOFTNIC_ABORT."""
    path = environment.get(VARIABLE)
    if not path:
        return False
    with suppress(OSError):  # another rank was first, or the launcher has ended: nobody reads it
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, b"%d %d" % (int(environment.get("SOFTNIC_RANK", "0")), status & 0xFF or 1))
        finally:
            os.close(fd)
    return True


def read_abort(path: Path) -> Aborted | None:
    """Return which rank has aborted; None if none has."""
    with suppress(FileNotFoundError, ValueError):  # it is being written: the others do not know of it yet
        rank, exit_code = path.read_text().split()
        return Aborted(int(rank), int(exit_code))
    return None
