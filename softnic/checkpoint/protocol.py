"""The bytes between a receiver and a source: parsed and built here, read and written by source.py and receiver.py.

docs/FORMAT.md, "Checkpoints", has the layout. A connection:

1. The source sends its greeting: magic, version, a nonce.
2. The receiver answers with magic, version, a nonce, the epoch, and a proof of the job's secret over all of it.
3. The source answers with a proof of its own, or refuses. From here on both send frames: kind, length, body.
4. The receiver asks for a step; the source answers with the digest of its manifest, after WAITING frames while it has
   no state of this step yet.
5. The receiver asks for the manifest if no other source has sent it, then for pieces, several ahead. It closes the
   connection when it has all.

Lengths are checked before memory is taken for them. What a peer sends against these rules raises ProtocolError.
"""

from __future__ import annotations

import enum
import hmac
import struct
from typing import NamedTuple

from softnic.checkpoint.manifest import DIGEST_BYTES, MOST_MANIFEST_BYTES, MOST_PIECE_BYTES

MAGIC = b"SNCK"
VERSION = 1
NONCE_BYTES = 16
PROOF_BYTES = 32
MOST_EPOCH_BYTES = 256
MOST_TEXT_BYTES = 1024

_GREETING = struct.Struct(f"<4sH{NONCE_BYTES}s")
_ANSWER = struct.Struct(f"<4sH{NONCE_BYTES}sH")
_FRAME = struct.Struct("<BxxxI")
_STEP = struct.Struct("<q")
_PIECE = struct.Struct("<I")
GREETING_BYTES = _GREETING.size
ANSWER_BYTES = _ANSWER.size
"""Of the part with fixed length; the epoch and the proof follow."""
FRAME_BYTES = _FRAME.size
PIECE_HEAD_BYTES = _PIECE.size
"""In front of the bytes of a piece: its number."""


class CheckpointError(Exception):
    """A state cannot be received, or served."""


class ProtocolError(ValueError):
    """A peer does not speak this protocol, or is none of this job."""


class FrameKind(enum.IntEnum):
    """Kinds of frames."""

    ACCEPTED = 1
    """From the source: its proof."""
    REFUSED = 2
    """From the source: why, as text. It closes the connection."""
    ASK_STEP = 3
    WAITING = 4
    """From the source: it has no state of this step yet. Sent every half second."""
    DIGEST = 5
    """From the source: of its manifest of the step."""
    ASK_MANIFEST = 6
    MANIFEST = 7
    ASK_PIECE = 8
    PIECE = 9
    """From the source: the number of a piece, and its bytes."""


_LENGTHS = {
    FrameKind.ACCEPTED: (PROOF_BYTES, PROOF_BYTES),
    FrameKind.REFUSED: (0, MOST_TEXT_BYTES),
    FrameKind.ASK_STEP: (_STEP.size, _STEP.size),
    FrameKind.WAITING: (0, 0),
    FrameKind.DIGEST: (DIGEST_BYTES, DIGEST_BYTES),
    FrameKind.ASK_MANIFEST: (0, 0),
    FrameKind.MANIFEST: (1, MOST_MANIFEST_BYTES),
    FrameKind.ASK_PIECE: (_PIECE.size, _PIECE.size),
    FrameKind.PIECE: (PIECE_HEAD_BYTES + 1, PIECE_HEAD_BYTES + MOST_PIECE_BYTES),
}


class Head(NamedTuple):
    """The first bytes of a frame."""

    kind: FrameKind
    length: int
    """Bytes of the body."""


def greeting(nonce: bytes) -> bytes:
    """Return what a source sends first."""
    return _GREETING.pack(MAGIC, VERSION, nonce)


def parse_greeting(data: bytes) -> bytes:
    """Return the nonce of a source. Raises ProtocolError."""
    magic, version, nonce = _GREETING.unpack(data)
    _check(magic, version)
    return bytes(nonce)


def answer(secret: bytes, source_nonce: bytes, nonce: bytes, epoch: str) -> bytes:
    """Return what a receiver answers to a greeting."""
    text = epoch.encode()
    proof = _proof(secret, b"receiver", source_nonce, nonce, text)
    return _ANSWER.pack(MAGIC, VERSION, nonce, len(text)) + text + proof


def parse_answer(data: bytes) -> tuple[bytes, int]:
    """Return the nonce of a receiver, and the bytes of epoch and proof that follow. Raises ProtocolError."""
    magic, version, nonce, length = _ANSWER.unpack(data)
    _check(magic, version)
    if length > MOST_EPOCH_BYTES:
        raise ProtocolError(f"an epoch of {length} bytes")
    return bytes(nonce), length + PROOF_BYTES


def check_answer(secret: bytes, nonces: tuple[bytes, bytes], epoch: str, rest: bytes) -> None:
    """Check epoch and proof of a receiver.

    Parameters
    ----------
    secret : bytes
        Of the job; empty: there is none.
    nonces : (bytes, bytes)
        The source's and the receiver's.
    epoch : str
        The source's.
    rest : bytes
        What followed the fixed part of the answer.

    Raises
    ------
    ProtocolError
        If one is not the source's.
    """
    text, proof = rest[:-PROOF_BYTES], rest[-PROOF_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, b"receiver", *nonces, text)):
        raise ProtocolError("the receiver has not this source's SOFTNIC_JOB_SECRET")
    if text != epoch.encode():
        raise ProtocolError("the receiver is of another epoch than this source")


def accepted(secret: bytes, nonces: tuple[bytes, bytes], epoch: str) -> bytes:
    """Return the frame with which a source accepts a receiver."""
    return frame(FrameKind.ACCEPTED, _proof(secret, b"source", *nonces, epoch.encode()))


def check_accepted(secret: bytes, nonces: tuple[bytes, bytes], epoch: str, proof: bytes) -> None:
    """Check the proof of a source. Raises ProtocolError."""
    if not hmac.compare_digest(proof, _proof(secret, b"source", *nonces, epoch.encode())):
        raise ProtocolError("it has not this receiver's SOFTNIC_JOB_SECRET")


def frame(kind: FrameKind, body: bytes = b"") -> bytes:
    """Return a frame."""
    return _FRAME.pack(kind, len(body)) + body


def refusal(text: str) -> bytes:
    """Return a frame with an error."""
    return frame(FrameKind.REFUSED, text.encode()[:MOST_TEXT_BYTES])


def ask_step(step: int) -> bytes:
    """Return the frame that asks for a step."""
    return frame(FrameKind.ASK_STEP, _STEP.pack(step))


def parse_step(body: bytes) -> int:
    """Return the step of an ASK_STEP."""
    return int(_STEP.unpack(body)[0])


def ask_piece(piece: int) -> bytes:
    """Return the frame that asks for a piece."""
    return frame(FrameKind.ASK_PIECE, _PIECE.pack(piece))


def piece_head(piece: int, size: int) -> bytes:
    """Return what precedes the bytes of a piece."""
    return _FRAME.pack(FrameKind.PIECE, PIECE_HEAD_BYTES + size) + _PIECE.pack(piece)


def parse_piece(body: bytes) -> int:
    """Return the number of a piece, from an ASK_PIECE or the first bytes of a PIECE."""
    return int(_PIECE.unpack(body)[0])


def parse_head(data: bytes) -> Head:
    """Return kind and length of a frame. Raises ProtocolError for an unknown kind, or a length that it cannot have."""
    number, length = _FRAME.unpack(data)
    try:
        kind = FrameKind(number)
    except ValueError:
        raise ProtocolError(f"a frame of the unknown kind {number}") from None
    least, most = _LENGTHS[kind]
    if not least <= length <= most:
        raise ProtocolError(f"a {kind.name} of {length} bytes")
    return Head(kind, length)


def _check(magic: bytes, version: int) -> None:
    if magic != MAGIC:
        raise ProtocolError("no checkpoint is served there: other first bytes")
    if version != VERSION:
        raise ProtocolError(f"version {version} of the checkpoint protocol, not {VERSION}")


def _proof(secret: bytes, role: bytes, source_nonce: bytes, nonce: bytes, epoch: bytes) -> bytes:
    """Return what only members of the job can say; zeros without a secret."""
    if not secret:
        return bytes(PROOF_BYTES)
    return hmac.digest(secret, b"softnic checkpoint 1 " + role + b" " + source_nonce + nonce + epoch, "sha256")
