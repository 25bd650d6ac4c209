"""What all calls of a communicator share: ranks, the codec, and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from softnic.comm import buffers
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.connections import Session
from softnic.comm.errors import CommError
from softnic.comm.public_names import PublicNames
from softnic.comm.state import World
from softnic.comm.tasks import Chosen


def _no_ranks() -> NoReturn:
    raise CommError("MPI.COMM_NULL has no ranks")


def _null_world() -> World:
    world = World(_no_ranks)
    world.freed = True
    return world


class Base(PublicNames):
    """A communicator without calls. Not for several threads that would have to agree on an order: calls queue up.

    Parameters
    ----------
    of
        Its world; or a communicator, of which this becomes another name, as in mpi4py. None: it is a null communicator,
        which equals MPI.COMM_NULL and has no ranks.
    """

    def __init__(self, of: World | Base | None = None) -> None:
        self._world: World = _null_world() if of is None else of._world if isinstance(of, Base) else of

    def Get_rank(self) -> int:
        return self._world.start().rank

    def Get_size(self) -> int:
        return self._world.start().size

    @property
    def rank(self) -> int:
        return self._world.start().rank

    @property
    def size(self) -> int:
        return self._world.start().size

    @property
    def launch(self) -> Launch:
        """Who started this rank, and where the ranks are."""
        return self._world.launch

    @property
    def connected(self) -> bool:
        """Whether the ranks have met."""
        return self._world.connected

    @property
    def executed(self) -> bool:
        """Whether NICs execute this communicator's I... calls: not before the ranks have met, nor alone."""
        return self._world.executed

    @property
    def ended(self) -> bool:
        """Whether no call can be made any more, after Free or an error."""
        return self._world.ended

    def Init(self) -> None:
        """Meets the other ranks now instead of at the first call."""
        with self._world.call("Init"):
            pass

    def Abort(self, errorcode: int = 1) -> NoReturn:
        """Ends this process by SystemExit; every other rank gets an error in its current or next call."""
        self._world.abort(f"Abort({errorcode}) on rank {self.rank}")
        raise SystemExit(errorcode)

    def Free(self) -> None:
        """Leaves the communicator: this rank makes no more calls, and its connections close. Requests that are not
        complete are given up: an error on every rank that waits for them, so wait first."""
        self._world.free()

    def _chosen(self, session: Session, codec: Any, algorithm: Any = None) -> Chosen:
        """What the keywords of a compressed call mean."""
        chosen = self._world.default_codec(session) if codec is None else buffers.codec_of(codec)
        return Chosen(str(chosen), None if chosen.name == "raw" else chosen, buffers.algorithm_of(algorithm))

    def __bool__(self) -> bool:
        """Whether it is not MPI.COMM_NULL: false after Free."""
        return not self._world.freed

    def __eq__(self, other: object) -> bool:
        if other is None:
            return not self
        if not isinstance(other, Base):
            return NotImplemented
        return self._world is other._world or not (self or other)

    def __hash__(self) -> int:
        return hash(id(self._world))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"softnic's communicators have no {name}: docs/mpi4py.md says what there is")

    def __repr__(self) -> str:
        if not self:
            return "<Communicator: MPI.COMM_NULL>"
        launch = self._world.launch
        return f"<Communicator: rank {launch.rank} of {launch.size}>"
