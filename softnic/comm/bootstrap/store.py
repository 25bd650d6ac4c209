"""A key-value store that rank 0 serves while the ranks discover each other, if their framework has none.

The server (store_server.py) runs in a thread of rank 0, on a Unix socket where all ranks are on one host, else on TCP.

1. A client sends JoinStore: the job's name, the version of this protocol, and a nonce.
2. The server answers with Challenge: a nonce of its own, and its proof that it has the secret of the job.
3. The client checks the proof and sends its own, Prove. Then it sends one request at a time: SetKey, answered by
   KeyStored, or GetKey, answered by KeyValue when the key is set.

A proof is an HMAC under the secret of the job over the names of job and side and both nonces: the secret never leaves
a process, and neither proof serves a second time. Without SOFTNIC_JOB_SECRET the secret is empty, and everybody who
knows the job's name can join; on a Unix socket, only this user and root.

The server disconnects clients of other jobs and versions and those that violate the protocol, with StoreRefused, which
says why.
"""

from __future__ import annotations

import errno
import hmac
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from softnic import underlay
from softnic.collectives import framing
from softnic.comm.bootstrap.launch import SECRET_VARIABLE
from softnic.comm.bootstrap.presence import Presence
from softnic.terminal import printable

VERSION = 2
"""Of this protocol. The first one had no proofs."""
NONCE_BYTES = 16
MAX_VALUE = 16 << 10
"""Bytes of a key and its value."""
_MAX_FRAME = MAX_VALUE + 64
READ_BYTES = 1 << 16
_RETRY_S = 0.05
_NEXT_ADDRESS_S = 1.0
"""Time to connect to one of several addresses of a name before the next one is tried."""
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
    """The first frame of a client."""

    job: str
    version: int = 1
    nonce: bytes = b""


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


class Challenge(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """Reply to JoinStore."""

    nonce: bytes
    proof: bytes


class Prove(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """A client's answer to Challenge."""

    proof: bytes


class StoreRefused(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """The last frame of the server to a client that it disconnects."""

    text: str


Frame = JoinStore | SetKey | GetKey | KeyStored | KeyValue | Challenge | Prove | StoreRefused
_decode: Callable[[bytearray], Frame] = msgspec.msgpack.Decoder(Frame).decode


class StoreError(OSError):
    """The store cannot be reached or has no answer."""


def frame_reader() -> framing.FrameReader[Frame]:
    """Return what splits the bytes of a connection into frames."""
    return framing.FrameReader[Frame](_decode, "store", _MAX_FRAME)


def proof(secret: bytes, side: str, job: str, nonces: bytes) -> bytes:
    """Return what shows that the `client` or the `server` has the secret. `nonces`: the client's and the server's."""
    return hmac.digest(secret, b"softnic store %b %b %b" % (side.encode(), job.encode(), nonces), "sha256")


class StoreClient:
    """The Store that a StoreServer serves at one of `addresses`. Connects once the server is up.

    `timeout_s` limits each step; `presence` extends the limit while the awaited rank may still join, unless rank 0
    refuses this one. The methods raise StoreError, with the errno ESRCH if the process of the awaited rank has ended.
    `secret` is that of the job.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        job: str,
        timeout_s: float,
        presence: Presence | None = None,
        secret: bytes = b"",
    ) -> None:
        self._timeout_s = timeout_s
        self._presence = presence or Presence(timeout_s)
        self._presence.begin()
        self._reader = frame_reader()
        self._lock = threading.Lock()
        attempts, refusal = 0, ""
        while True:
            address = addresses[attempts % len(addresses)]
            try:
                self._socket = self._connect(address, job, secret)
                return
            except OSError as error:
                attempts += 1
                if isinstance(error, StoreError):  # says more than that nothing listens at the next address
                    refusal = f"{text_of(address)}: {error.strerror}"
                if exited := self._presence.exited([0]):
                    raise StoreError(errno.ESRCH, exited[0]) from None
                if self._presence.overdue([0]) or (_is_final(address, error) and self._presence.expired):
                    text = f"rank 0 serves no store at {refusal or f'{text_of(address)}: {error.strerror or error}'}"
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

    def _connect(self, address: Address, job: str, secret: bytes) -> socket.socket:
        connection = _connected(address, max(_RETRY_S, self._timeout_s))
        try:
            if not is_same_user(connection):
                raise PermissionError(errno.EACCES, "another user serves there")
            nonce = os.urandom(NONCE_BYTES)
            connection.settimeout(max(_RETRY_S, self._timeout_s))
            connection.sendall(framing.pack(JoinStore(job, VERSION, nonce)))
            self._reader = frame_reader()
            reply = self._receive(connection, time.monotonic() + max(_RETRY_S, min(1.0, self._timeout_s)))
            match reply:
                case Challenge() if hmac.compare_digest(reply.proof, proof(secret, "server", job, nonce + reply.nonce)):
                    connection.sendall(framing.pack(Prove(proof(secret, "client", job, nonce + reply.nonce))))
                case Challenge():
                    raise StoreError(errno.EACCES, f"{SECRET_VARIABLE} differs there, or only one side has it")
                case JoinStore():
                    raise StoreError(errno.EPROTO, "an earlier version of softnic serves there")
                case _:
                    raise StoreError(errno.EPROTO, "another service listens there")
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
                    if error.errno != errno.ESRCH:
                        raise StoreError(error.errno, f"{failure}: {error.strerror}") from None
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

    def _receive(self, connection: socket.socket, deadline: float | None = None) -> Frame:
        """Return the next frame. Raises StoreError for StoreRefused, TimeoutError at the deadline or timeout."""
        while True:
            if deadline is not None:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
            data = connection.recv(READ_BYTES)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
            try:
                for frame in self._reader.feed(data):
                    if isinstance(frame, StoreRefused):
                        raise StoreError(errno.EPROTO, printable(frame.text))
                    return frame
            except ValueError:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "another service listens there") from None


def _is_final(address: Address, error: OSError) -> bool:
    """Return whether it is rank 0 that refuses this rank: the names of Unix sockets, and secrets, are those of jobs."""
    return isinstance(error, StoreError) and (isinstance(address, str) or error.errno == errno.EACCES)


def _connected(address: Address, timeout_s: float) -> socket.socket:
    """Connect to an address, of a name to the first one that answers. Raises OSError."""
    if not isinstance(address, str):
        *others, last = underlay.addresses(address)
        for other in others:
            with suppress(OSError):
                return socket.create_connection(other, min(timeout_s, _NEXT_ADDRESS_S))
        return socket.create_connection(last, timeout_s)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the peer on a Unix socket is this user or root. On TCP only proofs tell."""
    if connection.family != socket.AF_UNIX:
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1] in (os.getuid(), 0)


def text_of(address: Address) -> str:
    return address.lstrip("\0") if isinstance(address, str) else underlay.text(address)
