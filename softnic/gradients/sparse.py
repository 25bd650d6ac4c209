"""A few gradients of many: choosing the largest, and exchanging those of all ranks, places and values, as bytes.

The message of a rank, fields little-endian: count (4 bytes), bytes of the places (4), places (indices.py), values
(float32). Places count from the first element of the first parameter of the call on, so one message holds all of them.
It crosses the NIC as bytes of an untagged stream: every byte that is counted here is on the wire.
"""

from __future__ import annotations

import math
import struct
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from softnic.comm.communicator import Communicator
from softnic.gradients import indices as coding
from softnic.gradients.flat import cut, zero_nonfinite
from softnic.gradients.indices import Indices
from softnic.gradients.method import Floats, Gradients, Method, MethodError

_HEADER = struct.Struct("<II")
_SAMPLE = 1 << 13
"""Elements that a first guess of the threshold looks at."""


def largest(array: Floats, count: int) -> Indices:
    """Where the `count` elements of the largest magnitude are, in increasing order; what is infinite or NaN comes
    first. Exact: a sample's threshold (as in DGC, section 3) only says which elements need to be looked at."""
    if count >= array.size:
        return np.arange(array.size)
    magnitudes = np.abs(array)
    candidates = _candidates(magnitudes, count)
    best = np.argpartition(magnitudes[candidates], candidates.size - count)[candidates.size - count :]
    return np.sort(candidates[best])


def _candidates(magnitudes: Floats, count: int) -> Indices:
    """Places among which the largest are: few, where a sample can tell."""
    sample = magnitudes[:: max(1, magnitudes.size // _SAMPLE)]
    wanted = 2 * count * sample.size // magnitudes.size + 16
    if wanted < sample.size // 2:
        threshold = np.partition(sample, sample.size - wanted)[sample.size - wanted]
        found = np.flatnonzero(~(magnitudes < threshold))
        if found.size >= count:
            return found
    return np.arange(magnitudes.size)


def selected_count(size: int, density: float, floor: int) -> int:
    """How many of a parameter's elements are sent: at least one, and all of a parameter of up to `floor`."""
    return size if size <= floor else max(1, math.ceil(density * size))


def check_density(density: float) -> float:
    """Raises MethodError for what is no share."""
    if not 0 < density <= 1:
        raise MethodError(f"the share that is sent is above 0 and at most 1, not {density}")
    return density


def check_floor(floor: int) -> int:
    """Raises MethodError for a negative number."""
    if floor < 0:
        raise MethodError(f"floor is a number of elements, 0 or more, not {floor}")
    return floor


@dataclass(frozen=True)
class Sparse:
    """Elements of a longer array, all others being zero."""

    indices: Indices
    values: Floats

    def encode(self) -> bytes:
        indices = coding.encode(self.indices)
        return _HEADER.pack(self.indices.size, len(indices)) + indices + self.values.astype("<f4").tobytes()

    @classmethod
    def decode(cls, data: bytes, size: int) -> Sparse:
        """Of an array of `size` elements. Raises MethodError for what is no such message."""
        if len(data) < _HEADER.size:
            raise MethodError(f"{len(data)} bytes are no sparse gradients")
        count, used = _HEADER.unpack_from(data)
        if len(data) != _HEADER.size + used + 4 * count:
            raise MethodError(f"{len(data)} bytes are no {count} sparse gradients with {used} bytes of places")
        indices = coding.decode(data[_HEADER.size : _HEADER.size + used], count, size)
        return cls(indices, np.frombuffer(data, "<f4", count, _HEADER.size + used))


def exchange(comm: Communicator, own: Sparse, size: int) -> tuple[Floats, int]:
    """The sum of all ranks' elements as a whole array, added up in rank order; and the bytes of this rank's message."""
    message = own.encode()
    total = np.zeros(size, np.float32)
    for data in comm.allgather(message):
        part = Sparse.decode(data, size)
        total[part.indices] += part.values
    return total, len(message)


class Sparsifier(Method):
    """Methods in which each rank sends the largest of what it has accumulated. By parameter:

    1. `accumulate` the gradients.
    2. Choose the largest by magnitude.
    3. Send places and values to all ranks; the mean is the sum of what came, divided by N.
    4. What was `sent` is accumulated no longer.
    """

    @abstractmethod
    def density(self, name: str) -> float:
        """The share of a parameter that is sent in this step, the same at all ranks."""

    @abstractmethod
    def accumulate(self, name: str, gradient: Floats) -> Floats:
        """Adds a step's gradients; returns what is to be sent of."""

    @abstractmethod
    def sent(self, name: str, indices: Indices) -> None:
        """These are on their way."""

    def __init__(self, floor: int) -> None:
        super().__init__()
        self.floor = check_floor(floor)

    def average(self, comm: Communicator, gradients: Gradients) -> None:
        indices, values, start = [np.empty(0, np.int64)], [np.empty(0, np.float32)], 0
        with np.errstate(over="ignore", invalid="ignore"):
            for name, gradient in gradients.items():
                accumulated = self.accumulate(name, gradient)
                chosen = largest(accumulated, selected_count(gradient.size, self.density(name), self.floor))
                indices.append(chosen + start)
                values.append(accumulated[chosen])
                self.sent(name, chosen)
                start += gradient.size
            own = Sparse(np.concatenate(indices), np.concatenate(values))
            total, sent_bytes = exchange(comm, own, start)
            total *= np.float32(1 / comm.size)
        for _, gradient, part in cut(total, gradients):
            gradient[:] = part
        self._step(gradients)
        self.stats.count(gradients, sent_bytes, kept_share=own.indices.size / max(start, 1))

    def clear(self, kept: Floats, indices: Indices) -> None:
        """Empties these places of what is kept, and those that no later step could use."""
        kept[indices] = 0
        zero_nonfinite(kept)
