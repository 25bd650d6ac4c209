"""SparseLoCo: the largest elements of each chunk, in two bits, with an error feedback that decays.

Sarfi et al. (arXiv 2508.15706, 2025), for the outer steps of local training (outer.py), in place of outer momentum; as
any method it also takes gradients. Chunks are 4,096 consecutive elements of a parameter.

A rank's message, fields little-endian: bytes of the indices (4), indices (indices.py), levels, codes. The number of
elements follows from the parameters' sizes. Levels are the magnitudes that elements of a chunk may have, 2^(bits - 1)
of them, ascending, as the upper halves of float32 (bfloat16). A code has `bits` bits, the first of which is the sign
and the others the number of the level; codes fill bytes from their highest bits.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from softnic.gradients import indices as coding
from softnic.gradients.flat import cut, zero_nonfinite
from softnic.gradients.indices import Indices
from softnic.gradients.method import Floats, Gradients, MethodError
from softnic.gradients.rounds import MessageMethod, Rounds, RoundsPlace
from softnic.gradients.sparse import check_density, selected_count
from softnic.mpi.communicator import Communicator

_HEADER = struct.Struct("<I")
_LEVEL_BYTES = 2
_MOST_BITS = 8
_NAN = 0x7FC0


class _Part(NamedTuple):
    """Elements that are sent: where they are, the levels of their chunks, and their codes."""

    where: Indices
    levels: npt.NDArray[np.uint16]
    codes: npt.NDArray[np.uint8]


class SparseLoCo(MessageMethod):
    """By parameter, with memory m (zeros at first):

    1. m = beta m + g
    2. In each chunk, select the fraction `share` of m with the largest magnitudes.
    3. q = these elements in `bits` bits: a sign, and one of 2^(bits - 1) magnitudes. They are sorted by magnitude and
       divided into as many groups of equal size, and a group's mean stands for its elements.
    4. m = m - q
    5. Exchange q; the mean is the sum of all ranks' q, in the order of ranks, divided by N.

    Not worthwhile as a plain gradient method beside momentum in the optimizer, nor with many ranks: each receives the
    messages of all others.
    """

    name = "sparseloco"
    keeps = "memory"

    def __init__(self, share: float = 0.02, bits: int = 2, beta: float = 0.95, chunk: int = 4096) -> None:
        """`share`: fraction that is sent, 1 to 3 % in the paper. `bits`: of an element, 1 to 8. `beta`: how much of the
        memory is kept, 0..1; 1: nothing is forgotten. `chunk`: elements of a chunk."""
        super().__init__()
        if not 1 <= bits <= _MOST_BITS:
            raise MethodError(f"sparseloco takes 1 to {_MOST_BITS} bits an element, not {bits}")
        if not 0 <= beta <= 1:
            raise MethodError(f"sparseloco takes a beta of 0..1, not {beta}")
        if chunk < 1:
            raise MethodError(f"sparseloco takes chunks of 1 element or more, not {chunk}")
        self._share, self._bits, self._chunk = check_density(share), bits, chunk
        self._beta = np.float32(beta)

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        sizes = [gradient.size for gradient in gradients.values()]
        with np.errstate(over="ignore", invalid="ignore"):
            memories = [
                self._accumulated(self.kept(self.keeps, name, gradient.size), gradient)
                for name, gradient in gradients.items()
            ]
            message = self._message(memories)
            total = self._sum(memories, comm.allgather(message), comm.rank)
            total *= np.float32(1 / comm.size)
        for _, gradient, part in cut(total, gradients):
            gradient[:] = part
        self._step(gradients)
        self.stats.count(gradients, len(message), kept_share=sum(self._counts(sizes)) / max(sum(sizes), 1))

    def rounds(self, gradient: Floats, kept: Floats, place: RoundsPlace) -> Rounds:
        with np.errstate(over="ignore", invalid="ignore"):
            memory = self._accumulated(kept, gradient)
            message = self._message([memory])
        received = yield [message] * place.size
        with np.errstate(over="ignore", invalid="ignore"):
            return self._sum([memory], received, place.rank)

    def _accumulated(self, memory: Floats, gradient: Floats) -> Floats:
        """Step 1."""
        memory *= self._beta
        memory += gradient
        return memory

    def _sum(self, memories: list[Floats], received: Sequence[bytes], own: int) -> Floats:
        """Steps 4 and 5: the sum of the messages of all ranks."""
        sizes = [memory.size for memory in memories]
        total = np.zeros(sum(sizes), np.float32)
        for rank, data in enumerate(received):
            where, values = self._decoded(data, sizes)
            total[where] += values
            if rank == own:
                self._forget(memories, where, values)
        return total

    @staticmethod
    def _forget(memories: list[Floats], where: Indices, values: Floats) -> None:
        """Step 4, with the values that the other ranks have, too."""
        start = 0
        for memory in memories:
            first, last = np.searchsorted(where, (start, start + memory.size))
            memory[where[first:last] - start] -= values[first:last]
            zero_nonfinite(memory)
            start += memory.size

    # -- messages

    def _lengths(self, size: int) -> list[int]:
        """Return the lengths of a parameter's chunks."""
        whole, rest = divmod(size, self._chunk)
        return [self._chunk] * whole + [rest] * (rest > 0)

    def _counts(self, sizes: list[int]) -> list[int]:
        """Return how many elements of each chunk are sent, of all parameters."""
        return [selected_count(length, self._share, 0) for size in sizes for length in self._lengths(size)]

    def _message(self, memories: list[Floats]) -> bytes:
        """Steps 2 and 3."""
        parts = [_Part(np.empty(0, np.int64), np.empty(0, np.uint16), np.empty(0, np.uint8))]
        start = 0
        for memory in memories:
            whole = memory.size - memory.size % self._chunk
            for first, last, length in ((0, whole, self._chunk), (whole, memory.size, memory.size - whole)):
                if first < last:
                    found = self._quantized(memory[first:last].reshape(-1, length))
                    parts.append(found._replace(where=found.where + (start + first)))
            start += memory.size
        packed = coding.encode(np.concatenate([part.where for part in parts]))
        levels = np.concatenate([part.levels for part in parts]).astype("<u2")
        codes = np.concatenate([part.codes for part in parts])
        bits = np.unpackbits(codes[:, None], axis=1)[:, 8 - self._bits :]
        return _HEADER.pack(len(packed)) + packed + levels.tobytes() + np.packbits(bits).tobytes()

    def _quantized(self, chunks: Floats) -> _Part:
        """Return what is sent of chunks of one length, one in each row."""
        count, rows = selected_count(chunks.shape[1], self._share, 0), np.arange(len(chunks))[:, None]
        where = np.sort(np.argpartition(np.abs(chunks), -count, axis=1)[:, -count:], axis=1)
        values = chunks[rows, where]
        magnitudes, groups = np.abs(values), 1 << (self._bits - 1)
        order = np.argsort(magnitudes, axis=1, kind="stable")
        bounds = np.arange(groups + 1) * count // groups
        codes = np.empty(values.shape, np.uint8)
        levels = np.zeros((len(chunks), groups), np.float32)
        for group in range(groups):
            inside = order[:, bounds[group] : bounds[group + 1]]
            codes[rows, inside] = group
            if inside.shape[1]:
                levels[:, group] = magnitudes[rows, inside].mean(axis=1, dtype=np.float64)
        codes |= np.signbit(values).astype(np.uint8) << (self._bits - 1)
        return _Part((where + rows * chunks.shape[1]).ravel(), _upper(levels).ravel(), codes.ravel())

    def _decoded(self, data: bytes, sizes: list[int]) -> tuple[Indices, Floats]:
        """Return the increasing indices in a message, and their values. Raises MethodError for an invalid one."""
        counts = np.array(self._counts(sizes), np.int64)
        total, groups = int(counts.sum()), 1 << (self._bits - 1)
        rest = counts.size * groups * _LEVEL_BYTES + -(-total * self._bits // 8)
        used = _HEADER.unpack_from(data)[0] if len(data) >= _HEADER.size else 0
        if len(data) != _HEADER.size + used + rest:
            raise MethodError(f"{len(data)} bytes are not {total} elements of sparseloco: ranks differ in settings")
        where = coding.decode(data[_HEADER.size : _HEADER.size + used], total, sum(sizes))
        at = _HEADER.size + used
        upper = np.frombuffer(data, "<u2", counts.size * groups, at).astype(np.uint32)
        levels = (upper << 16).view(np.float32)
        packed = np.frombuffer(data, np.uint8, offset=at + upper.size * _LEVEL_BYTES)
        bits = np.unpackbits(packed, count=total * self._bits).reshape(total, self._bits)
        codes = np.packbits(bits, axis=1)[:, 0] >> (8 - self._bits)
        chunks = np.repeat(np.arange(counts.size), counts)
        values = levels[chunks * groups + (codes & (groups - 1))]
        values[codes >> (self._bits - 1) == 1] *= -1
        return where, values


def _upper(levels: Floats) -> npt.NDArray[np.uint16]:
    """Return the upper halves of floats, rounded."""
    whole = (levels.view(np.uint32) + np.uint32(0x8000)) >> 16
    whole[np.isnan(levels)] = _NAN
    return whole.astype(np.uint16)
