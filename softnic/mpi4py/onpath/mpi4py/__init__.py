"""The package `mpi4py` of programs that run on softnic: `mpi4py.MPI` is softnic.MPI.

Modules that this folder does not have are those of the installed mpi4py, if there is one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["MPI", "get_config", "get_include", "profile", "rc"]

_HERE = Path(__file__).parent
_INTERFACE = "4.1.2"
"""The version of mpi4py whose interface softnic.MPI follows."""


def _installed() -> Path | None:
    """Return the folder of the installed mpi4py."""
    others = [place for place in sys.path if Path(place or ".").resolve() != _HERE.parent]
    spec = importlib.machinery.PathFinder.find_spec("mpi4py", others)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _version() -> str:
    """Return the version of the installed mpi4py; that of the interface where a folder of sources has no metadata."""
    try:
        return importlib.metadata.version("mpi4py") if _REAL else _INTERFACE
    except importlib.metadata.PackageNotFoundError:
        return _INTERFACE


_REAL = _installed()
__path__ = [str(_HERE), *([str(_REAL)] if _REAL else [])]
__version__ = _version()


class Rc:
    """Options that take effect when `mpi4py.MPI` is imported.

    Attributes
    ----------
    initialize : bool
        Initialize MPI at the import.
    threads : bool
        Request support of threads.
    thread_level : {"multiple", "serialized", "funneled", "single"}
        The level to request.
    finalize : bool or None
        Finalize MPI at the end of the program.
    fast_reduce, recv_mprobe, irecv_bufsz : bool, bool, int
        Accepted; softnic needs none of them.
    errors : {"exception", "default", "abort", "fatal"}
        What an error of a call does.
    """

    initialize = True
    threads = True
    thread_level = "multiple"
    finalize: bool | None = None
    fast_reduce = True
    recv_mprobe = True
    irecv_bufsz = 32768
    errors = "exception"

    def __init__(self, **options: Any) -> None:
        self(**options)

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(self, name):
            raise TypeError(f"mpi4py.rc has no option {name!r}")
        super().__setattr__(name, value)

    def __call__(self, **options: Any) -> None:
        """Set options; none is set if one of them is unknown."""
        for name in options:
            if not hasattr(self, name):
                raise TypeError(f"mpi4py.rc has no option {name!r}")
        for name, value in options.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return "<mpi4py.rc>"


rc = Rc()
sys.modules["mpi4py.rc"] = rc  # type: ignore[assignment]


def get_include() -> str:
    """Return the folder of the installed mpi4py's headers. They are those of a C library: softnic has none."""
    return str((_REAL or _HERE) / "include")


def get_config() -> dict[str, str]:
    """Return an empty dictionary: no MPI library was built against."""
    return {}


def profile(name: str | bytes, *, path: Any = None) -> None:
    """Warn that a profiler is not loaded: profilers of MPI wrap a C library, which softnic is not.

    Parameters
    ----------
    name
        Name of the profiler's library.
    path
        Folders to look for it in: one, several, or a text with colons.

    Raises
    ------
    ValueError
        If there is no such library.
    """
    name = os.fsdecode(name)
    places: Iterable[Any] = [""] if path is None else path
    if isinstance(path, str | bytes):
        places = os.fsdecode(path).split(os.pathsep)
    elif isinstance(path, os.PathLike):
        places = [path]
    files = [Path(os.fsdecode(place), file) for place in places for file in (name, f"lib{name}.so")]
    if not any(file.is_file() for file in files):
        raise ValueError(f"profiler {name!r} not found")
    warnings.warn(
        f"profiler {name!r} is not loaded: softnic has no C library of MPI to wrap; see `softnic stat` and "
        "`softnic capture`",
        stacklevel=2,
    )
