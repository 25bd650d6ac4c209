"""Base of communicators: ranks, codec, and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from softnic.comm import buffers
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.collective_args import CompressionOptions
from softnic.comm.connections import CommConnections
from softnic.comm.errors import CommError
from softnic.comm.public_names import PublicNames
from softnic.comm.state import CommunicatorState


def _no_ranks() -> NoReturn:
    raise CommError("MPI.COMM_NULL has no ranks")


def _null_state() -> CommunicatorState:
    state = CommunicatorState(_no_ranks)
    state.freed = True
    return state


class Base(PublicNames):
    """A communicator without calls. Calls of several threads are serialized.

    Parameters
    ----------
    of
        Its world; or a communicator, of which this becomes another name, as in mpi4py. None: it is a null communicator,
        which equals MPI.COMM_NULL and has no ranks.
    """

    def __init__(self, of: CommunicatorState | Base | None = None) -> None:
        self._state: CommunicatorState = _null_state() if of is None else of._state if isinstance(of, Base) else of

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
        return self._state.connected

    @property
    def executed(self) -> bool:
        """Whether NICs execute this communicator's collectives: not before the ranks connect, nor with one rank."""
        return self._state.executed

    @property
    def ended(self) -> bool:
        """Whether no call can be made any more, after Free or an error."""
        return self._state.ended

    def Init(self) -> None:
        """Connect to the other ranks now instead of at the first call."""
        with self._state.call("Init"):
            pass

    def Abort(self, errorcode: int = 1) -> NoReturn:
        """End this process by SystemExit with `errorcode`; other ranks get an error in their current or next call."""
        self._state.abort(f"Abort({errorcode}) on rank {self.rank}")
        raise SystemExit(errorcode)

    def Free(self) -> None:
        """Leave the communicator and close its connections.

        Requests that are not complete are given up, which is an error on every rank that waits for them: wait first.
        """
        self._state.free()

    def _options(self, connections: CommConnections, codec: Any, algorithm: Any = None) -> CompressionOptions:
        """Return the checked keywords of a compressed call."""
        chosen = self._state.default_codec(connections) if codec is None else buffers.codec_of(codec)
        return CompressionOptions(
            str(chosen), None if chosen.name == "raw" else chosen, buffers.algorithm_of(algorithm)
        )

    def __bool__(self) -> bool:
        """Whether it is not MPI.COMM_NULL: false after Free."""
        return not self._state.freed

    def __eq__(self, other: object) -> bool:
        if other is None:
            return not self
        if not isinstance(other, Base):
            return NotImplemented
        return self._state is other._state or not (self or other)

    def __hash__(self) -> int:
        return hash(id(self._state))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"softnic's communicators have no {name}: docs/mpi4py.md says what there is")

    def __repr__(self) -> str:
        if not self:
            return "<Communicator: MPI.COMM_NULL>"
        launch = self._state.launch
        return f"<Communicator: rank {launch.rank} of {launch.size}>"
