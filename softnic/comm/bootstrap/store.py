"""A key-value store that rank 0 serves while the ranks discover each other, if their framework has none.

The server runs in a thread of rank 0, on a Unix socket where all ranks are on one host, else on TCP. A client sends
JoinStore with the job's name and then one request at a time: SetKey, answered by KeyStored, or GetKey, answered by
KeyValue when the key is set. The server disconnects clients of other jobs and clients that violate the protocol, and
limits the number of clients and of keys and the size of each.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from softnic.collectives import framing
from softnic.comm.bootstrap.presence import Presence

MAX_VALUE = 16 << 10
"""Bytes of a key and its value."""
MAX_KEYS = 1 << 20
_SPARE_CLIENTS = 64
"""Connections allowed beside one for each rank."""
_RETRY_S = 0.05
_READ_BYTES = 1 << 16
_CREDENTIALS = struct.Struct("3i")

Address = str | tuple[str, int]
"""Address of a Unix socket (abstract if it begins with a null byte) or of a TCP socket."""


class Store(Protocol):
    """The part of torch.distributed.Store that discovery needs: keys that are set once."""

    def set(self, key: str, value: str, /) -> object:
        """Return when other processes can get the value."""

    def get(self, key: str, /) -> bytes:
        """Wait until the key is set. Raises an error of the store's own after a timeout."""


class JoinStore(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """The first frame of a client. The server repeats it."""

    job: str


class SetKey(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """Request to store a value."""

    key: str
    value: bytes


class GetKey(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """Request for the value of a key, once it is set."""

    key: str


class KeyStored(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """Reply to SetKey."""


class KeyValue(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """Reply to GetKey."""

    value: bytes


Frame = JoinStore | SetKey | GetKey | KeyStored | KeyValue
_decode: Callable[[bytearray], Frame] = msgspec.msgpack.Decoder(Frame).decode


class StoreError(OSError):
    """The store cannot be reached or has no answer."""


class StoreServer:
    """Serves the store of a job at the first free one of `addresses`, until `close`. Raises StoreError if none is."""

    def __init__(self, addresses: Sequence[Address], job: str, clients: int) -> None:
        self._job = job
        self._values: dict[str, bytes] = {}
        self._awaited: dict[str, asyncio.Event] = {}
        self._free_connections = clients + _SPARE_CLIENTS
        self._listener = _listen(addresses)
        name = self._listener.getsockname()
        self.address: Address = (name[0], name[1]) if isinstance(name, tuple) else "\0" + name[1:].decode()
        """Address of the listening socket."""
        self._process = os.getpid()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="softnic-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; waiting clients get an error. Idempotent, and without effect in a forked process."""
        if self._thread.is_alive() and os.getpid() == self._process:
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    def _run(self) -> None:
        with self._runner:  # which ends the tasks of clients
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._serve_client, sock=self._listener, backlog=socket.SOMAXCONN)
        await self._closing.wait()
        server.close()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client until it disconnects, violates the protocol, or the server closes."""
        self._free_connections -= 1
        try:
            if self._free_connections >= 0 and _is_same_user(writer.get_extra_info("socket")):
                await self._answer(reader, writer)
        except (OSError, ValueError, asyncio.CancelledError):
            pass
        finally:
            self._free_connections += 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a client. Raises ValueError if it violates the protocol."""
        frames, joined = framing.FrameReader[Frame](_decode, "store"), False
        while data := await reader.read(_READ_BYTES):
            for request in frames.feed(data):
                reply: Frame
                match request:
                    case JoinStore() if request.job == self._job and not joined:
                        reply, joined = request, True
                    case SetKey() if joined:
                        reply = self._store(request)
                    case GetKey() if joined:
                        while request.key not in self._values:
                            await self._awaited.setdefault(request.key, asyncio.Event()).wait()
                        reply = KeyValue(self._values[request.key])
                    case _:
                        raise ValueError("unexpected request")
                writer.write(framing.pack(reply))
            await writer.drain()

    def _store(self, request: SetKey) -> KeyStored:
        if len(request.key) + len(request.value) > MAX_VALUE or len(self._values) >= MAX_KEYS:
            raise ValueError("a limit of the store is exceeded")
        self._values[request.key] = request.value
        if (event := self._awaited.pop(request.key, None)) is not None:
            event.set()
        return KeyStored()


class StoreClient:
    """The Store that a StoreServer serves at one of `addresses`. Connects once the server is up.

    `timeout_s` limits each step; `presence` extends the limit while the awaited rank may still join. The methods raise
    StoreError, with the errno ESRCH if the process of the awaited rank has ended.
    """

    def __init__(
        self, addresses: Sequence[Address], job: str, timeout_s: float, presence: Presence | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._presence = presence or Presence(timeout_s)
        self._presence.begin()
        self._reader = framing.FrameReader[Frame](_decode, "store")
        self._lock = threading.Lock()
        attempts = 0
        while True:
            address = addresses[attempts % len(addresses)]
            try:
                self._socket = self._connect(address, job)
                return
            except OSError as error:
                attempts += 1
                if exited := self._presence.exited([0]):
                    raise StoreError(errno.ESRCH, exited[0]) from None
                if self._presence.overdue([0]):
                    text = f"rank 0 serves no store at {_text(address)}: {error.strerror or error}"
                    raise StoreError(error.errno or errno.ETIMEDOUT, text) from None
                if attempts % len(addresses) == 0:
                    time.sleep(_RETRY_S)

    def set(self, key: str, value: str, /) -> None:
        self._request(SetKey(key, value.encode()), f"{key} was not stored", 0)

    def get(self, key: str, rank: int = 0, /) -> bytes:
        """Wait until the key is set. `rank` is the one that sets it."""
        reply = self._request(GetKey(key), f"no rank has set {key}", rank)
        if not isinstance(reply, KeyValue):
            raise StoreError(errno.EPROTO, f"unexpected reply to the request for {key}")
        return reply.value

    def close(self) -> None:
        self._socket.close()

    def _connect(self, address: Address, job: str) -> socket.socket:
        connection = _socket_for(address)
        try:
            connection.settimeout(max(_RETRY_S, self._timeout_s))
            connection.connect(address)
            if not _is_same_user(connection):
                raise PermissionError(errno.EACCES, "another user serves there")
            connection.sendall(framing.pack(JoinStore(job)))
            connection.settimeout(max(_RETRY_S, min(1.0, self._timeout_s)))
            self._reader = framing.FrameReader[Frame](_decode, "store")
            if self._receive(connection) != JoinStore(job):
                raise ConnectionRefusedError(errno.ECONNREFUSED, "another job is served there")
        except BaseException:
            connection.close()
            raise
        return connection

    def _request(self, request: Frame, failure: str, rank: int) -> Frame:
        """Send a request and wait for the reply, which depends on a rank."""
        with self._lock:
            self._presence.begin()
            try:
                self._socket.settimeout(self._timeout_s)
                self._socket.sendall(framing.pack(request))
                return self._await_reply(rank)
            except OSError as error:
                self._socket.close()  # a late reply would be taken for that of the next request
                if isinstance(error, StoreError):
                    raise
                if isinstance(error, TimeoutError):
                    raise StoreError(errno.ETIMEDOUT, f"{failure} within {self._timeout_s:g} s") from None
                text = f"{failure}: rank 0, who serves the store, is gone"
                raise StoreError(error.errno or errno.ECONNRESET, text) from None

    def _await_reply(self, rank: int) -> Frame:
        while True:
            self._socket.settimeout(self._presence.wait_s())
            try:
                return self._receive(self._socket)
            except TimeoutError:
                if exited := self._presence.exited([rank]):
                    raise StoreError(errno.ESRCH, exited[rank]) from None
                if self._presence.overdue([rank]):
                    raise

    def _receive(self, connection: socket.socket) -> Frame:
        while data := connection.recv(_READ_BYTES):
            try:
                for frame in self._reader.feed(data):
                    return frame
            except ValueError:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "another service listens there") from None
        raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")


def _socket_for(address: Address) -> socket.socket:
    return socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET, socket.SOCK_STREAM)


def _is_same_user(connection: socket.socket) -> bool:
    """Return whether the peer on a Unix socket is this user or root. On TCP only the job's name is checked."""
    if connection.family != socket.AF_UNIX:
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1] in (os.getuid(), 0)


def _listen(addresses: Sequence[Address]) -> socket.socket:
    reason: OSError | None = None
    for address in addresses:
        listener = _socket_for(address)
        try:
            if not isinstance(address, str):
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            listener.close()
            reason = error
            continue
        return listener
    assert reason is not None
    where = " or ".join(map(_text, addresses[:2]))
    raise StoreError(reason.errno, f"rank 0 cannot serve a store at {where}: {reason.strerror}") from None


def _text(address: Address) -> str:
    return address.lstrip("\0") if isinstance(address, str) else f"{address[0]}:{address[1]}"
