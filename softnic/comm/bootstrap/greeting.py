"""What both ends of a connection between ranks send first: Hello, with a proof of the job's secret. And its check.

Ranks that met by a store have agreed on an epoch, a random name of this start. A process of an earlier start, which may
know the addresses and hold the secret, is refused by it.
"""

from __future__ import annotations

import errno
import hmac
import select
import socket
from collections.abc import Container, Generator
from contextlib import suppress

from msgspec import structs

from softnic.comm import messages
from softnic.comm.bootstrap.launch import SECRET_VARIABLE, Launch
from softnic.comm.errors import CommError

_MAX_FIRST_BYTES = 8 << 10
"""Of a Hello, a Gathered or an Abort: what ranks send before they are joined."""
_REFUSED = b"-"
"""In place of a proof, to a rank that has none."""
FirstFrame = Generator[int, None, messages.Frame | None]
"""Reads one frame; yields the events of poll that it waits for."""


class Greeting:
    """The Hello of one rank of a launch, and the check of those of others."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.queues = 1
        """Of this rank's NIC."""

    def wrong(self, hello: messages.Hello) -> str:
        """Return why a connection is none of this job and version; empty: it is one."""
        if hello.version != messages.VERSION:
            return f"it speaks version {hello.version} of the protocol, this rank {messages.VERSION}"
        if hello.epoch != self._launch.epoch:
            return "it belongs to another start of the job"
        return "" if self.is_proven(hello) else f"it has not this rank's {SECRET_VARIABLE}"

    def is_proven(self, hello: messages.Hello) -> bool:
        """Return whether the sender of a hello has the secret of the job, if there is one."""
        return hmac.compare_digest(hello.proof, self._proof(hello))

    def _proof(self, hello: messages.Hello) -> bytes:
        """Return what only ranks of this job can say in a Hello; empty without a secret."""
        if not self._launch.secret:
            return b""
        text = f"softnic rank {hello.rank} of {hello.size} to {hello.to}, channel {hello.channel}, epoch {hello.epoch}"
        return hmac.digest(self._launch.secret, text.encode(), "sha256")

    def hello(self, to: int, channel: int, is_proof: bool = True) -> bytes:
        """Return this rank's Hello on a channel to another one. `is_proof`: with the proof of the secret."""
        launch = self._launch
        hello = messages.Hello(messages.VERSION, launch.size, launch.rank, to, channel, epoch=launch.epoch)
        proof, queues = self._proof(hello) if is_proof else _REFUSED, self.queues
        return messages.pack(structs.replace(hello, proof=proof, queues=queues))

    def check(self, hello: messages.Hello, expected: Container[int]) -> None:
        """Raise CommError if a hello is of another job, or not of these ranks."""
        launch = self._launch
        if hello.size != launch.size or hello.to != launch.rank or hello.rank not in expected:
            raise CommError(
                f"rank {launch.rank} of {launch.size} is connected to rank {hello.rank} of {hello.size}, which "
                f"expects rank {hello.to}: the ranks were started with different settings",
                rank=hello.rank,
            )


def receive_first(connection: socket.socket) -> FirstFrame:
    """Read the peer's next frame and no further byte: the rest belongs to the communicator. Returns None if it is none.
    Raises OSError."""
    received, size = b"", 4
    while len(received) < size <= _MAX_FIRST_BYTES:
        yield select.POLLIN
        with suppress(BlockingIOError):
            data = connection.recv(size - len(received))
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "closed before its Hello")
            received += data
            if len(received) == 4:
                size += int.from_bytes(received, "little")
    try:
        (frame,) = messages.Reader().feed(received)
    except ValueError:
        return None
    return frame
