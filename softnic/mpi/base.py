"""Base of communicators: ranks, codec, and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from softnic.comm.bootstrap.launch import Launch
from softnic.comm.connections import CommConnections
from softnic.comm.error_classes import ERR_COMM
from softnic.comm.errors import ArgumentError
from softnic.mpi import attributes
from softnic.mpi.arguments import checks
from softnic.mpi.collectives.parts import CompressionOptions
from softnic.mpi.errhandlers import abort_job
from softnic.mpi.handles import Handle
from softnic.mpi.state import CommunicatorState


def _no_ranks() -> NoReturn:
    raise ArgumentError("MPI.COMM_NULL has no ranks", code=ERR_COMM)


def _null_state() -> CommunicatorState:
    state = CommunicatorState(_no_ranks)
    state.freed = True
    state.properties.name, state.properties.permanent = "MPI_COMM_NULL", True
    return state


class Base(Handle):
    """A communicator without calls. Calls of several threads are serialized.

    Parameters
    ----------
    of
        Its world; or a communicator, of which this becomes another name, as in mpi4py. None: it is a null communicator,
        which equals MPI.COMM_NULL and has no ranks.
    """

    null_code = ERR_COMM
    _state: CommunicatorState
    subset_class: ClassVar[type[Base]]
    """Of the communicators that Split, Create and Create_group make."""

    def __new__(cls, of: CommunicatorState | Base | None = None) -> Self:
        """Return a name for a communicator. Raises TypeError for one of another kind."""
        made = object.__new__(cls)
        if isinstance(of, CommunicatorState):
            made._state = of
            of.properties.named = of.properties.named or cls
        else:
            made._state = _null_state() if of is None else cls._state_of(of)
        return made

    @classmethod
    def _state_of(cls, of: Any) -> CommunicatorState:
        """Return the state of a communicator that a class takes. Raises TypeError."""
        if not isinstance(of, Base):
            raise TypeError(f"a communicator is expected, not {type(of).__name__}")
        if of and not cls._takes(of):
            raise TypeError(f"{of!r} is not a {cls.__name__}")
        return of._state

    @classmethod
    def _takes(cls, of: Base) -> bool:
        """Return whether this class can name a communicator."""
        del of
        return True

    @property
    def _target(self) -> CommunicatorState | None:
        return None if self._state.freed else self._state

    @_target.setter
    def _target(self, state: CommunicatorState | None) -> None:
        self._state = _null_state() if state is None else state

    def Get_rank(self) -> int:
        """Return the rank of this process."""
        return self._state.start().rank

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return self._state.start().size

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self._state.start().rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._state.start().size

    @property
    def launch(self) -> Launch:
        """How this rank was started, and the addresses of the ranks."""
        return self._state.launch

    @property
    def connected(self) -> bool:
        """Whether the ranks have connected."""
        return self._state.connections is not None

    @property
    def executed(self) -> bool:
        """Whether NICs execute this communicator's collectives: not before the ranks connect, nor with one rank."""
        connections = self._state.connections
        return connections is not None and connections.queue is not None

    @property
    def ended(self) -> bool:
        """Whether no call can be made any more, after Free or an error."""
        return self._state.ended

    def Init(self) -> None:
        """Connect to the other ranks now instead of at the first call."""
        with self._state.call("Init"):
            pass

    def Abort(self, errorcode: int = 1) -> NoReturn:
        """End this process by SystemExit with `errorcode`; other ranks get an error in their current or next call.

        `softnic run` ends with this exit code, whichever rank ends first and whichever thread calls this. With other
        launchers a thread that is not the main one ends itself only.
        """
        abort_job(self._state, f"Abort({errorcode}) on rank {self.rank}", errorcode)
        raise SystemExit(errorcode)

    def Free(self) -> None:
        """Leave the communicator and close its connections.

        Requests that are not complete are given up, which is an error on every rank that waits for them: wait first.
        Raises ArgumentError for MPI.COMM_NULL, and for MPI.COMM_WORLD and MPI.COMM_SELF, which stay.
        """
        state = self._state
        if state.properties.permanent:
            raise ArgumentError(f"{state.properties.name} cannot be freed", code=ERR_COMM)
        attributes.delete_all(self, state.properties.attributes)
        state.free()

    def _options(self, connections: CommConnections, codec: Any, algorithm: Any = None) -> CompressionOptions:
        """Return the checked keywords of a compressed call."""
        chosen = self._state.default_codec(connections) if codec is None else checks.codec_of(codec)
        return CompressionOptions(str(chosen), None if chosen.name == "raw" else chosen, checks.algorithm_of(algorithm))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"softnic's communicators have no {name}: docs/mpi4py.md says what there is")

    def __repr__(self) -> str:
        if not self:
            return "<Communicator: MPI.COMM_NULL>"
        launch = self._state.launch
        return f"<Communicator: rank {launch.rank} of {launch.size}>"
