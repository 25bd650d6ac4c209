"""The library that gives programs of any language their NIC's TCP, preloaded before the C library (native/preload.h).

    subprocess.run(["curl", "http://node1:8000/"], env=preload.environment("/run/nic.sock"))

`socket`, `bind`, `connect`, `accept`, names and options are then the NIC's for TCP over IPv4, and reads and writes need
nothing, because a stream is a real file descriptor. docs/sockets.md lists what cannot be preloaded.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path


def library() -> Path:
    """Return the path of the library. Raises OSError if this installation of softnic has none."""
    found = importlib.util.find_spec("softnic._preload")
    if found is None or found.origin is None:
        raise OSError("the library for programs of other languages was not built: reinstall softnic")
    return Path(found.origin)


def environment(nic: str | os.PathLike[str], base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a program that uses a NIC.

    Parameters
    ----------
    nic : path-like
        The NIC's control socket.
    base : mapping
        The environment to start from. Libraries that it preloads stay, after this one.

    Raises
    ------
    OSError
        This installation of softnic has no such library.
    """
    own = str(library())
    others = [each for each in base.get("LD_PRELOAD", "").replace(":", " ").split() if each != own]
    return {**base, "SOFTNIC_NIC": os.fspath(nic), "LD_PRELOAD": " ".join([own, *others])}
