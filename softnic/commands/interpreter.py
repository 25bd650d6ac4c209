"""The interpreter of commands that users give as `python`: one that has softnic."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path


def with_softnic(command: list[str], name: str) -> list[str]:
    """Return a command, with this interpreter for `python` if the one on PATH is missing or has no softnic. A line on
    standard error, which begins with `name`, says so."""
    if not re.fullmatch(r"python(3(\.\d+)?)?", command[0]):
        return command
    found = shutil.which(command[0])
    if found is not None and (Path(found) == Path(sys.executable) or _has_softnic(found)):
        return command
    why = f"{found} has no softnic" if found else f"there is no {command[0]} on PATH"
    print(f"{name}: {why}: ranks run {sys.executable}", file=sys.stderr)
    return [sys.executable, *command[1:]]


def _has_softnic(python: str) -> bool:
    """Return whether a script can import softnic; the current directory does not count."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('softnic') is None)"
    done = subprocess.run([python, "-P", "-c", look], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0
