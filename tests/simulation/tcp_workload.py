"""Applications that play conversations over TCP, and compare what arrives with what was sent."""

from __future__ import annotations

import math
from collections import deque

from softnic.sim.node import ConnectionEvent
from softnic.tcp.connection import Closed, Connection
from softnic.tcp.listener import Listener
from softnic.tcp.send_buffer import CUT
from softnic.tcp.state import HANDSHAKE, State
from tests.simulation.actions import (
    AwaitBytes,
    Close,
    Conversation,
    Reset,
    ShutdownWrite,
    Sleep,
    Write,
    received_bytes,
)
from tests.simulation.invariants import Violation
from tests.simulation.node import WorldNode

PORT = 5000
ConnectionKey = tuple[tuple[int, int], tuple[int, int], int]
"""Client's address, server's address, and the client's initial sequence number."""


class ConversationRun:
    """The state of a conversation. Endpoint 0 is the client's, 1 the server's."""

    def __init__(self, conversation: Conversation, table_codecs: tuple[str | None, str | None]) -> None:
        self.conversation = conversation
        self.expected = tuple(
            received_bytes(endpoint.actions, codec)
            for endpoint, codec in zip(conversation.endpoints, table_codecs, strict=True)
        )
        """What the peer of each endpoint has to receive."""
        self.ends: list[str] = ["", ""]
        """How each endpoint ended: complete, closed, reset, lost (its NIC died), or the text of an error."""
        self.accepted = False
        self.void = False
        """Its client's port was in use."""

    @property
    def ends_early(self) -> bool:
        """Whether an endpoint may end the connection before all bytes are exchanged."""
        return any(endpoint.ends_early for endpoint in self.conversation.endpoints)

    @property
    def over(self) -> bool:
        """Whether both endpoints have ended, or the client's before the server knew of it."""
        return all(self.ends) if self.accepted else bool(self.ends[0])

    def __str__(self) -> str:
        return f"conversation {self.conversation.number}"


class ConversationTable:
    """All conversations of a world, by what identifies an accepted connection."""

    def __init__(self) -> None:
        self.all: list[ConversationRun] = []
        self._opened: dict[ConnectionKey, ConversationRun] = {}

    def clear(self) -> None:
        """Forget all of them: they are over."""
        self.all.clear()
        self._opened.clear()

    def on_open(self, connection: Connection, run: ConversationRun) -> None:
        """Record a connection that a client opens."""
        self._opened[connection.local, connection.peer, connection.snd.iss] = run

    def on_accept(self, connection: Connection) -> ConversationRun:
        """Find the conversation of an accepted connection.

        Raises
        ------
        Violation
            Nobody opened it, or it was accepted before.
        """
        run = self._opened.get((connection.peer, connection.local, connection.rcv.irs))
        if run is None:
            raise Violation(f"a connection from {connection.peer_name} was accepted that nobody opened")
        if run.accepted:
            raise Violation(f"{run} was accepted twice")
        run.accepted = True
        return run


class ClientApplication:
    """Opens a connection when its time has come and the NIC runs."""

    def __init__(self, node: WorldNode, run: ConversationRun, server_ip: int, table: ConversationTable) -> None:
        self._node = node
        self._run = run
        self._server_ip = server_ip
        self._table = table
        self.over = False

    def on_event(self, event: ConnectionEvent) -> None:
        """Ignored: it owns no connection."""

    def on_crash(self) -> None:
        """Ignored: it connects when the NIC runs again."""

    def next_time(self, now: float) -> float:
        at = self._run.conversation.at
        return at if at > now else math.inf

    def advance(self, now: float) -> None:
        if now < self._run.conversation.at:
            return
        self.over = True
        node = self._node
        try:
            connection = node.connect(self._server_ip, PORT, self._run.conversation.port)
        except OSError as error:
            if not self._run.conversation.port:
                raise
            self._run.void = True
            self._run.ends[0] = str(error.strerror)
            return
        self._table.on_open(connection, self._run)
        node.log(f"{self._run} is opened from port {connection.local[1]} to {connection.peer_name}")
        node.run(Endpoint(node, self._run, 0, connection), connection)


class ServerApplication:
    """Listens whenever the NIC runs, and accepts connections, with a pause between two."""

    def __init__(self, node: WorldNode, table: ConversationTable, backlog: int, pause_s: float) -> None:
        self._node = node
        self._table = table
        self._backlog = backlog
        self._pause_s = pause_s
        self._accept_at = 0.0
        self._listener: Listener | None = None
        self.over = False

    def on_event(self, event: ConnectionEvent) -> None:
        """Ignored: it polls its listener."""

    def on_crash(self) -> None:
        self._listener = None

    def next_time(self, now: float) -> float:
        return self._accept_at if self._accept_at > now else math.inf

    def advance(self, now: float) -> None:
        node = self._node
        if self._listener is None:
            self._listener = node.host.listen(0, PORT, self._backlog, node.local)
        while self._listener.queue and now >= self._accept_at:
            connection = self._listener.accept()
            assert connection is not None
            self._accept_at = now + self._pause_s
            endpoint = Endpoint(node, self._table.on_accept(connection), 1, connection)
            node.run(endpoint, connection)
            endpoint.on_accept(now)

    def stop(self) -> None:
        """Stop listening."""
        self.over = True
        if self._listener is not None:
            self._listener.close(self._node.local)
            self._listener = None
            self._node.touch(self._node.time())


class Endpoint:
    """One endpoint of a conversation: performs its actions on a connection and checks what arrives."""

    def __init__(self, node: WorldNode, run: ConversationRun, side: int, connection: Connection) -> None:
        self._node = node
        self._run = run
        self._side = side
        self._spec = run.conversation.endpoints[side]
        self._expected = run.expected[1 - side]
        self.connection = connection
        self._actions = deque(self._spec.actions)
        self._written = 0
        """Bytes of the first action, if that is a Write."""
        self._total_written = 0
        self._received = 0
        self._act_at = self._read_at = 0.0
        self._zero_copy: deque[tuple[int, memoryview]] = deque()
        """Memory that is being sent from, and the total of completed bytes at which it may be reused."""
        self._zero_copy_bytes = 0
        self._finished = False
        self._closed: Closed | None = None
        self._configure()

    def _configure(self) -> None:
        connection, spec = self.connection, self._spec
        connection.set_nodelay(spec.nodelay)
        connection.set_blocks(spec.whole_blocks)
        connection.set_user_timeout(spec.user_timeout_s)
        if spec.keepalive is not None:
            connection.set_keepalive(spec.keepalive, self._node.local)

    @property
    def over(self) -> bool:
        return bool(self._run.ends[self._side])

    def on_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, Closed):
            self._closed = event

    def on_accept(self, now: float) -> None:
        """Start on a connection that was accepted just now. It may have failed before: then no event follows."""
        if self.connection.state is State.CLOSED and not self.over and self._closed is None:
            self._closed = Closed(self.connection, self.connection.error)
        self.advance(now)

    def on_crash(self) -> None:
        self._end("lost")

    def next_time(self, now: float) -> float:
        return min((time for time in (self._act_at, self._read_at) if time > now), default=math.inf)

    def advance(self, now: float) -> None:
        """Do what can be done at a time of the world. Raises Violation."""
        if self.over:
            return
        if self._closed is not None:
            self._read_rest(self._closed)
            return
        self._read(now)
        self._reuse_memory()
        self._act(now)
        if not self.over and self._finished and self.connection.eof and not self.connection.received:
            self.connection.close(self._node.local)
            self._end("complete")

    # Reading

    def _read(self, now: float) -> None:
        connection, spec = self.connection, self._spec
        if now < self._read_at:
            return
        if connection.received:
            self._check(connection.recv(spec.read_bytes))
            self._read_at = now + spec.read_pause_s
        if connection.eof and not connection.received:
            self._check_end()

    def _check(self, data: bytes) -> None:
        expected = self._expected[self._received : self._received + len(data)]
        if data != expected:
            wrong = next((at for at, (a, b) in enumerate(zip(data, expected, strict=False)) if a != b), len(expected))
            raise Violation(
                f"byte {self._received + wrong} of {len(self._expected)} of {self._run} arrives wrong at {self._name}"
            )
        self._received += len(data)

    def _check_end(self) -> None:
        if self._received != len(self._expected):
            raise Violation(f"{self._run} ends at {self._name} after {self._received} of {len(self._expected)} bytes")

    def _read_rest(self, closed: Closed) -> None:
        """Read what arrived before the connection ended."""
        while data := self.connection.recv(1 << 20):
            self._check(data)
        if not closed.errno and self.connection.eof:
            self._check_end()
        complete = not closed.errno and self.connection.eof and self._finished
        self._end("complete" if complete else self.connection.error_message or "reset")

    # Acting

    def _act(self, now: float) -> None:
        if self.connection.state in HANDSHAKE and not self._spec.early_write:
            return
        while self._actions and now >= self._act_at:
            action = self._actions[0]
            if isinstance(action, Write):
                if not self._write(action):
                    return
                self._written = 0
            elif isinstance(action, Sleep):
                self._act_at = now + action.seconds
            elif isinstance(action, AwaitBytes):
                if self._received < action.count:
                    return
            elif isinstance(action, ShutdownWrite):
                self.connection.shutdown_write()
                self._finished = True
            else:
                self._end_early(action)
                return
            self._actions.popleft()

    def _write(self, action: Write) -> bool:
        """Write what there is space for. Returns whether the action is complete."""
        if not self._written:
            self.connection.tag(action.tag)
        data = memoryview(action.data)
        while self._written < len(data):
            rest = data[self._written :]
            sent = self._send_zerocopy(rest) if self._spec.zero_copy else self.connection.send(rest)
            if not sent:
                return False
            self._written += sent
            self._total_written += sent
        if self._spec.tag_ahead:
            self._tag_ahead()
        return True

    def _send_zerocopy(self, data: memoryview) -> int:
        """Send without a copy as far as that is possible. Returns the number of bytes."""
        buffer = self.connection.snd.buffer
        count = buffer.zerocopy_len(len(data))
        if not count:
            return self.connection.send(data[: CUT - (buffer.end - buffer.tag_range(buffer.end).origin) % CUT])
        memory = memoryview(bytearray(data[:count]))
        if not self.connection.send_zerocopy(memory, 0, count):
            return 0
        self._zero_copy_bytes += count
        self._zero_copy.append((self._zero_copy_bytes, memory))
        return count

    def _reuse_memory(self) -> None:
        """Overwrite completed memory: TCP must not read it any more."""
        while self._zero_copy and self._zero_copy[0][0] <= self.connection.snd.buffer.zerocopy.completed_bytes:
            memory = self._zero_copy.popleft()[1]
            memory[:] = bytes(len(memory))

    def _tag_ahead(self) -> None:
        """Set the tag of the next range, which begins where this write has ended. It is set again with the range."""
        following = [action for action in list(self._actions)[1:] if isinstance(action, Write)]
        if following:
            self.connection.tag(following[0].tag, self._total_written)

    def _end_early(self, action: Close | Reset) -> None:
        connection, local = self.connection, self._node.local
        if isinstance(action, Reset):
            connection.abort(local)
            self._end("reset")
        else:
            connection.close(local)
            self._end("closed")

    @property
    def _name(self) -> str:
        return f"{self._node.name} from {self.connection.peer_name}"

    def _end(self, how: str) -> None:
        if not self.over:
            self._run.ends[self._side] = how
            self._node.log(f"{self._run} ends at its {('client', 'server')[self._side]}: {how}")
