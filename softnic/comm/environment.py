"""What a program asks about this process and this library."""

from __future__ import annotations

import math
import platform
import threading
import time
from importlib import metadata

from softnic.comm import constants
from softnic.comm.info import Info


def Get_processor_name() -> str:
    """Return the name of this host."""
    return platform.node()


def Get_version() -> tuple[int, int]:
    """Return the version of the MPI standard whose names softnic.MPI has."""
    return constants.VERSION, constants.SUBVERSION


def Get_library_version() -> str:
    """Return the name and the version of this library."""
    return f"softnic {_version()}"


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """Return the name of this library and its version in three numbers."""
    numbers = [int(part) if part.isdigit() else 0 for part in _version().split(".")[:3]]
    major, minor, micro = (*numbers, 0, 0, 0)[:3]
    return "softnic", (major, minor, micro)


def _version() -> str:
    try:
        return metadata.version("softnic")
    except metadata.PackageNotFoundError:
        return "0.0.0"


def Query_thread() -> int:
    """Return what threads may do: all may call, and a communicator makes one call at a time."""
    return constants.THREAD_SERIALIZED


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
