"""The library that gives programs of any language their NIC's TCP, preloaded before the C library (native/preload).

    subprocess.run(["curl", "http://node1:8000/"], env=preload.environment("/run/nic.sock"))

`socket`, `bind`, `connect`, `accept`, names and options are then the NIC's for TCP over IPv4, and reads and writes need
nothing, because a stream is a real file descriptor. docs/sockets.md lists what cannot be preloaded.
"""

from __future__ import annotations

import errno
import importlib.util
import mmap
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path

_PROGRAM_HEADERS = struct.Struct("=32xQ14xHH")
"""Of an ELF file's header: offset, size and number of the program headers."""
_PROGRAM_HEADER = struct.Struct("=I4xQ16xQ")
"""Type, offset and size in the file."""
_INTERPRETER = 3
"""Type of the program header that names the dynamic linker."""
_NOT_PRELOADED = frozenset(" :$")
"""Characters that separate paths in LD_PRELOAD, or begin a variable (ld.so(8))."""
_MOST_PATH_BYTES = 107
"""Of a Unix socket (unix(7)); the library leaves a program without a NIC for a longer one."""
_GO = b"\xff Go buildinf:"


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
        This installation of softnic has no such library, or it cannot be preloaded by its path; the NIC's path is too
        long.
    """
    own = str(library())
    if set(own) & _NOT_PRELOADED:
        why = "LD_PRELOAD takes no path with a space, a colon or a $. Install softnic at another path"
        raise OSError(errno.EINVAL, f"{own} cannot be preloaded: {why}")
    if len(os.fsencode(nic)) > _MOST_PATH_BYTES:
        why = f"the path of a control socket has {_MOST_PATH_BYTES} bytes at most. Use a shorter one"
        raise OSError(errno.ENAMETOOLONG, f"{os.fspath(nic)}: {why}")
    others = [each for each in base.get("LD_PRELOAD", "").replace(":", " ").split() if each != own]
    return {**base, "SOFTNIC_NIC": os.fspath(nic), "LD_PRELOAD": " ".join([own, *others])}


def obstacle(program: str | os.PathLike[str]) -> str:
    """Return why the library has no effect in a program; empty if its file shows no such reason.

    The library takes the place of calls of the C library, in programs that the dynamic linker loads.
    """
    path = Path(program)
    if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid():
        return "it has privileges of its own (setuid)"
    with path.open("rb") as file:
        header = file.read(_PROGRAM_HEADERS.size)
        if header[:5] != b"\x7fELF\x02" or len(header) < _PROGRAM_HEADERS.size:  # a script, or of another word size
            return ""
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at, size, count = _PROGRAM_HEADERS.unpack_from(content)
            ends = min(len(content) - _PROGRAM_HEADER.size + 1, at + size * count)
            headers = [_PROGRAM_HEADER.unpack_from(content, start) for start in range(at, ends, size or 1)]
            linkers = [content[start : start + length] for kind, start, length in headers if kind == _INTERPRETER]
            if not linkers:
                return "it is statically linked"
            if b"musl" in linkers[0]:
                return "its C library is musl, and the preloaded library is for glibc"
            return "it is written in Go, which does not call the C library" if content.find(_GO) >= 0 else ""
