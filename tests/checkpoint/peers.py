"""Sources and receivers without NICs: over the kernel's sockets, honest or not."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from softnic.checkpoint import Terms, TrainingState, manifest, protocol, state_of
from softnic.checkpoint.manifest import Manifest, StateLayout
from softnic.checkpoint.protocol import FrameKind, ProtocolError
from softnic.checkpoint.wire import read_body, read_exactly, read_head

PIECE_BYTES = 4096
Piece = Callable[[int, bytes], bytes]
"""Returns the frame of a piece, of its number and its bytes."""


def a_state(seed: int, size: int = 60_000) -> TrainingState:
    """Return a state with leaves of all codecs, small and empty ones too."""
    rng = np.random.default_rng(seed)
    return state_of(
        {
            "weight": rng.standard_normal(size // 4).astype(np.float32),
            "half": rng.standard_normal((7, 33)).astype(np.float16),
            "step": np.array(seed, np.float32),
            "empty": np.zeros((0, 3), np.float32),
            "counts": rng.integers(0, 9, 501),
            "flags": rng.random(5) < 0.5,
        }
    )


def an_honest(piece: int, data: bytes) -> bytes:
    return protocol.piece_head(piece, len(data)) + data


def described(state: TrainingState, step: int) -> tuple[bytes, list[bytes]]:
    """Return the manifest of a state, and its pieces."""
    layout = StateLayout(state.leaves, PIECE_BYTES)
    pieces = [
        b"".join(state.arrays[part.leaf][part.start : part.stop].tobytes() for part in layout.parts(piece))
        for piece in range(len(layout))
    ]
    digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    return manifest.encode(Manifest(step, PIECE_BYTES, state.leaves, digests)), pieces


class StandIn:
    """A source over the kernel's TCP that does as it is told.

    Parameters
    ----------
    state, step
        What it serves.
    dies_at : FrameKind, optional
        It closes the connection in place of its first answer of this kind.
    dies_after : int, optional
        It closes the connection after this number of pieces.
    piece : callable
        Makes the frame of a piece.
    stalls : bool
        It answers no piece.
    pause_s : float
        Before each piece.
    secret, epoch
        Its own.
    """

    def __init__(
        self, state: TrainingState, step: int = 5, *, dies_at: FrameKind | None = None, dies_after: int = 1 << 30,
        piece: Piece = an_honest, **other: Any,
    ) -> None:  # fmt: skip
        self._manifest, self.pieces = described(state, step)
        self.digest = other.get("digest", manifest.digest(self._manifest))
        self._step, self._dies_at, self._dies_after, self._piece = step, dies_at, dies_after, piece
        self._stalls, self._pause_s = other.get("stalls", False), other.get("pause_s", 0.0)
        self._secret, self._epoch = other.get("secret", b""), other.get("epoch", "job")
        self.asked: list[int] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listener.getsockname()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        self.listener.settimeout(0.05)
        while not self._ended.is_set():
            with suppress(OSError, EOFError):
                connection, _ = self.listener.accept()
                with connection:
                    connection.settimeout(5)
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        nonce = os.urandom(protocol.NONCE_BYTES)
        connection.sendall(protocol.greeting(nonce))
        theirs, length = protocol.parse_answer(read_exactly(connection, protocol.ANSWER_BYTES))
        try:
            protocol.check_answer(self._secret, (nonce, theirs), self._epoch, read_exactly(connection, length))
        except ProtocolError as error:
            connection.sendall(protocol.refusal(str(error)))
            return
        if self._dies_at is FrameKind.ACCEPTED:
            return
        connection.sendall(protocol.accepted(self._secret, (nonce, theirs), self._epoch))
        sent = 0
        while True:
            kind, length = read_head(connection)
            body = read_body(connection, length)
            if kind is FrameKind.ASK_STEP:
                if self._dies_at is FrameKind.DIGEST:
                    return
                connection.sendall(protocol.frame(FrameKind.DIGEST, self.digest))
            elif kind is FrameKind.ASK_MANIFEST:
                if self._dies_at is FrameKind.MANIFEST:
                    return
                connection.sendall(protocol.frame(FrameKind.MANIFEST, self._manifest))
            else:
                piece = protocol.parse_piece(body)
                self.asked.append(piece)
                if self._stalls:
                    self._ended.wait(5)
                if sent >= self._dies_after or self._stalls:
                    return
                time.sleep(self._pause_s)
                connection.sendall(self._piece(piece, self.pieces[piece]))
                sent += 1


def over_tcp(address: tuple[str, int], timeout_s: float, _: Any) -> socket.socket:
    """Connect as the receiver does through a NIC."""
    return socket.create_connection(address, timeout=timeout_s)


def terms(**named: Any) -> Terms:
    """Return terms of a receipt over the kernel's TCP."""
    given: dict[str, Any] = {"epoch": "job", "secret": b"", "timeout_s": 10.0, "stall_s": 1.0} | named
    return Terms(connect=over_tcp, **given)
