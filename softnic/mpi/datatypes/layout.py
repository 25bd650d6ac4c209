"""Layouts of datatypes: which bytes of a buffer belong to a message, and in which order (MPI's type maps).

A layout is a list of runs, pieces of memory of elements of one type, each at an offset from the start of an item.
Runs that continue each other are one run. Items follow each other at the distance `extent`. Gathering copies the runs
of some items to contiguous memory, scattering copies them back: as one strided copy if the runs have the same length
and distance, as those of vectors and of 2-D subarrays, otherwise by an index of all their words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[Any]
"""A flat array of bytes."""
Integers = npt.NDArray[np.int64]
_CHUNK_WORDS = 1 << 18
"""Words that are copied by one index."""
_WORDS: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("u2"),
    4: np.dtype("u4"),
    8: np.dtype("u8"),
    16: np.dtype("V16"),
}


@dataclass(frozen=True, eq=False)
class TypeMap:
    """The runs of one item, and its bounds: the next item starts `ub - lb` bytes behind it."""

    offsets: Integers
    """Of each run, in bytes."""
    lengths: Integers
    """Of each run, in bytes."""
    kinds: Integers
    """Of each run, the index of its type in `elements`."""
    elements: tuple[np.dtype[Any], ...]
    lb: int
    ub: int

    @property
    def extent(self) -> int:
        return self.ub - self.lb

    @cached_property
    def size(self) -> int:
        """The bytes of an item that belong to a message."""
        return int(self.lengths.sum())

    @cached_property
    def _run_elements(self) -> Integers:
        """Elements of each run."""
        sizes = np.array([element.itemsize for element in self.elements], np.int64)
        return self.lengths // sizes[self.kinds]

    def elements_in(self, nbytes: int) -> int | None:
        """Return the elements of so many packed bytes; None if the last one is not whole."""
        if not self.size:
            return 0
        items, rest = divmod(nbytes, self.size)
        count = items * int(self._run_elements.sum())
        for length, elements in zip(self.lengths.tolist(), self._run_elements.tolist(), strict=True):
            if rest < length:
                whole, part = divmod(rest * elements, length)
                return None if part else count + whole
            rest, count = rest - length, count + elements
        return count

    def bytes_of(self, count: int) -> int:
        """Return the packed bytes of the first `count` elements of items."""
        if not self.size:
            return 0
        items, rest = divmod(count, int(self._run_elements.sum()))
        nbytes = items * self.size
        for length, elements in zip(self.lengths.tolist(), self._run_elements.tolist(), strict=True):
            taken = min(rest, elements)
            rest, nbytes = rest - taken, nbytes + taken * length // elements
        return nbytes

    @cached_property
    def true_lb(self) -> int:
        return int(self.offsets.min()) if self.offsets.size else 0

    @cached_property
    def true_ub(self) -> int:
        return int((self.offsets + self.lengths).max()) if self.offsets.size else 0

    @cached_property
    def is_dense(self) -> bool:
        """Whether items are contiguous memory, and start where their memory starts."""
        return self.extent == self.size and self.offsets.size <= 1 and self.true_lb == 0

    @cached_property
    def element(self) -> np.dtype[Any] | None:
        """The type of all elements; None if there are several."""
        used = {self.elements[int(kind)] for kind in set(self.kinds.tolist())}
        return used.pop() if len(used) == 1 else self.elements[0] if not used and self.elements else None

    @cached_property
    def alignment(self) -> int:
        """The largest alignment of an element."""
        return max((element.alignment for element in self.elements), default=1)

    # -- construction --------------------------------------------------------------------------------------------------

    def block(self, count: int) -> TypeMap:
        """Return `count` items, one after the other."""
        if count == 1:
            return self
        if self.is_dense and count:
            return TypeMap(self.offsets, self.lengths * count, self.kinds, self.elements, 0, self.ub * count)
        return self.placed((1,), np.arange(count, dtype=np.int64) * self.extent)

    def placed(self, counts: Sequence[int], displacements: Integers) -> TypeMap:
        """Return blocks of items at displacements in bytes; one count stands for that of all blocks."""
        if len(counts) == 1 and counts[0] == 1:
            if not displacements.size:
                return combined(())
            offsets = (displacements[:, None] + self.offsets).reshape(-1)
            times = displacements.size
            low, high = int(displacements.min()), int(displacements.max())
            return _merged(
                offsets, np.tile(self.lengths, times), np.tile(self.kinds, times), self.elements,
                self.lb + low, self.ub + high,
            )  # fmt: skip
        if len(counts) == 1:
            return self.block(counts[0]).placed((1,), displacements) if counts[0] else combined(())
        return combined(
            (self.block(count), int(displacement))
            for count, displacement in zip(counts, displacements.tolist(), strict=True)
            if count
        )

    def resized(self, lb: int, extent: int) -> TypeMap:
        """Return the same runs with other bounds."""
        return TypeMap(self.offsets, self.lengths, self.kinds, self.elements, lb, lb + extent)

    # -- copies --------------------------------------------------------------------------------------------------------

    def check(self, memory: Bytes, start: int, count: int) -> None:
        """Raise ValueError unless `count` items from `start` on are in `memory`."""
        if not count or not self.size:
            return
        reach = (count - 1) * self.extent
        low, high = start + min(0, reach) + self.true_lb, start + max(0, reach) + self.true_ub
        if low < 0 or high > memory.size:
            raise ValueError(f"has {memory.size} bytes, and {count} items of the datatype are bytes {low} to {high}")

    def gather(self, memory: Bytes, start: int, count: int) -> Bytes:
        """Return a contiguous copy of the runs of `count` items, whose first one is at `start`. Raises ValueError."""
        self.check(memory, start, count)
        packed = np.empty(count * self.size, np.uint8)
        self._copy(memory, start, count, packed, to_memory=False)
        return packed

    def scatter(self, packed: Bytes, memory: Bytes, start: int) -> None:
        """Copy the bytes of items to their runs; the last item may be incomplete. Raises ValueError."""
        if not self.size or not packed.size:
            return
        count, rest = divmod(packed.size, self.size)
        self.check(memory, start, count + bool(rest))
        self._copy(memory, start, count, packed[: count * self.size], to_memory=True)
        if rest:
            last = start + count * self.extent
            whole = self.gather(memory, last, 1)
            whole[:rest] = packed[count * self.size :]
            self._copy(memory, last, 1, whole, to_memory=True)

    def _copy(self, memory: Bytes, start: int, count: int, packed: Bytes, *, to_memory: bool) -> None:
        if not packed.size:
            return
        step = self._step
        if step is not None:
            word = _WORDS[math.gcd(self._word, start)]
            shape = (count, self.offsets.size, int(self.lengths[0]) // word.itemsize)
            first = start + int(self.offsets[0])
            runs: Bytes = np.ndarray(shape, word, memory, first, (self.extent, step, word.itemsize))
            flat = packed.view(word).reshape(shape)
            if to_memory:
                runs[...] = flat
            else:
                flat[...] = runs
            return
        word = _WORDS[math.gcd(self._word, start)]
        index = self._index(word.itemsize)
        words = memory[: memory.size // word.itemsize * word.itemsize].view(word)
        flat = packed.view(word)
        at_a_time = max(1, _CHUNK_WORDS // index.size)
        for item in range(0, count, at_a_time):
            items = np.arange(item, min(count, item + at_a_time), dtype=np.int64)
            where = ((start + items * self.extent) // word.itemsize)[:, None] + index
            part = flat[item * index.size : (item + items.size) * index.size]
            if to_memory:
                words[where.reshape(-1)] = part
            else:
                part[:] = words[where.reshape(-1)]

    @cached_property
    def _step(self) -> int | None:
        """The distance of all runs, if they have one length and one distance."""
        if (self.lengths != self.lengths[0]).any():
            return None
        if self.offsets.size == 1:
            return 0
        steps = np.diff(self.offsets)
        return int(steps[0]) if (steps == steps[0]).all() else None

    @cached_property
    def _word(self) -> int:
        """The bytes of the largest word of which all offsets, lengths and the extent are multiples."""
        every = np.gcd.reduce(np.concatenate((self.offsets, self.lengths, [self.extent])))
        return math.gcd(int(every), 16)

    def _index(self, itemsize: int) -> Integers:
        """Return the offsets of all words of an item."""
        lengths = self.lengths // itemsize
        starts = np.repeat(self.offsets // itemsize - (np.cumsum(lengths) - lengths), lengths)
        index: Integers = starts + np.arange(starts.size)
        return index


def basic(dtype: np.dtype[Any]) -> TypeMap:
    """Return the layout of one element."""
    one = np.zeros(1, np.int64)
    return TypeMap(one, one + dtype.itemsize, one, (dtype,), 0, dtype.itemsize)


def combined(parts: Iterable[tuple[TypeMap, int]]) -> TypeMap:
    """Return layouts at displacements in bytes as one layout."""
    placed = list(parts)
    if not placed:
        empty = np.zeros(0, np.int64)
        return TypeMap(empty, empty, empty, (), 0, 0)
    elements: dict[np.dtype[Any], int] = {}
    kinds = []
    for layout, _ in placed:
        numbers = np.array([elements.setdefault(each, len(elements)) for each in layout.elements], np.int64)
        kinds.append(numbers[layout.kinds])
    return _merged(
        np.concatenate([layout.offsets + displacement for layout, displacement in placed]),
        np.concatenate([layout.lengths for layout, _ in placed]),
        np.concatenate(kinds),
        tuple(elements),
        min(layout.lb + displacement for layout, displacement in placed),
        max(layout.ub + displacement for layout, displacement in placed),
    )


def _merged(
    offsets: Integers, lengths: Integers, kinds: Integers, elements: tuple[np.dtype[Any], ...], lb: int, ub: int
) -> TypeMap:
    """Return the layout in which runs that continue each other are one."""
    if offsets.size > 1:
        first = np.ones(offsets.size, bool)
        first[1:] = (offsets[1:] != offsets[:-1] + lengths[:-1]) | (kinds[1:] != kinds[:-1])
        (starts,) = first.nonzero()
        if starts.size < offsets.size:
            lengths = np.add.reduceat(lengths, starts)
            offsets, kinds = offsets[starts], kinds[starts]
    return TypeMap(offsets, lengths, kinds, elements, lb, ub)
