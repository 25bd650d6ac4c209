"""The connections of a communicator, once its ranks have met, and what moves bytes on them."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np

from softnic.collectives import elements
from softnic.collectives.operations import Op
from softnic.comm import messages
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.bootstrap.mesh import MeshBuilder
from softnic.comm.bootstrap.presence import Presence
from softnic.comm.buffers import Array
from softnic.comm.channel import Mesh, Peer
from softnic.comm.collective import Runner
from softnic.comm.matching import Matcher
from softnic.comm.offload_queue import Failure, Group, Owner
from softnic.comm.progress import Progress
from softnic.comm.scratch import Scratch
from softnic.comm.transport import Nic, Transport
from softnic.ipc import regions


class Session:
    """The connections, once they stand. A single rank has none, and makes every call alone."""

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
        self.runner = Runner(self.progress)
        self.transport = transport
        self._scratch: Array = np.empty(0, np.uint8)
        self.nic: Nic | None = None
        self.group: Group | None = None
        """What the NIC executes; None: it is alone, or there is no NIC."""
        self.pool = Scratch()
        self._table_codec = "raw"

    def join(self, owner: Owner) -> None:
        """Hands the NIC its connections. Returns when all ranks have done so, and nothing that a NIC sends can reach a
        process. Raises OSError and CommError."""
        if not self._mesh or self.transport is None:
            return
        tagged = next(iter(self.progress.peers.values())).channel(tagged=True).connection
        self._table_codec = self.transport.default_codec(tagged)  # later calls may set others on this connection
        words, data = (
            {r: links[channel] for r, links in self._mesh.items()} for channel in (messages.WORDS, messages.DATA)
        )
        for connection in words.values():
            self.transport.keep_alive(connection)
        self.nic = self.transport.join(self.progress.rank, words, data)
        leases = [*words.values(), *data.values()]
        if self.nic is None:
            for connection in leases:
                connection.close()
        else:
            self.group = Group(self.progress.rank, self.nic.connection, self.nic.pulse(), leases, owner)
            self.progress.pulse = self.nic.pulse()
        peers = self.progress.peers.values()
        for peer in peers:
            self.progress.post(peer, messages.Joined())
        self.progress.run(lambda: all(self._has_joined(peer) for peer in peers))

    def _has_joined(self, peer: Peer) -> bool:
        if peer.absent and not peer.joined:
            raise self.progress.missing(peer, "taking part")
        return peer.joined

    def hang_up(self, why: Failure) -> None:
        """Nothing more is sent, and the NIC executes nothing any more."""
        self.progress.hang_up()
        if self.group is not None:
            self.group.close(why)

    def close(self, why: Failure) -> None:
        """Closes all connections."""
        if self.group is not None:
            self.group.close(why)
        self.progress.close()
        for connections in self._mesh.values():
            for connection in connections:
                connection.close()

    def head(
        self,
        call: str,
        array: Array | None = None,
        op: Op | str | None = None,
        root: int = -1,
        codec: str = "",
        counts: tuple[int, ...] = (),
        algorithm: str = "",
    ) -> messages.Head:
        """The Head of the next collective call, with what all ranks must agree on."""
        self.matcher.number += 1
        size, dtype = (0, "") if array is None else (array.size, elements.name_of(array.dtype))
        name = op.name if isinstance(op, Op) else op or ""
        return messages.Head(self.matcher.number, call, size, dtype, name, root, codec, counts, algorithm)

    def scratch(self, like: Array, dtype: np.dtype[Any] | None = None) -> Array:
        """An array like the given one, or as long and of another type, with any contents, until the next call. Its
        memory is kept for later ones.

        Registered, if the given one is.
        """
        dtype = dtype or like.dtype
        size = like.size * dtype.itemsize
        registered = regions.is_registered(like)
        if self._scratch.nbytes < size or (registered and not regions.is_registered(self._scratch)):
            self._scratch = regions.empty(size, np.uint8) if registered else np.empty(size, np.uint8)
        return self._scratch[:size].view(dtype)

    def default_codec(self) -> str:
        """What the NIC's own table says, as all ranks' tables should."""
        if not self._table_codec:
            raise ValueError("this NIC compresses nothing by itself: name a codec, as in codec='bounded:10'")
        return self._table_codec
