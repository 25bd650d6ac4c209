"""Sparse gradients: selection of the largest elements, and exchange of the indices and values of all ranks.

A rank's message, fields little-endian: count (4 bytes), bytes of the indices (4), indices (indices.py), values
(float32). Indices count from the first element of the call's first parameter, so one message holds all parameters. It
crosses the NIC as bytes of an untagged stream: the bytes counted here are the bytes on the wire.
"""

from __future__ import annotations

import math
import struct
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from softnic.gradients import indices as coding
from softnic.gradients.flat import cut, zero_nonfinite
from softnic.gradients.indices import Indices
from softnic.gradients.method import Floats, Gradients, Method, MethodError
from softnic.mpi.communicator import Communicator

_HEADER = struct.Struct("<II")
_SAMPLE = 1 << 13
"""Elements from which the threshold is estimated."""


def largest(array: Floats, count: int) -> Indices:
    """Return the increasing indices of the `count` elements of largest magnitude; infinities and NaNs are the largest.

    The result is exact: the threshold of a sample (DGC, section 3) only excludes elements that are too small.
    """
    if count >= array.size:
        return np.arange(array.size)
    magnitudes = np.abs(array)
    candidates = _candidates(magnitudes, count)
    best = np.argpartition(magnitudes[candidates], candidates.size - count)[candidates.size - count :]
    return np.sort(candidates[best])


def _candidates(magnitudes: Floats, count: int) -> Indices:
    """Return indices that include those of the largest elements: few, if a sample gives a threshold."""
    sample = magnitudes[:: max(1, magnitudes.size // _SAMPLE)]
    wanted = 2 * count * sample.size // magnitudes.size + 16
    if wanted < sample.size // 2:
        threshold = np.partition(sample, sample.size - wanted)[sample.size - wanted]
        found = np.flatnonzero(~(magnitudes < threshold))
        if found.size >= count:
            return found
    return np.arange(magnitudes.size)


def selected_count(size: int, density: float, floor: int) -> int:
    """Return how many of a parameter's elements are sent: at least one, and all of a parameter of up to `floor`."""
    return size if size <= floor else max(1, math.ceil(density * size))


def check_density(density: float) -> float:
    """Return the fraction of elements that is sent. Raises MethodError if it is not one."""
    if not 0 < density <= 1:
        raise MethodError(f"density is above 0 and at most 1, not {density}")
    return density


def check_floor(floor: int) -> int:
    """Return a number of elements. Raises MethodError if it is negative."""
    if floor < 0:
        raise MethodError(f"floor is a number of elements, 0 or more, not {floor}")
    return floor


@dataclass(frozen=True)
class Sparse:
    """The non-zero elements of a longer array."""

    indices: Indices
    values: Floats

    def encode(self) -> bytes:
        """Encode the elements as a message."""
        indices = coding.encode(self.indices)
        return _HEADER.pack(self.indices.size, len(indices)) + indices + self.values.astype("<f4").tobytes()

    @classmethod
    def decode(cls, data: bytes, size: int) -> Sparse:
        """Decode a message about an array of `size` elements. Raises MethodError for an invalid one."""
        if len(data) < _HEADER.size:
            raise MethodError(f"{len(data)} bytes are not sparse gradients")
        count, used = _HEADER.unpack_from(data)
        if len(data) != _HEADER.size + used + 4 * count:
            raise MethodError(f"{len(data)} bytes are not {count} sparse gradients with {used} bytes of indices")
        indices = coding.decode(data[_HEADER.size : _HEADER.size + used], count, size)
        return cls(indices, np.frombuffer(data, "<f4", count, _HEADER.size + used))


def exchange(comm: Communicator, own: Sparse, size: int) -> tuple[Floats, int]:
    """Return the dense sum of all ranks' elements, added in rank order, and the bytes of this rank's message."""
    message = own.encode()
    total = np.zeros(size, np.float32)
    for data in comm.allgather(message):
        part = Sparse.decode(data, size)
        total[part.indices] += part.values
    return total, len(message)


class Sparsifier(Method):
    """Base of methods in which each rank sends the largest of its accumulated gradients. By parameter:

    1. `accumulate` the gradients.
    2. Select the elements of largest magnitude.
    3. Send indices and values to all ranks; the mean is the sum of all messages, divided by N.
    4. Clear what was sent (`on_sent`).
    """

    @abstractmethod
    def density(self, name: str) -> float:
        """Return the fraction of a parameter that is sent in this step, the same on all ranks."""

    @abstractmethod
    def accumulate(self, name: str, gradient: Floats) -> Floats:
        """Add a step's gradients. Returns the array from which elements are selected."""

    @abstractmethod
    def on_sent(self, name: str, indices: Indices) -> None:
        """Clear the elements that are sent."""

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
                self.on_sent(name, chosen)
                start += gradient.size
            own = Sparse(np.concatenate(indices), np.concatenate(values))
            total, sent_bytes = exchange(comm, own, start)
            total *= np.float32(1 / comm.size)
        for _, gradient, part in cut(total, gradients):
            gradient[:] = part
        self._step(gradients)
        self.stats.count(gradients, sent_bytes, kept_share=own.indices.size / max(start, 1))

    def clear(self, kept: Floats, indices: Indices) -> None:
        """Set these elements of a kept array to zero, and those that are not finite."""
        kept[indices] = 0
        zero_nonfinite(kept)
