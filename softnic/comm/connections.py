"""The connections of a communicator, once its ranks have met, and what makes progress on them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from softnic.comm import messages
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.bootstrap.mesh import MeshBuilder
from softnic.comm.bootstrap.presence import Presence
from softnic.comm.diagnosis.explanation import MORE, why_mismatched
from softnic.comm.errors import CommError
from softnic.comm.matching import Matcher
from softnic.comm.nic_memory import NicMemory
from softnic.comm.offload_queue import Failure, OffloadQueue, QueueOwner
from softnic.comm.peer import Mesh
from softnic.comm.pending import MessageEngine
from softnic.comm.progress import Progress
from softnic.comm.scratch import Scratch
from softnic.comm.transport import Transport
from softnic.comm.zerocopy_channel import ZeroCopyChannel


class CommConnections:
    """The connections to all other ranks. A single rank has none, and makes every call alone."""

    def __init__(
        self,
        launch: Launch,
        transport: Transport | None,
        listener: socket.socket | None,
        presence: Presence | None = None,
    ) -> None:
        mesh: Mesh = {}
        if launch.size > 1:
            transport = transport or Transport()
            mesh = MeshBuilder(launch, transport, listener, presence).run()
        self._mesh = mesh
        self.progress = Progress(launch.rank, mesh, transport)
        self.matcher = Matcher(self.progress)
        self.transport = transport
        self.queue: OffloadQueue | None = None
        """Work requests to the NIC; None: this rank is alone."""
        self.memory: NicMemory | None = None
        self.nic = ""
        """Control socket of the NIC; empty: there is none."""
        self.scratch = Scratch()
        self._default_codec = "raw"
        self.engine = MessageEngine(self.progress, self.matcher, self._no_call)

    def attend(self, lock: threading.RLock, call: Callable[[str], AbstractContextManager[Any]]) -> None:
        """Use the lock of the communicator, and the context of its calls."""
        self.progress.share(lock)
        self.engine.call = call
        self.progress.background.own = self.engine

    def _no_call(self, name: str) -> AbstractContextManager[Any]:
        raise CommError(f"{name}: these connections are no communicator's")

    def join(self, owner: QueueOwner) -> None:
        """Hand the NIC its connections. Returns when all ranks have done so. Raises OSError and CommError."""
        if not self._mesh or self.transport is None:
            return
        kinds = (messages.ENGINE_CONTROL, messages.DATA, messages.PLAIN, messages.TAGGED)
        by_kind = {kind: {rank: links[kind] for rank, links in self._mesh.items()} for kind in kinds}
        for connection in by_kind[messages.ENGINE_CONTROL].values():
            self.transport.keep_alive(connection)
        self._default_codec = self.transport.default_codec(next(iter(by_kind[messages.TAGGED].values())))
        nic = self.transport.join(self.progress.rank, [by_kind[kind] for kind in kinds])
        leases = [connection for connections in by_kind.values() for connection in connections.values()]
        self.queue = OffloadQueue(self.progress.rank, nic.connection, nic.heartbeat(), leases, owner)
        self.nic = nic.path
        self.memory = NicMemory(nic.number, self.scratch)
        self.progress.queue = self.queue
        self.progress.heartbeat = nic.heartbeat()
        for peer in self.progress.peers.values():
            peer.channels = tuple(ZeroCopyChannel(peer.rank, self.queue, self.memory) for _ in range(2))
            self.progress.post(peer, messages.Joined())
        self.progress.run(self._all_joined)

    def _all_joined(self) -> bool:
        for peer in self.progress.peers.values():
            if peer.absent and not peer.joined:
                raise self.progress.missing(peer, "taking part")
        return all(peer.joined for peer in self.progress.peers.values())

    @property
    def calls(self) -> int:
        """Number of collectives posted so far."""
        return 0 if self.queue is None else self.queue.posted

    def explain(self, failure: Failure) -> Failure:
        """Return a failure of the work queue as other ranks report it, with the rank whose call differs."""
        explained = self.progress.explain(failure)
        why = "" if not self.nic or MORE in explained.text else why_mismatched(self.nic)
        return Failure(explained.rank, f"{explained.text}: {why}") if why else explained

    def hang_up(self, why: Failure) -> None:
        """Send nothing more, and have the NIC execute nothing more."""
        self.progress.hang_up(why.text)
        if self.queue is not None:
            self.queue.close(why)

    def close(self, why: Failure) -> None:
        """Close all connections."""
        if self.queue is not None:
            self.queue.close(why)
        self.progress.close(why.text)
        for connections in self._mesh.values():
            for connection in connections:
                connection.close()

    def default_codec(self) -> str:
        """Return the codec of the NIC's own table. Raises ValueError if it has none."""
        if not self._default_codec:
            raise ValueError("this NIC compresses nothing by itself: name a codec, as in codec='bounded:10'")
        return self._default_codec
