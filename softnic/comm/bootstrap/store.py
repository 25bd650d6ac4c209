"""A store of our own, for ranks that have none of torch's: rank 0 serves it while the ranks look for each other.

A small server in a thread of rank 0, over the kernel's sockets: a Unix one where all ranks are on one host, TCP else.
A client says Hello with the job's name and then one request at a time: Set, answered by Done, or Get, answered by Value
when somebody has set the key. Who says another name, or anything else, is sent away. Everything has a bound: the number
of keys and their sizes, of clients, and how long a client waits.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from softnic.collectives import framing
from softnic.comm.bootstrap.presence import Presence

MAX_VALUE = 16 << 10
"""Bytes of a key and its value."""
MAX_KEYS = 1 << 20
_SPARE_CLIENTS = 64
"""Beside one for each rank: strangers."""
_RETRY_S = 0.05
_READ_BYTES = 1 << 16
_CREDENTIALS = struct.Struct("3i")
_NOT_YET = {errno.ECONNREFUSED, errno.ENOENT, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNRESET, errno.EAGAIN}

Address = str | tuple[str, int]
"""Of a Unix socket (with a leading zero byte: abstract), or of a TCP one."""


class Store(Protocol):
    """What the processes of a job share, as torch.distributed.Store: keys that are set once."""

    def set(self, key: str, value: str, /) -> object:
        """Returns when others can get it."""

    def get(self, key: str, /) -> bytes:
        """Waits until the key is set. Raises an error of its own when it has waited too long."""


class Hello(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """The first frame of a client. The server says the same."""

    job: str


class Set(msgspec.Struct, frozen=True, tag=1, array_like=True):
    key: str
    value: bytes


class Get(msgspec.Struct, frozen=True, tag=2, array_like=True):
    key: str


class Done(msgspec.Struct, frozen=True, tag=3, array_like=True):
    pass


class Value(msgspec.Struct, frozen=True, tag=4, array_like=True):
    value: bytes


Frame = Hello | Set | Get | Done | Value
_decode: Callable[[bytes], Frame] = msgspec.msgpack.Decoder(Frame).decode


class StoreError(OSError):
    """The store cannot be reached, or has no answer."""


class _Client:
    """The server's side of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.reader = framing.Reader[Frame](_decode, "store")
        self.known = False
        self.waits = ""
        """For this key."""
        self.unsent = b""


class Server:
    """Serves at the first of `addresses` that is free, for the job of this name, until `close`. Raises StoreError."""

    def __init__(self, addresses: Sequence[Address], job: str, clients: int) -> None:
        self._job = job
        self._most = clients + _SPARE_CLIENTS
        self._listener = _listen(addresses)
        self._values: dict[str, bytes] = {}
        self._clients: dict[int, _Client] = {}
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._bell, select.POLLIN)
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="softnic-store", daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        """Where it listens: with port 0 asked for, the port it got."""
        name = self._listener.getsockname()
        return (name[0], name[1]) if isinstance(name, tuple) else "\0" + name[1:].decode()

    def close(self) -> None:
        """Ends it; who still waits gets an error. May be called twice; does nothing in a fork."""
        if self._bell >= 0 and os.getpid() == self._process:
            os.eventfd_write(self._bell, 1)
            self._thread.join()
            os.close(self._bell)
            self._bell = -1

    def _run(self) -> None:
        try:
            while True:
                for descriptor, events in self._poll.poll():
                    if descriptor == self._bell:
                        return
                    if descriptor == self._listener.fileno():
                        self._accept()
                    elif (client := self._clients.get(descriptor)) is not None:
                        self._serve(client, events)
        finally:
            for client in self._clients.values():
                client.connection.close()
            self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            if len(self._clients) >= self._most or not _is_ours(connection):
                connection.close()
                return
            self._clients[connection.fileno()] = _Client(connection)
            self._poll.register(connection, select.POLLIN)

    def _serve(self, client: _Client, events: int) -> None:
        try:
            if events & select.POLLOUT:
                self._flush(client)
                return
            data = client.connection.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError
            for frame in client.reader.feed(data):
                self._answer(client, frame)
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self._drop(client)

    def _answer(self, client: _Client, frame: Frame) -> None:
        """Raises ValueError for what no client says."""
        match frame:
            case Hello() if frame.job == self._job and not client.known:
                client.known = True
                self._say(client, frame)
            case Set() if client.known and not client.waits:
                if len(frame.key) + len(frame.value) > MAX_VALUE or len(self._values) >= MAX_KEYS:
                    raise ValueError("too much")
                self._values[frame.key] = frame.value
                self._say(client, Done())
                for other in [other for other in self._clients.values() if other.waits == frame.key]:
                    other.waits = ""
                    self._say(other, Value(frame.value))
            case Get() if client.known and not client.waits:
                value = self._values.get(frame.key)
                if value is None:
                    client.waits = frame.key
                else:
                    self._say(client, Value(value))
            case _:
                raise ValueError("nothing that a client says here")

    def _say(self, client: _Client, frame: Frame) -> None:
        client.unsent += framing.pack(frame)
        try:
            self._flush(client)
        except OSError:
            self._drop(client)

    def _flush(self, client: _Client) -> None:
        with suppress(BlockingIOError):
            client.unsent = client.unsent[client.connection.send(client.unsent) :]
        self._poll.modify(client.connection, select.POLLIN if not client.unsent else select.POLLOUT)

    def _drop(self, client: _Client) -> None:
        if self._clients.pop(client.connection.fileno(), None) is not None:
            self._poll.unregister(client.connection)
            client.connection.close()


class Client:
    """A Store: the one that is served at one of `addresses`, for the job of this name, when it is up.

    Every wait ends after `timeout_s`, or as long as `presence` says that the rank which is waited for may still join.
    Raises StoreError.
    """

    def __init__(
        self, addresses: Sequence[Address], job: str, timeout_s: float, presence: Presence | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._presence = presence or Presence(timeout_s)
        self._presence.begin()
        self._reader = framing.Reader[Frame](_decode, "store")
        self._lock = threading.Lock()
        tried = 0
        while True:
            address = addresses[tried % len(addresses)]
            try:
                self._socket = self._connect(address, job, time.monotonic() + timeout_s)
                return
            except OSError as error:
                tried += 1
                if gone := self._presence.exited([0]):
                    raise StoreError(errno.ESRCH, gone[0]) from None
                if self._presence.overdue([0]):
                    text = f"rank 0 serves no store at {_text(address)}: {error.strerror or error}"
                    raise StoreError(error.errno or errno.ETIMEDOUT, text) from None
                if tried % len(addresses) == 0:
                    time.sleep(_RETRY_S)

    def set(self, key: str, value: str, /) -> None:
        self._ask(Set(key, value.encode()), Done, f"it did not take {key}")

    def get(self, key: str, rank: int | None = None, /) -> bytes:
        """Waits until the key is set. `rank`: who sets it."""
        answer = self._ask(Get(key), Value, f"nobody has set {key}", rank)
        assert isinstance(answer, Value)
        return answer.value

    def close(self) -> None:
        self._socket.close()

    def _connect(self, address: Address, job: str, deadline: float) -> socket.socket:
        connection = _socket_for(address)
        try:
            connection.settimeout(max(_RETRY_S, deadline - time.monotonic()))
            connection.connect(address)
            if not _is_ours(connection):
                raise PermissionError(errno.EACCES, "another user serves there")
            connection.sendall(framing.pack(Hello(job)))
            connection.settimeout(max(_RETRY_S, min(1.0, deadline - time.monotonic())))
            self._reader = framing.Reader[Frame](_decode, "store")
            if self._hear(connection) != Hello(job):
                raise ConnectionRefusedError(errno.ECONNREFUSED, "another job is served there")
            connection.settimeout(self._timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def _ask(self, request: Frame, kind: type[Frame], otherwise: str, rank: int | None = None) -> Frame:
        with self._lock:
            self._presence.begin()
            try:
                self._socket.sendall(framing.pack(request))
                answer = self._hear(self._socket) if rank is None else self._hear_from(rank)
            except StoreError:
                raise
            except TimeoutError:
                raise StoreError(errno.ETIMEDOUT, f"{otherwise} within {self._timeout_s:g} s") from None
            except OSError as error:
                raise StoreError(error.errno or errno.ECONNRESET, f"{otherwise}: rank 0, who serves, is gone") from None
            if not isinstance(answer, kind):
                raise StoreError(errno.EPROTO, f"{otherwise}: it answered something else")
            return answer

    def _hear_from(self, rank: int) -> Frame:
        """The answer that a rank's own doing brings about. Raises TimeoutError and OSError."""
        try:
            while True:
                self._socket.settimeout(self._presence.wait_s())
                try:
                    return self._hear(self._socket)
                except TimeoutError:
                    if gone := self._presence.exited([rank]):
                        raise StoreError(errno.ESRCH, gone[rank]) from None
                    if self._presence.overdue([rank]):
                        raise
        finally:
            self._socket.settimeout(self._timeout_s)

    def _hear(self, connection: socket.socket) -> Frame:
        while True:
            data = connection.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "what serves there closed the connection")
            try:
                for frame in self._reader.feed(data):
                    return frame
            except ValueError:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "what serves there is no store") from None


def _socket_for(address: Address) -> socket.socket:
    return socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET, socket.SOCK_STREAM)


def _is_ours(connection: socket.socket) -> bool:
    """Whether a Unix socket's other end is this user's, or root's. The job's name must do over TCP."""
    if connection.family != socket.AF_UNIX:
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1] in (os.getuid(), 0)


def _listen(addresses: Sequence[Address]) -> socket.socket:
    error: OSError | None = None
    for address in addresses:
        listener = _socket_for(address)
        try:
            if not isinstance(address, str):
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(socket.SOMAXCONN)
            listener.setblocking(False)
        except OSError as refused:
            listener.close()
            error = refused
            continue
        return listener
    assert error is not None
    where = " or ".join(map(_text, addresses[:2]))
    raise StoreError(error.errno, f"rank 0 cannot serve a store at {where}: {error.strerror}") from None


def _text(address: Address) -> str:
    return address.lstrip("\0") if isinstance(address, str) else f"{address[0]}:{address[1]}"
