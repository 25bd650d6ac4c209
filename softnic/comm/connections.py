"""The connections of a communicator, once its ranks have met, and what makes progress on them."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from softnic.collectives.messages import MISMATCHED
from softnic.collectives.schedule.paths import PathReport
from softnic.comm import debug_info, messages
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.bootstrap.mesh import MeshBuilder
from softnic.comm.bootstrap.presence import Presence
from softnic.comm.errors import CommError
from softnic.comm.matching import Matcher
from softnic.comm.message_engine import MessageEngine
from softnic.comm.nic_memory import NicMemory
from softnic.comm.offload_queue import Failure, OffloadQueue, QueueOwner
from softnic.comm.paths import CommPaths
from softnic.comm.peer import Connections, Mesh, Peer
from softnic.comm.progress import Progress
from softnic.comm.scratch import Scratch
from softnic.comm.transport import Transport
from softnic.comm.zerocopy_channel import ZeroCopyChannel
from softnic.ipc import socket_state
from softnic.ipc.control import StreamInfo


@dataclass(frozen=True)
class Traffic:
    """Bytes that this rank has sent to others, and that their NICs have acknowledged."""

    given_bytes: int = 0
    """Before compression."""
    sent_bytes: int = 0
    """After it, without headers."""
    wire_bytes: int = 0
    """Of the frames, retransmissions included."""

    @classmethod
    def of(cls, streams: Sequence[StreamInfo]) -> Traffic:
        """Add up connections."""
        given = sum(each.bytes_sent for each in streams)
        saved = round(sum(map(_saved, streams)))
        return cls(given, given - saved, sum(each.wire_bytes_sent for each in streams))


def _saved(stream: StreamInfo) -> float:
    """Return by how many bytes compression has shortened what a stream's peer has acknowledged.

    The NIC counts compressed bytes as it sends them: those on their way, too.
    """
    return min(stream.bytes_sent, stream.offload_original_bytes) * (1 - 1 / stream.ratio)


class Connecting:
    """Connections in the making, as what a MessageEngine attends to."""

    call = "Connect"


class CommConnections:
    """The connections to all other ranks. A single rank has none, and makes every call alone."""

    def __init__(
        self,
        launch: Launch,
        transport: Transport | None,
        listener: socket.socket | None,
        presence: Presence | None = None,
    ) -> None:
        self._mesh: Mesh = {}
        """The connections by rank, to those that are connected."""
        self._later: set[int] = set()
        """Ranks that were connected after the start."""
        self._launch = launch
        self.progress = Progress(launch.rank, launch.size)
        self._builder: MeshBuilder | None = None
        if launch.size > 1:
            transport = transport or Transport()
            self._builder = MeshBuilder(launch, transport, listener, presence)
            self._connect(self._builder)
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
        self.paths = CommPaths(launch.rank, self.progress, self._measured_paths)
        self._connecting = Connecting()

    def _connect(self, mesh: MeshBuilder) -> None:
        """Connect with the ranks of the start. Raises OSError and CommError."""
        self._mesh = mesh.run()
        for rank, connections in self._mesh.items():
            self.progress.connect(rank, connections[messages.CONTROL])
        if not mesh.is_complete:
            self.progress.connect_later(mesh)
            self.progress.on_connected = self._on_connected
            self.progress.on_joined = self._on_joined

    @property
    def listener(self) -> socket.socket | None:
        """The listening socket, which is its user's to close; None: this rank is alone."""
        return None if self._builder is None else self._builder.listener

    def take_survivors(self) -> list[tuple[int, socket.socket]]:
        """Return connections of survivors of a failure, each with its rank, which have said Hello."""
        return [] if self._builder is None else self._builder.take_survivors()

    def attend(self, lock: threading.RLock, call: Callable[[str], AbstractContextManager[Any]]) -> None:
        """Use the lock of the communicator, and the context of its calls."""
        self.progress.share(lock)
        self.engine.call = call

    def _no_call(self, name: str) -> AbstractContextManager[Any]:
        raise CommError(f"{name}: these connections are no communicator's")

    def join(self, owner: QueueOwner) -> None:
        """Hand the NIC its connections. Returns when all ranks have done so. Raises OSError and CommError."""
        self._join(owner)
        if debug_info.wanted():
            debug_info.announce(self._description())

    def _description(self) -> debug_info.RankDescription:
        launch = self._launch
        peers = {rank: address for rank, (address, _) in enumerate(launch.addresses) if rank != launch.rank}
        nic = socket_state.client(self.nic).info() if self.nic else None
        where = (launch.rank, launch.size, launch.source)
        return debug_info.RankDescription(*where, peers, nic, self.nic, self._default_codec)

    def _join(self, owner: QueueOwner) -> None:
        if not self._mesh or self.transport is None:
            return
        kinds = (messages.ENGINE_CONTROL, messages.DATA, messages.PLAIN, messages.TAGGED)
        by_kind = {kind: {rank: links[kind] for rank, links in self._mesh.items()} for kind in kinds}
        for connection in by_kind[messages.ENGINE_CONTROL].values():
            self.transport.keep_alive(connection)
        self._default_codec = self.transport.default_codec(next(iter(by_kind[messages.TAGGED].values())))
        control = {rank: links[messages.CONTROL] for rank, links in self._mesh.items()}
        lanes = self._further_lanes()
        place = self.progress.rank, self._launch.size
        nic = self.transport.join(place, [by_kind[kind] for kind in kinds], control, lanes)
        leases = [connection for connections in by_kind.values() for connection in connections.values()]
        leases += [connection for lane in lanes for side in lane for connection in side.values()]
        self.queue = OffloadQueue(self.progress.rank, nic.connection, nic.heartbeat, leases, owner)
        self.nic = nic.path
        self.memory = NicMemory(nic.number, self.scratch)
        self.progress.attach(self.queue)
        self.progress.heartbeat = nic.heartbeat
        for peer in self.progress.peers.values():
            peer.channels = tuple(ZeroCopyChannel(peer.rank, self.queue, self.memory) for _ in range(2))
        first = list(self.progress.connected.values())
        for peer in first:
            self.progress.post(peer, messages.Joined())
        self.progress.run(lambda: self._have_joined(first))
        self.progress.on_wanting = self._on_wanting  # not before: the lock is held as long as this rank joins
        self._on_wanting(self.progress.is_wanting)

    # Ranks that are connected after the start

    def _on_connected(self, peer: Peer, connections: Connections) -> None:
        """Hand the NIC the connections to one more rank, and tell that rank. Raises OSError."""
        transport, queue = self.transport, self.queue
        assert transport is not None
        assert queue is not None
        transport.keep_alive(connections[messages.ENGINE_CONTROL])
        try:
            transport.connect_rank(self._beside, peer.rank, connections)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise
            for connection in connections[1:]:  # the rank has left: there is no more than its last frames
                connection.close()
            return
        self._mesh[peer.rank] = connections
        self._later.add(peer.rank)
        queue.lease(connection for channel, connection in enumerate(connections) if channel != messages.CONTROL)
        peer.outbox.post_first(messages.pack(messages.Joined()))

    @property
    def _beside(self) -> socket.socket:
        """A connection that the NIC has."""
        return next(iter(self._mesh.values()))[messages.ENGINE_CONTROL]

    def _on_joined(self, peer: Peer) -> None:
        """Begin the exchange with a rank whose NIC has its connections. Raises OSError."""
        if self.transport is not None and peer.rank in self._later:
            self.transport.start_rank(self._mesh[peer.rank][messages.ENGINE_CONTROL])

    def _on_wanting(self, is_wanting: bool) -> None:
        """Attend to connections in the making, whatever a thread waits for."""
        if is_wanting:
            self.engine.enter(self._connecting)
        else:
            self.engine.leave(self._connecting)

    def _further_lanes(self) -> list[tuple[dict[int, socket.socket], dict[int, socket.socket]]]:
        """Return the connections of each further lane by rank, as ENGINE_CONTROL and as DATA."""
        channels = min(map(len, self._mesh.values()))
        return [
            (
                {rank: links[first] for rank, links in self._mesh.items()},
                {rank: links[first + 1] for rank, links in self._mesh.items()},
            )
            for first in range(messages.CHANNELS, channels, messages.LANE_CHANNELS)
        ]

    def _measured_paths(self) -> PathReport:
        """Return what this rank's NIC has measured so far. Raises OSError."""
        transport, queue = self.transport, self.queue
        assert transport is not None
        assert queue is not None
        rtts = [0.0] * self._launch.size
        for rank, links in self._mesh.items():
            rtts[rank] = transport.min_rtt(links[messages.DATA])
        return PathReport(queue.rate, tuple(rtts))

    def _have_joined(self, peers: Sequence[Peer]) -> bool:
        for peer in peers:
            if peer.absent and not peer.joined:
                raise self.progress.missing(peer, "taking part")
        return all(peer.joined for peer in peers)

    def traffic(self) -> Traffic:
        """Return what was sent on the connections that carry elements, as the NIC knows. Raises OSError."""
        kinds = (messages.DATA, messages.PLAIN, messages.TAGGED)
        if self.transport is None:
            return Traffic()
        return Traffic.of([self.transport.info(links[kind]) for links in self._mesh.values() for kind in kinds])

    @property
    def calls(self) -> int:
        """Number of collectives posted so far."""
        return 0 if self.queue is None else self.queue.posted

    def explain(self, failure: Failure) -> Failure:
        """Return a failure of the work queue as other ranks report it; of calls that differ, with those of all."""
        if failure.text.startswith(MISMATCHED):
            from softnic.diagnosis.explanation import why_mismatched  # only for what has failed

            return Failure(failure.rank, (why_mismatched(self.nic) if self.nic else "") or failure.text)
        return self.progress.explain(failure)

    def hang_up(self, why: Failure) -> None:
        """Send nothing more, and have the NIC execute nothing more."""
        reaches_all = len(self._mesh) == self._launch.size - 1
        self.progress.hang_up(why)
        if self.queue is not None:
            self.queue.close(why, for_all=not reaches_all)

    def close(self, why: Failure, told: str = "") -> None:
        """Close all connections. `told`: the reason that other ranks get if calls are not complete."""
        if self.queue is not None:
            self.queue.close(why, told=told)
        self.progress.close(why.text)
        heartbeat, self.progress.heartbeat = self.progress.heartbeat, None
        if heartbeat is not None:
            heartbeat.release()
        for connections in self._mesh.values():
            for connection in connections:
                connection.close()

    def default_codec(self) -> str:
        """Return the codec of the NIC's own table. Raises ValueError if it has none."""
        if not self._default_codec:
            raise ValueError("this NIC compresses nothing by itself: name a codec, as in codec='bounded:10'")
        return self._default_codec
