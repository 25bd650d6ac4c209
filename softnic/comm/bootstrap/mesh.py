"""Brings up the connections between all ranks.

Every rank listens, connects to the lower ranks and is connected to by the higher ones, five times each (wire.py).
Both ends of a connection say Hello first, so that two jobs, or a job and a stranger, never mix. Ranks come up in any
order: a refused connect is tried again as long as the rank may still join (presence.py). Nobody who says something else
than a Hello that fits gets further.

A rank that cannot go on sends the reason to those that it has met. The end of one that was met already is noticed.
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
from softnic.comm.channel import Mesh
from softnic.comm.errors import CommError
from softnic.comm.transport import Transport

_RETRY_S = 0.05
_LONGEST_RETRY_S = 0.5
_PATIENT = {errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNABORTED}
"""What a rank that is not up yet may look like."""
_HELLO_BYTES = 64
_CHANNELS = range(messages.CHANNELS)
_MAX_STRANGERS = 64


@dataclass(eq=False)
class PendingConnection:
    """A connection on its way to be one of the mesh."""

    connection: socket.socket
    rank: int = -1
    """-1: it was accepted, and has not said who it is."""
    channel: int = -1
    connected: bool = True
    unsent: bytes = b""
    heard: bytearray = field(default_factory=bytearray)

    def interest(self) -> int:
        return select.POLLIN if self.connected and not self.unsent else select.POLLOUT


class MeshBuilder:
    """One attempt, made with `run`. The listener, if given one, is closed with it."""

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
        """When to connect again, to which rank, for which channel."""
        self._met: dict[tuple[int, int], socket.socket] = {}
        self._controls: dict[int, int] = {}
        """By file descriptor of a CONTROL connection of `_met`: the rank."""
        self._last_error = ""
        self._began = self._check_at = time.monotonic()
        _in_progress.add(self)

    def run(self) -> Mesh:
        """Returns when every rank is connected. Raises CommError, naming who is missing when the time is over."""
        launch = self._launch
        others = [rank for rank in range(launch.size) if rank != launch.rank]
        self._presence.begin()
        try:
            self._begin()
            while len(self._met) < messages.CHANNELS * len(others):
                self._step()
        except BaseException as error:
            failure = error
            if isinstance(error, OSError):
                failure = CommError(f"rank {launch.rank} cannot meet the others: {error}", rank=launch.rank)
            self._say_why(failure)
            for connection in self._met.values():
                connection.close()
            raise failure from (None if failure is error else error)
        finally:
            _in_progress.discard(self)
            if self._listener is not None:
                self._listener.close()
            for way in self._pending.values():
                way.connection.close()
        return {rank: tuple(self._met[rank, channel] for channel in _CHANNELS) for rank in others}

    def close_in_fork(self) -> None:
        """Closes this process's copies of the connections, in a process forked from the one that joins."""
        ways = (way.connection for way in self._pending.values())
        for connection in (*self._met.values(), *ways, *([self._listener] if self._listener is not None else [])):
            connection.close()

    def _say_why(self, error: BaseException) -> None:
        """Tells the ranks that were met already."""
        rank = getattr(error, "rank", None)
        text = getattr(error, "told", "") or str(error) or type(error).__name__
        for (_, channel), connection in self._met.items():
            if channel == messages.CONTROL:
                with suppress(OSError):  # so few bytes find room, unless it has ended
                    connection.send(messages.pack(messages.Abort(self._launch.rank if rank is None else rank, text)))

    def _begin(self) -> None:
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
        wake = min([self._check_at, *(at for at, _, _ in self._retries)])
        for descriptor, _ in self._poll.poll(max(0.0, wake - now) * 1000 + 1):
            if descriptor == self._listener.fileno():
                self._accept()
            elif (way := self._pending.get(descriptor)) is not None:
                self._advance(way)
            elif descriptor in self._controls:
                raise self._lost(self._controls[descriptor])

    def _check_missing(self) -> None:
        """Raises CommError where a rank will not join."""
        launch = self._launch
        met = {rank for rank in range(launch.size) if all((rank, channel) in self._met for channel in _CHANNELS)}
        missing = sorted(set(range(launch.size)) - met - {launch.rank})
        for rank, reason in self._presence.exited(missing).items():
            raise CommError(reason, rank=rank)
        if overdue := self._presence.overdue(missing):
            raise self._too_late(overdue)

    def _lost(self, rank: int) -> CommError:
        """The error for a rank that was met, and has closed its connection: the reason that it gave, if it gave one."""
        control, reader, data = self._met[rank, messages.CONTROL], messages.Reader(), b"-"
        with suppress(OSError, ValueError):
            while data:
                data = control.recv(1 << 16)
                for frame in reader.feed(data):
                    if isinstance(frame, messages.Abort):
                        at_fault = frame.rank if frame.rank >= 0 else None
                        return CommError(f"rank {rank} says: {frame.text}", rank=at_fault, told=frame.text)
        return CommError(f"rank {rank} exited before all ranks had joined", rank=rank)

    def _too_late(self, missing: list[int]) -> CommError:
        launch = self._launch
        host, port = launch.addresses[launch.rank]
        names = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
        why = f" (last error: {self._last_error})" if self._last_error else ""
        return CommError(
            f"rank {launch.rank} at {host}:{port} did not meet {names} within {launch.timeout_s:g} s{why}",
            rank=missing[0],
        )

    # -- connections on their way ----------------------------------------------------------------------------------

    def _watch(self, way: PendingConnection) -> None:
        self._pending[way.connection.fileno()] = way
        self._poll.register(way.connection, way.interest())

    def _forget(self, way: PendingConnection) -> None:
        self._poll.unregister(way.connection)
        del self._pending[way.connection.fileno()]

    def _connect(self, rank: int, channel: int) -> None:
        try:
            connection = self._transport.connect(self._launch.addresses[rank])
        except OSError as error:
            self._try_later(rank, channel, error)
            return
        self._watch(PendingConnection(connection, rank, channel, connected=False, unsent=self._hello(rank, channel)))

    def _try_later(self, rank: int, channel: int, error: OSError) -> None:
        if error.errno not in _PATIENT:
            raise error
        self._last_error = f"rank {rank}: {error.strerror or error}"
        now = time.monotonic()
        pause_s = min(max(_RETRY_S, (now - self._began) / 10), _LONGEST_RETRY_S)
        self._retries.append((now + pause_s, rank, channel))

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self._transport.prepare(connection)
        strangers = [way for way in self._pending.values() if way.rank < 0]
        if len(strangers) >= _MAX_STRANGERS + messages.CHANNELS * self._launch.size:
            self._drop(strangers[0])
        self._watch(PendingConnection(connection))

    def _drop(self, way: PendingConnection) -> None:
        self._forget(way)
        way.connection.close()

    def _hello(self, to: int, channel: int) -> bytes:
        return messages.pack(messages.Hello(messages.VERSION, self._launch.size, self._launch.rank, to, channel))

    def _advance(self, way: PendingConnection) -> None:
        """Does what the connection is ready for."""
        try:
            if not way.connected:
                if error := way.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(error, os.strerror(error))
                way.connected = True
            if way.unsent:
                way.unsent = way.unsent[way.connection.send(way.unsent) :]
            else:
                self._hear(way)
        except BlockingIOError:
            pass
        except OSError as error:
            self._drop(way)
            if way.rank >= 0:
                self._try_later(way.rank, way.channel, error)
        else:
            if way.connection.fileno() in self._pending:
                self._poll.modify(way.connection, way.interest())

    def _hear(self, way: PendingConnection) -> None:
        """Reads the other's Hello, and no byte behind it: what follows belongs to the communicator."""
        size = 4 + int.from_bytes(way.heard[:4], "little") if len(way.heard) >= 4 else 4
        if size > _HELLO_BYTES:
            self._misfit(way, "no rank of a communicator of this version")
            return
        data = way.connection.recv(size - len(way.heard))
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed before it said who it is")
        way.heard += data
        if len(way.heard) > 4 and len(way.heard) == size:
            self._judge(way)

    def _judge(self, way: PendingConnection) -> None:
        launch = self._launch
        try:
            (hello,) = messages.Reader().feed(bytes(way.heard))
        except ValueError:
            hello = None
        if not isinstance(hello, messages.Hello) or hello.version != messages.VERSION:
            self._misfit(way, "no rank of a communicator of this version")
            return
        accepted = way.rank < 0
        if accepted:
            way.connection.send(self._hello(hello.rank, hello.channel))  # so few bytes always find room
        expected = range(launch.rank + 1, launch.size) if accepted else (way.rank,)
        if hello.size != launch.size or hello.to != launch.rank or hello.rank not in expected:
            raise CommError(
                f"rank {launch.rank} of {launch.size} met one that is rank {hello.rank} of {hello.size} and looks for "
                f"rank {hello.to}: the ranks were started with different settings",
                rank=hello.rank,
            )
        key = (hello.rank, hello.channel)
        if key in self._met or hello.channel not in _CHANNELS:
            raise CommError(f"two processes say that they are rank {hello.rank}", rank=hello.rank)
        self._forget(way)
        self._met[key] = way.connection
        if hello.channel == messages.CONTROL:
            self._controls[way.connection.fileno()] = hello.rank
            self._poll.register(way.connection, select.POLLRDHUP)
            self._transport.keep_alive(way.connection)

    def _misfit(self, way: PendingConnection, what: str) -> None:
        """Somebody else: sent away if they came here, an error if they are where a rank should be."""
        self._drop(way)
        if way.rank >= 0:
            host, port = self._launch.addresses[way.rank]
            raise CommError(
                f"what listens at {host}:{port} is {what}, but rank {way.rank} should be there", rank=way.rank
            )


_in_progress: weakref.WeakSet[MeshBuilder] = weakref.WeakSet()


def _close_in_fork() -> None:
    for mesh in list(_in_progress):
        mesh.close_in_fork()


os.register_at_fork(after_in_child=_close_in_fork)
