"""What a state is: named arrays ("leaves"), laid one behind the other and cut into pieces with a digest each.

Leaves are sorted by codec, then as they were given: 32-bit floats, 16-bit floats, everything else. A piece has up to
`piece_bytes` bytes of leaves of one codec, so that small leaves share a piece and each piece is encoded as a whole.
The layout follows from the leaves alone; a manifest adds the digests, and two states are equal if their manifests are.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

PIECE_BYTES = 4 << 20
MOST_PIECE_BYTES = 16 << 20
MOST_STATE_BYTES = 1 << 48
MOST_MANIFEST_BYTES = 64 << 20
DIGEST_BYTES = 32
"""SHA-256: a receiver may trust a piece of any source that has the digest of the manifest."""
CODECS = {"float32": "exact:32", "float16": "exact:16", "bfloat16": "exact:16"}
"""Lossless codec of the leaves of a type; all others go as bytes."""
_ORDER = ("exact:32", "exact:16", "")

_Size = Annotated[int, msgspec.Meta(ge=0, le=MOST_STATE_BYTES)]


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    """Name and type of an array."""

    name: Annotated[str, msgspec.Meta(max_length=4096)]
    dtype: Annotated[str, msgspec.Meta(max_length=64)]
    """As numpy and torch name it, without "torch."."""
    width: Annotated[int, msgspec.Meta(ge=1, le=64)]
    """Bytes of an element."""
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=64)]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.width * math.prod(self.shape)

    @property
    def codec(self) -> str:
        """Lossless codec of its bytes; empty: none."""
        return CODECS.get(self.dtype, "")


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """Leaves of a state, and the digest of each piece."""

    step: int
    piece_bytes: Annotated[int, msgspec.Meta(ge=64, le=MOST_PIECE_BYTES)]
    leaves: Annotated[tuple[Leaf, ...], msgspec.Meta(max_length=1 << 20)]
    digests: bytes
    """Of all pieces, one behind the other."""

    def digest_of(self, piece: int) -> bytes:
        """Return the digest of a piece."""
        return self.digests[piece * DIGEST_BYTES : (piece + 1) * DIGEST_BYTES]


class ManifestError(ValueError):
    """The bytes are no manifest, or it contradicts itself."""


class Part(NamedTuple):
    """Consecutive bytes of a leaf."""

    leaf: int
    start: int
    stop: int


class StateLayout:
    """Pieces of leaves, in the order of a manifest.

    Parameters
    ----------
    leaves : sequence of Leaf
        Sorted as `sorted_leaves` does.
    piece_bytes : int
        The most bytes of a piece.
    """

    def __init__(self, leaves: Sequence[Leaf], piece_bytes: int) -> None:
        self.leaves = leaves
        self.total = sum(leaf.nbytes for leaf in leaves)
        self.codecs: list[str] = []
        """Of each piece; empty: none."""
        self._starts: list[int] = []
        """Where each piece starts in the bytes of all leaves."""
        self._leaf_starts: list[int] = []
        position = 0
        for codec in _ORDER:
            first = position
            for leaf in leaves:
                if leaf.codec == codec:
                    self._leaf_starts.append(position)
                    position += leaf.nbytes
            for start in range(first, position, piece_bytes):
                self._starts.append(start)
                self.codecs.append(codec)

    def __len__(self) -> int:
        return len(self._starts)

    def size(self, piece: int) -> int:
        """Return the bytes of a piece."""
        end = self._starts[piece + 1] if piece + 1 < len(self) else self.total
        return end - self._starts[piece]

    def parts(self, piece: int, start: int = 0, stop: int | None = None) -> Iterator[Part]:
        """Yield the parts of leaves that the bytes of a piece from `start` to `stop` are."""
        size = self.size(piece)
        begin = self._starts[piece] + start
        end = self._starts[piece] + (size if stop is None else min(stop, size))
        leaf = bisect.bisect_right(self._leaf_starts, begin) - 1
        while begin < end:
            inside = begin - self._leaf_starts[leaf]
            length = min(self.leaves[leaf].nbytes - inside, end - begin)
            if length > 0:
                yield Part(leaf, inside, inside + length)
            begin += max(0, length)
            leaf += 1


class TrainingState:
    """Leaves with their bytes.

    Parameters
    ----------
    leaves : sequence of (Leaf, array)
        Names are different. Arrays are uint8, one-dimensional, and of the leaf's size; they are not copied.

    Raises
    ------
    ManifestError
        If a name occurs twice, or an array has another size than its leaf.
    """

    def __init__(self, leaves: Sequence[tuple[Leaf, Bytes]]) -> None:
        in_order = sorted(leaves, key=lambda item: _ORDER.index(item[0].codec))
        self.leaves = tuple(leaf for leaf, _ in in_order)
        self.arrays = [array for _, array in in_order]
        if len({leaf.name for leaf in self.leaves}) != len(self.leaves):
            raise ManifestError("two leaves have one name")
        for leaf, array in in_order:
            if array.dtype != np.uint8 or array.ndim != 1 or array.nbytes != leaf.nbytes:
                raise ManifestError(f"{leaf.name}: {array.nbytes} bytes of {array.dtype}, not {leaf.nbytes} of uint8")

    def __getitem__(self, name: str) -> Bytes:
        return next(array for leaf, array in zip(self.leaves, self.arrays, strict=True) if leaf.name == name)

    def array(self, name: str) -> npt.NDArray[np.generic]:
        """Return a leaf of a type that numpy has, as an array of its shape. Shares memory."""
        leaf = next(leaf for leaf in self.leaves if leaf.name == name)
        return self[name].view(np.dtype(leaf.dtype)).reshape(leaf.shape)


def state_of(arrays: Mapping[str, npt.NDArray[np.generic]]) -> TrainingState:
    """Return numpy arrays as a state.

    Parameters
    ----------
    arrays : mapping of str to array
        Contiguous ones share their memory with the state, others are copied.

    Returns
    -------
    TrainingState
        One leaf for each array.
    """
    leaves = []
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array)
        leaf = Leaf(name, str(array.dtype), array.dtype.itemsize, array.shape)
        leaves.append((leaf, plain.reshape(-1).view(np.uint8)))
    return TrainingState(leaves)


def encode(manifest: Manifest) -> bytes:
    """Return a manifest as bytes. Equal manifests have equal bytes."""
    return msgspec.msgpack.encode(manifest)


def digest(data: bytes) -> bytes:
    """Return the digest of a manifest's bytes."""
    return hashlib.sha256(data).digest()


_decoder = msgspec.msgpack.Decoder(Manifest)


def decode(data: bytes) -> tuple[Manifest, StateLayout]:
    """Return a manifest and its layout from bytes of a peer. Raises ManifestError."""
    try:
        manifest = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # ValueError: text that is not UTF-8
        raise ManifestError(f"no manifest: {error}") from None
    order = [_ORDER.index(leaf.codec) for leaf in manifest.leaves]
    if order != sorted(order):
        raise ManifestError("the leaves are not in order")
    if len({leaf.name for leaf in manifest.leaves}) != len(manifest.leaves):
        raise ManifestError("two leaves have one name")
    total = sum(leaf.nbytes for leaf in manifest.leaves)
    if total > MOST_STATE_BYTES:
        raise ManifestError(f"a state of {total} bytes")
    # Pieces are no more than digests, of which the length is bounded: checked before the layout lists them.
    if len(manifest.digests) < DIGEST_BYTES * (total // manifest.piece_bytes):
        raise ManifestError("not one digest for each piece")
    layout = StateLayout(manifest.leaves, manifest.piece_bytes)
    if len(manifest.digests) != DIGEST_BYTES * len(layout):
        raise ManifestError("not one digest for each piece")
    return manifest, layout
