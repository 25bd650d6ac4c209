"""Message passing by mpi4py's names: `from softnic import MPI`.

    comm = MPI.COMM_WORLD
    comm.Allreduce(MPI.IN_PLACE, gradient)                              # exact
    comm.Allreduce_comp(MPI.IN_PLACE, gradient, codec="rht:4")          # compressed by the NICs on the way
    request = comm.Iallreduce_comp(MPI.IN_PLACE, gradient)              # executed by the NICs; request.Wait()

Importing has no side effects. The first use of the rank or number of ranks, or the first call, reads the environment
and starts to connect this rank with the others while the program continues.
"""

from __future__ import annotations

import atexit
import os
from typing import Any

from softnic.comm import error_classes
from softnic.comm.bootstrap.discovery import discover
from softnic.comm.bootstrap.launch import NOWHERE, Launch, from_environment
from softnic.comm.error_classes import *  # noqa: F403
from softnic.comm.error_codes import error_class as Get_error_class
from softnic.comm.error_codes import error_string as Get_error_string
from softnic.comm.errors import ArgumentError
from softnic.comm.errors import CommError as Exception
from softnic.mpi import constants, type_constants
from softnic.mpi.added_errors import add_class as Add_error_class
from softnic.mpi.added_errors import add_code as Add_error_code
from softnic.mpi.added_errors import add_string as Add_error_string
from softnic.mpi.added_errors import remove_class as Remove_error_class
from softnic.mpi.added_errors import remove_code as Remove_error_code
from softnic.mpi.added_errors import remove_string as Remove_error_string
from softnic.mpi.arguments.buffers import IN_PLACE
from softnic.mpi.communicator import Cartcomm, Comm, Communicator, Distgraphcomm, Graphcomm, Intercomm, Topocomm
from softnic.mpi.constants import *  # noqa: F403
from softnic.mpi.contexts import (  # mpi4py's modules name them
    _comm_lock,  # noqa: F401
    _comm_lock_table,  # noqa: F401
    _commctx_inter,  # noqa: F401
    _commctx_intra,  # noqa: F401
)
from softnic.mpi.environment import (
    LIFETIME,
    Get_abi_fortran_info,
    Get_abi_info,
    Get_abi_version,
    Get_hw_resource_info,
    Get_library_version,
    Get_processor_name,
    Get_version,
    Is_thread_main,
    Pcontrol,
    Query_thread,
    Wtick,
    Wtime,
    _addressof,  # noqa: F401
    _handleof,  # noqa: F401
    _set_abort_status,  # noqa: F401
    _sizeof,  # noqa: F401
    get_vendor,
)
from softnic.mpi.errhandlers import (
    ERRHANDLER_NULL,
    ERRORS_ABORT,
    ERRORS_ARE_FATAL,
    ERRORS_RETURN,
    Errhandler,
    abort_job,
)
from softnic.mpi.groups import GROUP_EMPTY, GROUP_NULL, Group
from softnic.mpi.handles import constant
from softnic.mpi.info import INFO_ENV, INFO_NULL, Info
from softnic.mpi.names import Lookup_name, Publish_name, Unpublish_name
from softnic.mpi.p2p import bsend
from softnic.mpi.p2p.bsend import BUFFER_AUTOMATIC
from softnic.mpi.p2p.persistent import Prequest
from softnic.mpi.p2p.probe import MESSAGE_NO_PROC, MESSAGE_NULL, Message
from softnic.mpi.pickling import Pickle, pickle
from softnic.mpi.ports import Close_port, Open_port
from softnic.mpi.properties import CommProperties
from softnic.mpi.requests.grequest import Grequest
from softnic.mpi.requests.request import REQUEST_NULL, Request
from softnic.mpi.requests.status import Status
from softnic.mpi.state import CommunicatorState
from softnic.mpi.topology.topologies import balanced as Compute_dims
from softnic.mpi.type_constants import *  # noqa: F403
from softnic.mpi.unsupported import (
    FILE_NULL,
    SESSION_NULL,
    WIN_NULL,
    File,
    Register_datarep,
    Session,
    Win,
)

Intracomm = Communicator
COMM_NULL = constant("COMM_NULL", Comm())
"""Equal to every communicator that has no ranks: of Split and Create on ranks that get none, and after Free."""
_world = CommProperties(name="MPI_COMM_WORLD", permanent=True)
COMM_WORLD = constant(
    "COMM_WORLD",
    Communicator(CommunicatorState(lambda: from_environment(os.environ), find=discover, properties=_world)),
)
"""All ranks of this job."""
_self = CommProperties(lambda: (COMM_WORLD.launch.rank,), permanent=True, name="MPI_COMM_SELF")
COMM_SELF = constant(
    "COMM_SELF",
    Communicator(CommunicatorState(Launch(0, (NOWHERE,), "none", found="this process alone"), properties=_self)),
)
"""This process alone."""

__all__ = [
    "COMM_NULL", "COMM_SELF", "COMM_WORLD", "ERRHANDLER_NULL", "ERRORS_ABORT", "ERRORS_ARE_FATAL",
    "ERRORS_RETURN", "GROUP_EMPTY", "GROUP_NULL", "INFO_ENV", "INFO_NULL", "IN_PLACE",
    "REQUEST_NULL", "BUFFER_AUTOMATIC", "MESSAGE_NO_PROC", "MESSAGE_NULL", "Message", "Prequest", "Grequest",
    "Attach_buffer", "Detach_buffer", "Flush_buffer", "Iflush_buffer",
    "FILE_NULL", "SESSION_NULL", "WIN_NULL", "Close_port", "File", "Get_abi_fortran_info",
    "Get_abi_info", "Get_abi_version", "Lookup_name", "Open_port", "Publish_name", "Register_datarep", "Session",
    "Unpublish_name", "Win",
    "Add_error_class", "Add_error_code", "Add_error_string", "ArgumentError", "Cartcomm", "Comm", "Compute_dims",
    "Distgraphcomm", "Errhandler", "Exception", "Finalize", "Get_error_class", "Get_error_string",
    "Get_hw_resource_info", "Get_library_version", "Get_processor_name", "Get_version", "Graphcomm", "Group", "Info",
    "Init", "Init_thread", "Intercomm", "Intracomm", "Is_finalized", "Is_initialized", "Is_thread_main",
    "Pcontrol", "Pickle", "Query_thread", "Remove_error_class", "Remove_error_code", "Remove_error_string", "Request",
    "Status", "Topocomm", "Wtick", "Wtime", "get_vendor", "pickle", *type_constants.__all__, *constants.__all__,
    *error_classes.__all__,
]  # fmt: skip


def Init() -> None:
    """Connect with the other ranks now instead of at the first call; wait until all are there."""
    LIFETIME.initialized = True
    COMM_WORLD.Init()


def Init_thread(required: int = constants.THREAD_MULTIPLE) -> int:
    """Connect as Init does, and return what threads may do (Query_thread), whatever is required."""
    del required
    Init()
    return Query_thread()


def Is_initialized() -> bool:
    """Return True: calls can be made after the import. If `mpi4py.rc.initialize` is False: whether Init was called."""
    return LIFETIME.initialized


def Finalize() -> None:
    """Leave COMM_WORLD: this rank makes no more calls. The end of the program does the same.

    It does not wait for Requests: those in progress fail on every rank that waits for them.
    """
    LIFETIME.finalized = True
    COMM_WORLD._state.leave("it was finalized")


def Is_finalized() -> bool:
    """Return whether Finalize was called."""
    return LIFETIME.finalized


def Attach_buffer(buf: Any) -> None:
    """Use the buffer `buf` for the buffered sends of this process; MPI.BUFFER_AUTOMATIC has no limit."""
    bsend.attach(None, buf)


def Detach_buffer() -> Any:
    """Return the attached buffer, once all messages in it are sent."""
    return bsend.detach(None)


def Flush_buffer() -> None:
    """Return when all messages in the attached buffer are sent."""
    bsend.flush(None)


def Iflush_buffer() -> Request:
    """Start Flush_buffer, and return its Request."""
    return Request(bsend.Flush("Iflush_buffer", None))


@atexit.register
def _end_the_job() -> None:
    if LIFETIME.abort_status and COMM_WORLD.connected:
        status = LIFETIME.abort_status
        abort_job(COMM_WORLD._state, f"rank {COMM_WORLD.rank} ends with exit status {status}", status)
