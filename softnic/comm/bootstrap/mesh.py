"""Connects each pair of ranks.

Each rank listens, connects to the lower ranks and accepts the higher ones: one connection for each channel
(softnic/comm/messages.py). Both ends of a connection first send Hello, so that connections of other jobs and services
are detected. Ranks may start in any order: a refused connection is retried while the rank may still join (presence.py).

A rank that fails sends the reason to the ranks that are connected already, and notices when one of these exits.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field

from softnic.comm import messages
from softnic.comm.bootstrap.launch import Launch
from softnic.comm.bootstrap.presence import Presence
from softnic.comm.errors import CommError
from softnic.comm.peer import Mesh
from softnic.comm.transport import Transport

_MIN_RETRY_S = 0.05
_MAX_RETRY_S = 0.5
_NOT_LISTENING = {errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNABORTED}
"""Errors of connecting to a rank that has not started yet."""
_MAX_HELLO_BYTES = 64
_CHANNELS = range(messages.CHANNELS)
_SPARE_CONNECTIONS = 64
"""Accepted connections without a Hello, beyond those of the ranks."""


@dataclass(eq=False)
class PendingConnection:
    """A connection whose peer is not verified yet."""

    connection: socket.socket
    rank: int = -1
    """-1: accepted, the rank is not known yet."""
    channel: int = -1
    connected: bool = True
    unsent: bytes = b""
    received: bytearray = field(default_factory=bytearray)

    @property
    def accepted(self) -> bool:
        return self.rank < 0

    def events(self) -> int:
        return select.POLLIN if self.connected and not self.unsent else select.POLLOUT


class MeshBuilder:
    """One attempt to connect to all ranks of a launch, made by `run`, which closes the listener."""

    def __init__(
        self,
        launch: Launch,
        transport: Transport,
        listener: socket.socket | None = None,
        presence: Presence | None = None,
    ) -> None:
        self._launch = launch
        self._presence = presence or Presence(launch.timeout_s)
        self._transport = transport
        self._listener = listener
        self._poll = select.poll()
        self._pending: dict[int, PendingConnection] = {}
        self._retries: list[tuple[float, int, int]] = []
        """Times of the next attempts to connect, each with a rank and a channel."""
        self._connections: dict[tuple[int, int], socket.socket] = {}
        """Verified connections by rank and channel."""
        self._control_ranks: dict[int, int] = {}
        """Ranks by file descriptor of their CONTROL connections."""
        self._last_error = ""
        self._began = self._check_at = time.monotonic()
        _builders.add(self)

    def run(self) -> Mesh:
        """Return when all ranks are connected. Raises CommError, which names the ranks that are missing."""
        launch = self._launch
        others = [rank for rank in range(launch.size) if rank != launch.rank]
        self._presence.begin()
        try:
            self._listen()
            while len(self._connections) < messages.CHANNELS * len(others):
                self._step()
        except BaseException as error:
            failure = error
            if isinstance(error, OSError):
                failure = CommError(f"rank {launch.rank} cannot meet the others: {error}", rank=launch.rank)
            self._send_abort(failure)
            for connection in self._connections.values():
                connection.close()
            raise failure from (None if failure is error else error)
        finally:
            _builders.discard(self)
            if self._listener is not None:
                self._listener.close()
            for pending in self._pending.values():
                pending.connection.close()
        return {rank: tuple(self._connections[rank, channel] for channel in _CHANNELS) for rank in others}

    def close_in_fork(self) -> None:
        """Close the copies that a forked process has of the connections."""
        for connection in (*self._connections.values(), *(pending.connection for pending in self._pending.values())):
            connection.close()
        if self._listener is not None:
            self._listener.close()

    def _send_abort(self, error: BaseException) -> None:
        rank = getattr(error, "rank", None)
        text = getattr(error, "told", "") or str(error) or type(error).__name__
        for (_, channel), connection in self._connections.items():
            if channel == messages.CONTROL:
                with suppress(OSError):  # nothing else was sent, so it fits unless the peer has exited
                    connection.send(messages.pack(messages.Abort(self._launch.rank if rank is None else rank, text)))

    def _listen(self) -> None:
        launch = self._launch
        if self._listener is None:
            self._listener = self._transport.listen(launch.addresses[launch.rank], messages.CHANNELS * launch.size)
        self._listener.setblocking(False)
        self._poll.register(self._listener, select.POLLIN)
        self._retries = [(0.0, rank, channel) for rank in range(launch.rank) for channel in _CHANNELS]

    def _step(self) -> None:
        assert self._listener is not None
        now = time.monotonic()
        if now >= self._check_at:
            self._check_missing()
            self._check_at = now + self._presence.wait_s()
        due = [retry for retry in self._retries if retry[0] <= now]
        self._retries = [retry for retry in self._retries if retry[0] > now]
        for _, rank, channel in due:
            self._connect(rank, channel)
        wake_at = min([self._check_at, *(at for at, _, _ in self._retries)])
        for fd, _ in self._poll.poll(max(0.0, wake_at - now) * 1000 + 1):
            if fd == self._listener.fileno():
                self._accept()
            elif (pending := self._pending.get(fd)) is not None:
                self._advance(pending)
            elif fd in self._control_ranks:
                raise self._exited(self._control_ranks[fd])

    def _check_missing(self) -> None:
        """Raise CommError if a rank will not join."""
        launch = self._launch
        joined = {rank for rank in range(launch.size) if all((rank, each) in self._connections for each in _CHANNELS)}
        missing = sorted(set(range(launch.size)) - joined - {launch.rank})
        for rank, reason in self._presence.exited(missing).items():
            raise CommError(reason, rank=rank)
        if overdue := self._presence.overdue(missing):
            host, port = launch.addresses[launch.rank]
            names = f"rank {overdue[0]}" if len(overdue) == 1 else f"ranks {', '.join(map(str, overdue))}"
            reason = f" (last error: {self._last_error})" if self._last_error else ""
            raise CommError(
                f"rank {launch.rank} at {host}:{port} did not meet {names} within {launch.timeout_s:g} s{reason}",
                rank=overdue[0],
            )

    def _exited(self, rank: int) -> CommError:
        """Return the error for a connected rank that has closed its connection, with the reason that it sent."""
        control, reader, data = self._connections[rank, messages.CONTROL], messages.Reader(), b"-"
        with suppress(OSError, ValueError):
            while data:
                data = control.recv(1 << 16)
                for frame in reader.feed(data):
                    if isinstance(frame, messages.Abort):
                        at_fault = frame.rank if frame.rank >= 0 else None
                        return CommError(f"rank {rank} says: {frame.text}", rank=at_fault, told=frame.text)
        return CommError(f"rank {rank} exited before all ranks had joined", rank=rank)

    # -- pending connections ---------------------------------------------------------------------------------------

    def _add(self, pending: PendingConnection) -> None:
        self._pending[pending.connection.fileno()] = pending
        self._poll.register(pending.connection, pending.events())

    def _remove(self, pending: PendingConnection) -> None:
        self._poll.unregister(pending.connection)
        del self._pending[pending.connection.fileno()]

    def _drop(self, pending: PendingConnection) -> None:
        self._remove(pending)
        pending.connection.close()

    def _connect(self, rank: int, channel: int) -> None:
        try:
            connection = self._transport.connect(self._launch.addresses[rank])
        except OSError as error:
            self._retry(rank, channel, error)
            return
        self._add(PendingConnection(connection, rank, channel, connected=False, unsent=self._hello(rank, channel)))

    def _retry(self, rank: int, channel: int, error: OSError) -> None:
        if error.errno not in _NOT_LISTENING:
            raise error
        self._last_error = f"rank {rank}: {error.strerror or error}"
        now = time.monotonic()
        pause_s = min(max(_MIN_RETRY_S, (now - self._began) / 10), _MAX_RETRY_S)
        self._retries.append((now + pause_s, rank, channel))

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self._transport.prepare(connection)
        accepted = [pending for pending in self._pending.values() if pending.accepted]
        if len(accepted) >= _SPARE_CONNECTIONS + messages.CHANNELS * self._launch.size:
            self._drop(accepted[0])
        self._add(PendingConnection(connection))

    def _hello(self, to: int, channel: int) -> bytes:
        return messages.pack(messages.Hello(messages.VERSION, self._launch.size, self._launch.rank, to, channel))

    def _advance(self, pending: PendingConnection) -> None:
        """Continue the handshake after poll has reported events."""
        try:
            if not pending.connected:
                if error := pending.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(error, os.strerror(error))
                pending.connected = True
            if pending.unsent:
                pending.unsent = pending.unsent[pending.connection.send(pending.unsent) :]
            else:
                self._receive_hello(pending)
        except BlockingIOError:
            pass
        except OSError as error:
            self._drop(pending)
            if not pending.accepted:
                self._retry(pending.rank, pending.channel, error)
        else:
            if pending.connection.fileno() in self._pending:
                self._poll.modify(pending.connection, pending.events())

    def _receive_hello(self, pending: PendingConnection) -> None:
        """Read the peer's Hello and no further byte: the rest belongs to the communicator."""
        received = pending.received
        size = 4 + int.from_bytes(received[:4], "little") if len(received) >= 4 else 4
        if size > _MAX_HELLO_BYTES:
            self._reject(pending)
            return
        data = pending.connection.recv(size - len(received))
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed before its Hello")
        received += data
        if len(received) > 4 and len(received) == size:
            try:
                (hello,) = messages.Reader().feed(bytes(received))
            except ValueError:
                hello = None
            if isinstance(hello, messages.Hello) and hello.version == messages.VERSION:
                self._verify(pending, hello)
            else:
                self._reject(pending)

    def _verify(self, pending: PendingConnection, hello: messages.Hello) -> None:
        launch = self._launch
        if pending.accepted:
            pending.connection.send(self._hello(hello.rank, hello.channel))  # fits: nothing else was sent
        expected = range(launch.rank + 1, launch.size) if pending.accepted else (pending.rank,)
        if hello.size != launch.size or hello.to != launch.rank or hello.rank not in expected:
            raise CommError(
                f"rank {launch.rank} of {launch.size} is connected to rank {hello.rank} of {hello.size}, which "
                f"expects rank {hello.to}: the ranks were started with different settings",
                rank=hello.rank,
            )
        key = (hello.rank, hello.channel)
        if key in self._connections or hello.channel not in _CHANNELS:
            raise CommError(f"two processes claim to be rank {hello.rank}", rank=hello.rank)
        self._remove(pending)
        self._connections[key] = pending.connection
        if hello.channel == messages.CONTROL:
            self._control_ranks[pending.connection.fileno()] = hello.rank
            self._poll.register(pending.connection, select.POLLRDHUP)
            self._transport.keep_alive(pending.connection)

    def _reject(self, pending: PendingConnection) -> None:
        """Disconnect a peer that is not a rank. Raises CommError if it listens at a rank's address."""
        self._drop(pending)
        if not pending.accepted:
            host, port = self._launch.addresses[pending.rank]
            raise CommError(
                f"the service at {host}:{port} is not a communicator of this version, but rank {pending.rank} should "
                "be there",
                rank=pending.rank,
            )


_builders: weakref.WeakSet[MeshBuilder] = weakref.WeakSet()


def _close_in_fork() -> None:
    for builder in list(_builders):
        builder.close_in_fork()


os.register_at_fork(after_in_child=_close_in_fork)
