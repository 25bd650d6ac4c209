"""What all calls of a communicator share: ranks, the codec, and the end."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from softnic.comm import buffers
from softnic.comm.finding import by_environment
from softnic.comm.launch import Launch, from_environment
from softnic.comm.session import Session
from softnic.comm.tasks import Chosen
from softnic.comm.world import World


class Base:
    """A communicator without calls. Not for several threads that would have to agree on an order: calls queue up."""

    def __init__(self, world: World | None = None) -> None:
        self._world = world or World(lambda: from_environment(os.environ), find=by_environment)

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

    def __repr__(self) -> str:
        launch = self._world.launch
        return f"<Communicator: rank {launch.rank} of {launch.size}>"
