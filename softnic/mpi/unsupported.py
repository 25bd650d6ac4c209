"""What MPI has and softnic.MPI has not: windows, files, new processes, sessions. Each error names the alternative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from softnic.comm.error_classes import ERR_UNSUPPORTED_OPERATION
from softnic.comm.errors import CommError
from softnic.mpi.handles import Handle, constant

WINDOWS = (
    "softnic.MPI has no windows (one-sided communication): Isend and Irecv move data while a program computes, and a "
    "thread can serve requests with Recv from MPI.ANY_SOURCE"
)
SHARED = (
    "softnic.MPI has no windows of shared memory: the ranks of a host, Split_type(MPI.COMM_TYPE_SHARED), can share "
    "multiprocessing.shared_memory"
)
FILES = (
    "softnic.MPI has no files: each rank writes its part with numpy.memmap or os.pwrite, or one rank writes what "
    "Gather brings it"
)
PROCESSES = (
    "softnic.MPI starts no processes: start all ranks at once, `softnic run -n N` or mpirun, and divide them by Split, "
    "or start more and have them Connect; pools of mpi4py.futures run as `python -m mpi4py.futures program.py` or by "
    "MPICommExecutor"
)
SESSIONS = "softnic.MPI has no sessions: MPI.COMM_WORLD has all ranks, and Create_group makes communicators of some"
TWO_GROUPS = "communicators of two groups have neither scans nor compressed collectives: Merge makes one of all ranks"
PARTITIONS = "softnic.MPI has no partitioned messages: Isend each partition when it is ready"
NO_REPRESENTATIONS = "softnic.MPI has no files, and so no representations of data in them"


_IGNORED = """

Parameters
----------
arguments, keywords
    Ignored.
"""


class UnsupportedError(CommError, NotImplementedError):
    """A call that MPI has and softnic.MPI has not. The communicator remains usable."""


def refused(name: str, alternative: str) -> Callable[..., NoReturn]:
    """Return a function that raises UnsupportedError."""

    def call(*_arguments: Any, **_keywords: Any) -> NoReturn:
        raise UnsupportedError(f"{name}: {alternative}", code=ERR_UNSUPPORTED_OPERATION)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Raise an error: {alternative}.{_IGNORED}"
    return call


class _NeverMade:
    """An object that is always null, whose every call is refused."""

    _alternative = ""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return refused(f"{type(self).__name__}.{name}", self._alternative)


class Win(_NeverMade, Handle):
    """A window for one-sided communication, which softnic.MPI does not have: `MPI.WIN_NULL` is the only one."""

    _alternative = WINDOWS
    Create = staticmethod(refused("Win.Create", WINDOWS))
    Allocate = staticmethod(refused("Win.Allocate", WINDOWS))
    Create_dynamic = staticmethod(refused("Win.Create_dynamic", WINDOWS))
    Allocate_shared = staticmethod(refused("Win.Allocate_shared", SHARED))
    Create_keyval = staticmethod(refused("Win.Create_keyval", WINDOWS))
    Free_keyval = staticmethod(refused("Win.Free_keyval", WINDOWS))
    Create_errhandler = staticmethod(refused("Win.Create_errhandler", WINDOWS))


class File(_NeverMade, Handle):
    """A file that ranks share, which softnic.MPI does not have: `MPI.FILE_NULL` is the only one."""

    _alternative = FILES
    Open = staticmethod(refused("File.Open", FILES))
    Delete = staticmethod(refused("File.Delete", FILES))
    Create_errhandler = staticmethod(refused("File.Create_errhandler", FILES))


class Session(_NeverMade, Handle):
    """A session of MPI 4, which softnic.MPI does not have: `MPI.SESSION_NULL` is the only one."""

    _alternative = SESSIONS
    Init = staticmethod(refused("Session.Init", SESSIONS))
    Create_errhandler = staticmethod(refused("Session.Create_errhandler", SESSIONS))


class UnsupportedCalls:
    """The calls of communicators that softnic.MPI refuses."""

    Spawn = refused("Spawn", PROCESSES)
    Spawn_multiple = refused("Spawn_multiple", PROCESSES)
    Create_from_group = staticmethod(refused("Create_from_group", SESSIONS))
    Psend_init = refused("Psend_init", PARTITIONS)
    Precv_init = refused("Precv_init", PARTITIONS)


WIN_NULL = constant("WIN_NULL", Win())
FILE_NULL = constant("FILE_NULL", File())
SESSION_NULL = constant("SESSION_NULL", Session())
Register_datarep = refused("Register_datarep", NO_REPRESENTATIONS)
