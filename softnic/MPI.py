"""Message passing by mpi4py's names: `from softnic import MPI`.

    comm = MPI.COMM_WORLD
    comm.Allreduce(MPI.IN_PLACE, gradient)                              # exact
    comm.Allreduce_comp(MPI.IN_PLACE, gradient, codec="bounded:10")     # compressed by the NICs on the way
    request = comm.Iallreduce_comp(MPI.IN_PLACE, gradient)              # executed by the NICs; request.Wait()

Importing has no side effects. The first use of the rank or number of ranks, or the first call, reads the environment
and starts to connect this rank with the others while the program continues.
"""

from __future__ import annotations

import os
import time

from softnic.comm import type_constants
from softnic.comm.bootstrap.discovery import discover
from softnic.comm.bootstrap.launch import NOWHERE, Launch, from_environment
from softnic.comm.buffers import IN_PLACE
from softnic.comm.communicator import Communicator
from softnic.comm.errors import ArgumentError
from softnic.comm.errors import CommError as Exception
from softnic.comm.p2p import ANY_SOURCE, ANY_TAG, PROC_NULL, UNDEFINED, Status
from softnic.comm.pickling import Pickle, pickle
from softnic.comm.request import REQUEST_NULL, Request
from softnic.comm.state import CommunicatorState
from softnic.comm.subsets import Group
from softnic.comm.type_constants import *  # noqa: F403

Comm = Communicator
Intracomm = Communicator
COMM_NULL = None
"""Result of Split, Create and Create_group on ranks that get no communicator. A freed communicator equals it."""
COMM_WORLD = Communicator(CommunicatorState(lambda: from_environment(os.environ), find=discover))
"""All ranks of this job."""
COMM_SELF = Communicator(CommunicatorState(Launch(0, (NOWHERE,), "none", found="this process alone")))
"""This process alone."""

__all__ = [
    "ANY_SOURCE", "ANY_TAG", "COMM_NULL", "COMM_SELF", "COMM_WORLD", "Group", "IN_PLACE", "Intracomm", "PROC_NULL",
    "REQUEST_NULL", "UNDEFINED", "ArgumentError", "Comm", "Exception", "Finalize", "Init", "Is_finalized",
    "Is_initialized", "Pickle", "Request", "Status", "Wtime", "pickle", *type_constants.__all__,
]  # fmt: skip


def Init() -> None:
    """Connect with the other ranks now instead of at the first call; wait until all are there."""
    COMM_WORLD.Init()


def Is_initialized() -> bool:
    """Return whether the ranks are connected."""
    return COMM_WORLD.connected


def Finalize() -> None:
    """Leave COMM_WORLD: this rank makes no more calls. The end of the program does the same.

    It does not wait for Requests: those in progress fail on every rank that waits for them.
    """
    COMM_WORLD._state.leave("it was finalized")


def Is_finalized() -> bool:
    """Return whether COMM_WORLD has ended, by Finalize or by an error."""
    return COMM_WORLD.ended


def Wtime() -> float:
    """Return the time in seconds since some moment in the past."""
    return time.perf_counter()
