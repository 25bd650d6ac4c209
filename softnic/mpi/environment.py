"""What a program asks about this process and this library."""

from __future__ import annotations

import math
import platform
import threading
import time
from typing import Any

from softnic.mpi import constants
from softnic.mpi.info import INFO_NULL, Info
from softnic.version import version

_INTEGER_BYTES = 8


def Get_processor_name() -> str:
    """Return the name of this host."""
    return platform.node()


def Get_version() -> tuple[int, int]:
    """Return the version of the MPI standard whose names softnic.MPI has."""
    return constants.VERSION, constants.SUBVERSION


def Get_library_version() -> str:
    """Return the name and the version of this library."""
    return f"softnic {version()}"


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """Return the name of this library and its version in three numbers."""
    numbers = [int(part) if part.isdigit() else 0 for part in version().split(".")[:3]]
    major, minor, micro = (*numbers, 0, 0, 0)[:3]
    return "softnic", (major, minor, micro)


class Lifetime:
    """Where this process is between MPI's beginning and its end, as `mpi4py.rc` and the program say."""

    initialized = True
    finalized = False
    abort_status = 0
    """Exit status with which the program ends the job; 0: with its own alone."""


LIFETIME = Lifetime()


def Query_thread() -> int:
    """Return what threads may do: all may call at the same time, and wait for what another one does."""
    return constants.THREAD_MULTIPLE


def Is_thread_main() -> bool:
    """Return whether this is the main thread."""
    return threading.current_thread() is threading.main_thread()


def Wtime() -> float:
    """Return the time in seconds since some moment in the past."""
    return time.perf_counter()


def Wtick() -> float:
    """Return the resolution of Wtime in seconds."""
    return max(time.get_clock_info("perf_counter").resolution, math.ulp(1.0))


def Pcontrol(level: int) -> None:
    """Do nothing, whatever the `level`: there is no profiler to control."""
    del level


def Get_hw_resource_info() -> Info:
    """Return an empty Info: nothing is known about the host's parts."""
    return Info.Create()


def Get_abi_version() -> tuple[int, int]:
    """Return (-1, -1): there is no interface in C."""
    return -1, -1


def Get_abi_info() -> Info:
    """Return the sizes in bytes of MPI's integers."""
    return Info.Create({f"mpi_{name}_size": str(_INTEGER_BYTES) for name in ("aint", "count", "offset")})


def Get_abi_fortran_info() -> Info:
    """Return MPI.INFO_NULL: there is no interface in Fortran."""
    return INFO_NULL


def _set_abort_status(status: int) -> None:
    """End the job with this status when the program ends, as `python -m mpi4py` asks for after an error."""
    LIFETIME.abort_status = status


def _sizeof(thing: Any) -> int:
    """Return the size in bytes of the handle of an object, or of a class, of MPI."""
    kind = thing if isinstance(thing, type) else type(thing)
    if not any(base.__module__.startswith(("softnic.mpi.", "softnic.comm.")) for base in kind.__mro__):
        raise TypeError(f"an object of MPI is expected, not {kind.__name__}")
    return _INTEGER_BYTES


def _addressof(thing: Any) -> int:
    """Return the address of an object of MPI."""
    _sizeof(thing)
    return id(thing)


def _handleof(thing: Any) -> int:
    """Return the handle of an object of MPI."""
    _sizeof(thing)
    return int(getattr(thing, "handle", 0))
