"""The store that rank 0 serves: a thread, its clients, and what they may cost (store.py has the protocol)."""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from softnic import underlay
from softnic.collectives import framing
from softnic.comm.bootstrap.launch import SECRET_VARIABLE
from softnic.comm.bootstrap.store import (
    MAX_VALUE,
    NONCE_BYTES,
    READ_BYTES,
    VERSION,
    Address,
    Challenge,
    Frame,
    GetKey,
    JoinStore,
    KeyStored,
    KeyValue,
    Prove,
    SetKey,
    StoreError,
    StoreRefused,
    frame_reader,
    is_same_user,
    proof,
    text_of,
)

SPARE_CLIENTS = 64
"""Connections allowed beside one for each rank; of those that have not joined, the oldest makes room."""
JOIN_S = 5.0
"""Time limit to join."""
MAX_BYTES_A_CLIENT = 32 << 10
"""Limit of all keys and values, for each rank and two more."""
KEY_BYTES = 128
"""Bytes that a key takes beside its text and value."""


class StoreServer:
    """Serves the store of a job at the first free one of `addresses`, until `close`. Raises StoreError if none is.

    A key belongs to the client that sets it first. Where another one sets it, too, a stranger or a second process of a
    rank has joined: from then on every request is refused, so that no rank waits for what it will not get.
    """

    def __init__(self, addresses: Sequence[Address], job: str, clients: int, secret: bytes = b"") -> None:
        self._job = job
        self._secret = secret
        self._values: dict[str, tuple[object, bytes]] = {}
        """By key, the client that set it, and the value."""
        self._free_bytes = MAX_BYTES_A_CLIENT * (clients + 2)
        self._changes: dict[str, set[asyncio.Event]] = {}
        """By key, what its waiting clients wait for."""
        self._conflict = ""
        """Why every request is refused."""
        self._joining: dict[asyncio.Task[None], None] = {}
        """Connections that have not joined, the oldest first."""
        self._most = self._free_places = clients + SPARE_CLIENTS
        self.refused = 0
        """Connections that did not join: of other jobs and versions, without the secret, or not in time."""
        self._listener = _listen(addresses)
        name = self._listener.getsockname()
        self.address: Address = underlay.of_socket(name) if isinstance(name, tuple) else "\0" + name[1:].decode()
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
        task = asyncio.current_task()
        assert task is not None
        if len(self._joining) >= self._most:
            oldest = next(iter(self._joining))
            del self._joining[oldest]
            oldest.cancel()
        self._joining[task] = None
        connection, joined = _Connection(reader, writer), False
        try:
            if not is_same_user(writer.get_extra_info("socket")):
                raise ValueError("this is the store of another user")
            async with asyncio.timeout(JOIN_S):
                await self._join(connection)
            joined = True
            self._joining.pop(task, None)
            self._free_places -= 1
            while request := await connection.receive():
                await connection.send(await self._answer(request, task))
        except ValueError as error:
            with suppress(OSError):
                await connection.send(StoreRefused(str(error)))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._free_places += joined
            self.refused += not joined
            self._joining.pop(task, None)
            writer.transport.abort()

    async def _join(self, connection: _Connection) -> None:
        """Have a client prove that it belongs to the job. Raises ValueError if it does not."""
        request = await connection.receive()
        if not isinstance(request, JoinStore):
            raise ValueError("this is the store of a softnic job")
        if request.version != VERSION:
            raise ValueError(f"rank 0 speaks version {VERSION} of the store's protocol, this rank {request.version}")
        if request.job != self._job:
            raise ValueError("another job is served there")
        if self._free_places <= 0:
            raise ValueError("the store has too many clients")
        nonces = request.nonce + os.urandom(NONCE_BYTES)
        await connection.send(Challenge(nonces[-NONCE_BYTES:], proof(self._secret, "server", self._job, nonces)))
        answer = await connection.receive()
        expected = proof(self._secret, "client", self._job, nonces)
        if not isinstance(answer, Prove) or not hmac.compare_digest(answer.proof, expected):
            raise ValueError(f"{SECRET_VARIABLE} differs there, or only one side has it")

    async def _answer(self, request: Frame, client: object) -> Frame:
        """Answer a request, a GetKey when the key is set. Raises ValueError for what is refused."""
        if self._conflict:
            raise ValueError(self._conflict)
        match request:
            case SetKey():
                self._store(request, client)
                return KeyStored()
            case GetKey():
                if request.key not in self._values:
                    await self._wait_for(request.key)
                if self._conflict:
                    raise ValueError(self._conflict)
                return KeyValue(self._values[request.key][1])
        raise ValueError("the request is not one of a client that has joined")

    async def _wait_for(self, key: str) -> None:
        event = asyncio.Event()
        waiting = self._changes.setdefault(key, set())
        waiting.add(event)
        try:
            await event.wait()
        finally:
            waiting.discard(event)
            if not waiting:
                self._changes.pop(key, None)

    def _store(self, request: SetKey, client: object) -> None:
        owner, former = self._values.get(request.key, (client, b""))
        if owner is not client:
            self._conflict = f"two processes have set {request.key}: a stranger, or two with the same rank"
            for event in [event for waiting in self._changes.values() for event in waiting]:
                event.set()
            raise ValueError(self._conflict)
        size, known = len(request.key.encode()) + len(request.value), request.key in self._values
        growth = len(request.value) - len(former) if known else size + KEY_BYTES
        if size > MAX_VALUE or growth > self._free_bytes:
            raise ValueError("a limit of the store is exceeded")
        self._free_bytes -= growth
        self._values[request.key] = (client, request.value)
        for event in self._changes.get(request.key, ()):
            event.set()


class _Connection:
    """The frames of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = frame_reader()
        self._unread: list[Frame] = []

    async def receive(self) -> Frame | None:
        """Return the next frame; None: the client has disconnected. Raises ValueError for what is no frame."""
        while not self._unread:
            data = await self._reader.read(READ_BYTES)
            if not data:
                return None
            self._unread = list(self._frames.feed(data))[::-1]
        return self._unread.pop()

    async def send(self, frame: Frame) -> None:
        """Send a frame, and wait while the client does not read."""
        self._writer.write(framing.pack(frame))
        await self._writer.drain()


def _listen_at(address: Address) -> socket.socket:
    """Listen at an address; [::] is every one of this host, of IPv4 alone where it has no IPv6. Raises OSError."""
    if not isinstance(address, str):
        if address[0] == underlay.ANY and not socket.has_dualstack_ipv6():
            address = underlay.ANY_IPV4, address[1]
        (found, *_) = underlay.addresses(address)
        family = underlay.family(found[0])
        both = found[0] == underlay.ANY
        name = underlay.socket_address(found)
        return socket.create_server(name, family=family, backlog=socket.SOMAXCONN, dualstack_ipv6=both)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        raise
    return listener


def _listen(addresses: Sequence[Address]) -> socket.socket:
    reason: OSError | None = None
    for address in addresses:
        try:
            return _listen_at(address)
        except OSError as error:
            reason = error
    assert reason is not None
    where = " or ".join(map(text_of, addresses[:2]))
    raise StoreError(reason.errno, f"rank 0 cannot serve a store at {where}: {reason.strerror}") from None
