"""Jobs: ranks whose NICs execute collectives (softnic/collectives), and how they connect to each other.

A rank connects twice to every lower one, as a process does for its NIC, on as many lanes as every rank's NIC has
queues; then it posts the job's calls one after the other. One rank may leave early, cancel, or call another collective:
then all others must learn of it in bounded time.
"""

from __future__ import annotations

import math
import random

from softnic._native import lib
from softnic.collectives import CollectiveEngine
from softnic.ipc.work_queue import CancelRequest, WorkCompletion, WorkFailed
from softnic.sim.node import ConnectionEvent
from softnic.tcp.connection import Connection
from softnic.tcp.listener import Listener
from softnic.tcp.peer_stream import peer_streams
from softnic.tcp.state import State
from tests.simulation.collective_calls import Array, CollectiveCall
from tests.simulation.invariants import Violation
from tests.simulation.laned_engine import LanedEngine
from tests.simulation.node import WorldNode
from tests.simulation.scenario import JobSpec

FIRST_PORT = 7000
CONNECT_LIMIT_S = 30.0
"""Time for ranks to connect to each other."""
RETRY_S = 0.3
USER_TIMEOUT_S = 3.0
KEEPALIVE = (1.0, 1.0, 2)
"""Both as in softnic/comm/transport.py."""
BOUND_S = 5.0
"""Time within which all ranks know what has happened to one."""
OVER_S = 0.2
"""Tolerance of timers."""


class Job:
    """The state of a job whose ranks are connected over `lanes` lanes."""

    def __init__(self, spec: JobSpec, lanes: int = 1) -> None:
        rng = random.Random(spec.seed)
        self.spec = spec
        self.lanes = lanes
        self.size = len(spec.nodes)
        self.calls = [CollectiveCall(number + 1, self.size, rng) for number in range(spec.calls)]
        self.odd_rank = rng.randrange(self.size)
        """The rank that leaves, cancels or differs, if one is to."""
        self.odd_call = rng.randrange(spec.calls) + 1
        self.seeds = [rng.getrandbits(64) for _ in range(self.size)]
        self.ends: list[str] = [""] * self.size
        """How each rank ended: complete, left, lost, or the text of an error."""
        self.cut = 0
        """Calls that a rank's NIC has cut over several lanes."""
        self.joined = 0
        """The number of ranks that are connected to all others."""
        self.broken_at = math.inf
        """When it became impossible to complete."""
        self._differs = False

    def __str__(self) -> str:
        return f"job {self.spec.number}"

    def on_join(self, now: float) -> None:
        """One more rank is connected to all others."""
        self.joined += 1
        if self._differs and self.joined == self.size:
            self.on_break(now)

    def on_difference(self, now: float) -> None:
        """One rank has called another collective. The others notice as soon as all ranks have joined and called."""
        self._differs = True
        if self.joined == self.size:
            self.on_break(now)

    def on_break(self, now: float) -> None:
        """It cannot be completed any more."""
        self.broken_at = min(self.broken_at, now)


class JobRank:
    """One rank of a job, on a node. `ips` are those of all ranks."""

    def __init__(self, node: WorldNode, job: Job, rank: int, ips: list[int]) -> None:
        self._node = node
        self._job = job
        self._rank = rank
        self._ips = ips
        self._rng = random.Random(job.seeds[rank])
        self._ports = FIRST_PORT + 2 * job.spec.number, FIRST_PORT + 2 * job.spec.number + 1
        self._listeners: list[Listener] = []
        self._connections: list[dict[int, Connection]] = [{} for _ in range(2 * job.lanes)]
        """By rank: for control messages and for data of the first lane, and so on."""
        self._engine: CollectiveEngine | LanedEngine | None = None
        self._posted: dict[int, Array] = {}
        """Result buffers of incomplete calls."""
        self._number = 0
        self._act_at = job.spec.at
        self._posted_at = 0.0

    @property
    def over(self) -> bool:
        return bool(self._job.ends[self._rank])

    def on_event(self, event: ConnectionEvent) -> None:
        """Ignored: it polls its connections."""

    def on_crash(self) -> None:
        self._break("lost")

    def next_time(self, now: float) -> float:
        due = None if self._engine is None else self._engine.next_time()
        at = self._act_at if self._act_at > now else math.inf
        return at if due is None else min(at, max(now, self._node.global_time(due)))

    def advance(self, now: float) -> None:
        if self.over or now < self._job.spec.at:
            return
        if self._engine is None:
            self._connect(now)
        if self._engine is not None:
            self._execute(self._engine, now)

    # Connecting

    def _connect(self, now: float) -> None:
        node = self._node
        if not self._listeners:
            self._listeners = [node.host.listen(0, port, 16, node.local) for port in self._ports]
        for kind, listener in enumerate(self._listeners):
            while (connection := listener.accept()) is not None:
                connections = self._connections[2 * self._lane_of(connection) + kind]
                self._add(connections, self._ips.index(connection.peer[0]), connection)
        if now >= self._act_at:
            self._act_at = now + RETRY_S
            self._open_connections()
        if all(self._complete(connections) for connections in self._connections):
            self._join(now)
        elif now > self._job.spec.at + CONNECT_LIMIT_S:
            node.log(f"{self._job}: rank {self._rank} is not connected to all others")
            self._disconnect()
            self._break("not connected")

    def _lane_of(self, connection: Connection) -> int:
        """Return the lane of an accepted connection."""
        if self._node.queues is None:
            return 0
        (own, port), (peer, peer_port) = connection.local, connection.peer
        lane: int = lib.sn_queue_of(own, peer, port, peer_port, lib.SN_FLOW_LANES)
        if lane >= self._job.lanes:
            raise Violation(f"{self._job}: {connection.peer_name} is on lane {lane} of {self._job.lanes}")
        return lane

    def _complete(self, connections: dict[int, Connection]) -> bool:
        return len(connections) == self._job.size - 1 and all(
            connection.state in (State.ESTABLISHED, State.CLOSE_WAIT) for connection in connections.values()
        )

    def _open_connections(self) -> None:
        """Connect to each lower rank to which there is no connection, or only a closed one."""
        for index, connections in enumerate(self._connections):
            lane, kind = divmod(index, 2)
            for rank in range(self._rank):
                if rank not in connections or connections[rank].state is State.CLOSED:
                    self._add(connections, rank, self._node.connect(self._ips[rank], self._ports[kind], lane=lane))

    def _add(self, connections: dict[int, Connection], rank: int, connection: Connection) -> None:
        old = connections.get(rank)
        if old is not None:
            old.abort(self._node.local)
        connections[rank] = connection
        connection.set_user_timeout(USER_TIMEOUT_S)
        connection.set_keepalive(KEEPALIVE, self._node.local)

    def _join(self, now: float) -> None:
        self._stop_listening()
        streams = [peer_streams(connections) for connections in self._connections]
        engines = [
            CollectiveEngine(self._rank, self._job.size, control, data)
            for control, data in zip(streams[::2], streams[1::2], strict=True)
        ]
        self._engine = engines[0] if len(engines) == 1 else LanedEngine(engines)
        self._act_at = now
        self._job.on_join(now)
        self._node.log(f"{self._job}: rank {self._rank} has joined")

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close(self._node.local)
        self._listeners.clear()

    def _disconnect(self) -> None:
        self._stop_listening()
        for connections in self._connections:
            for connection in connections.values():
                connection.abort(self._node.local)

    # Calling

    def _execute(self, engine: CollectiveEngine | LanedEngine, now: float) -> None:
        local = self._node.local
        engine.advance(local)
        self._handle_replies(engine)
        if self.over:
            return
        self._check_bounds(now)
        while now >= self._act_at and self._number < len(self._job.calls) and engine.space:
            self._act_at = now + self._job.spec.gap_s * self._rng.random()
            if not self._post(engine, now):
                return
        if self._number == len(self._job.calls) and not self._posted:
            engine.leave(local)
            self._end("complete")
        elif self._act_at <= now:
            engine.advance(local)

    def _post(self, engine: CollectiveEngine | LanedEngine, now: float) -> bool:
        """Post the next call, or leave. Returns whether the rank is still there."""
        self._number += 1
        job = self._job
        odd = job.spec.ends if (self._rank, self._number) == (job.odd_rank, job.odd_call) else "together"
        if odd == "leaves":
            engine.leave(self._node.local)
            self._break("left")
            return False
        call = job.calls[self._number - 1]
        request, source, result = call.post(self._rank, wrong=odd == "differs")
        self._posted[self._number] = result
        self._posted_at = now
        engine.post(request, source.view("u1").data, result.view("u1").data)
        job.cut += isinstance(engine, LanedEngine) and engine.is_cut(request.number)
        if odd == "cancels":
            engine.cancel(CancelRequest(self._number), self._node.local)
            job.on_break(now)
        elif odd == "differs":
            job.on_difference(now)
        return True

    def _handle_replies(self, engine: CollectiveEngine | LanedEngine) -> None:
        while engine.replies:
            reply = engine.replies.popleft()
            if isinstance(reply, WorkCompletion):
                self._job.calls[reply.number - 1].check(self._rank, self._posted.pop(reply.number))
            elif isinstance(reply, WorkFailed):
                engine.leave(self._node.local)
                self._break(reply.text)
                return

    def _check_bounds(self, now: float) -> None:
        """Check that the rank is notified in time of what has become of the others."""
        node = self._node
        bound = BOUND_S / node.spec.clock_rate + OVER_S
        since = max(self._job.broken_at, self._posted_at, node.disturbed_at)
        if self._posted and now > since + bound:
            raise Violation(f"{self._job}: rank {self._rank} waits {now - since:.2f} s after the others have ended")
        for connections in self._connections:
            for rank, connection in connections.items():
                since = max(node.global_time(connection.last_heard), node.disturbed_at)
                if connection.state is State.ESTABLISHED and now > since + bound:
                    raise Violation(f"{self._job}: rank {self._rank} has not heard rank {rank} for {now - since:.2f} s")

    def _break(self, how: str) -> None:
        """End, so that the job cannot be completed."""
        self._job.on_break(self._node.time())
        self._end(how)

    def _end(self, how: str) -> None:
        if not self.over:
            self._job.ends[self._rank] = how
            self._node.log(f"{self._job}: rank {self._rank} ends: {how}")
