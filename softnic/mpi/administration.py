"""Calls about a communicator itself: comparison, names, attributes, info, error handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softnic.comm.error_classes import ERR_COMM, SUCCESS
from softnic.comm.error_codes import CODES
from softnic.comm.errors import ArgumentError, CommError
from softnic.mpi import constants, errhandlers
from softnic.mpi.attributes import AttributeCalls
from softnic.mpi.base import Base
from softnic.mpi.constants import MAX_OBJECT_NAME, PROC_NULL, UNDEFINED
from softnic.mpi.errhandlers import ERRORS_RETURN, Errhandler
from softnic.mpi.groups import Group
from softnic.mpi.info import Info
from softnic.mpi.properties import CommProperties

_MOST_TAG = (1 << 31) - 1


class Administration(Base, AttributeCalls):
    """What a communicator is, and what a program attaches to it."""

    def _properties(self) -> CommProperties:
        """Return the properties. Raises ArgumentError for MPI.COMM_NULL."""
        if not self:
            raise ArgumentError("MPI.COMM_NULL has no ranks", code=ERR_COMM)
        return self._state.properties

    def Get_group(self) -> Group:
        """Return the group of all ranks."""
        self._properties()
        processes = self._state.processes
        return Group.of(processes, processes[self.rank])

    def Compare(self, comm: Base) -> int:
        """Return IDENT if `comm` is the same communicator; CONGRUENT, SIMILAR or UNEQUAL as their groups compare."""
        self._properties()
        if not isinstance(comm, Administration):
            raise TypeError(f"a communicator is expected, not {type(comm).__name__}")
        comm._properties()
        if self._state is comm._state:
            return constants.IDENT
        compared = self.Get_group().Compare(comm.Get_group())
        return constants.CONGRUENT if compared == constants.IDENT else compared

    def Is_inter(self) -> bool:
        """Return whether it joins two groups."""
        self._properties()
        return False

    def Is_intra(self) -> bool:
        """Return whether it has one group."""
        return not self.Is_inter()

    def Get_topology(self) -> int:
        """Return MPI.CART, MPI.GRAPH, MPI.DIST_GRAPH, or MPI.UNDEFINED without a topology."""
        topology = self._properties().topology
        return UNDEFINED if topology is None else int(topology.kind)

    def Disconnect(self) -> None:
        """Leave the communicator, as Free does."""
        self._properties()
        self.Free()

    group = property(Get_group)
    is_inter = property(Is_inter)
    is_intra = property(Is_intra)
    topology = property(Get_topology)

    @property
    def is_topo(self) -> bool:
        """Whether it has a topology."""
        return self.Get_topology() != UNDEFINED

    # Names and info

    def Get_name(self) -> str:
        """Return the name that it was given; empty without one."""
        return self._state.properties.name

    def Set_name(self, name: str) -> None:
        """Give it a name of at most MAX_OBJECT_NAME characters."""
        self._properties().name = name[:MAX_OBJECT_NAME]

    @property
    def name(self) -> str:
        """The name that it was given; empty without one."""
        return self.Get_name()

    @name.setter
    def name(self, name: str) -> None:
        self.Set_name(name)

    def Get_info(self) -> Info:
        """Return a copy of its info."""
        return Info.Create(self._properties().info)

    def Set_info(self, info: Info) -> None:
        """Keep the pairs of `info`. No call depends on them."""
        self._properties().info.update(info.items())

    @property
    def info(self) -> Info:
        """A copy of its info."""
        return self.Get_info()

    @info.setter
    def info(self, info: Info) -> None:
        self.Set_info(info)

    # Attributes

    def Get_attr(self, keyval: int) -> Any:
        """Return the value of the key `keyval`, None if there is none. Raises ArgumentError for KEYVAL_INVALID.

        Keys of MPI are TAG_UB, HOST, IO, WTIME_IS_GLOBAL, UNIVERSE_SIZE, APPNUM and LASTUSEDCODE.
        """
        self._properties()
        match keyval:
            case constants.TAG_UB:
                return _MOST_TAG
            case constants.HOST:
                return PROC_NULL
            case constants.IO:
                return self.rank
            case constants.WTIME_IS_GLOBAL:
                return False
            case constants.UNIVERSE_SIZE:
                return self.size
            case constants.APPNUM:
                return 0
            case constants.LASTUSEDCODE:
                return CODES.last_used
        return super().Get_attr(keyval)

    def _attribute_values(self) -> dict[int, Any]:
        return self._properties().attributes

    # Error handlers

    @classmethod
    def Create_errhandler(cls, errhandler_fn: Callable[[Any, int], Any]) -> Errhandler:
        """Return a handler that calls a function with the communicator and the error code before an error is raised."""
        return errhandlers.created(errhandler_fn)

    def Get_errhandler(self) -> Errhandler:
        """Return its error handler; at first MPI.ERRORS_RETURN."""
        return Errhandler._named(self._properties().on_error)

    def Set_errhandler(self, errhandler: Errhandler) -> None:
        """Set the error handler to `errhandler`. Raises ArgumentError if it is null."""
        self._properties().on_error = errhandler._live()

    def Call_errhandler(self, errorcode: int) -> None:
        """Have the error handler act on `errorcode`, except MPI.SUCCESS."""
        action = self._properties().on_error
        if errorcode != SUCCESS and action is not ERRORS_RETURN._target:
            action.run(self._state, self, CommError(errorcode))
