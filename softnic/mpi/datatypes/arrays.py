"""Parts of arrays as layouts: a rectangle of an array, and one rank's part of an array distributed over a grid."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from softnic.comm.error_classes import ERR_ARG
from softnic.comm.errors import ArgumentError
from softnic.mpi.constants import DISTRIBUTE_BLOCK, DISTRIBUTE_DFLT_DARG, DISTRIBUTE_NONE, ORDER_FORTRAN
from softnic.mpi.datatypes.layout import Integers, TypeMap


class Subarray(NamedTuple):
    """The arguments of Create_subarray."""

    sizes: list[int]
    subsizes: list[int]
    starts: list[int]
    order: int

    @property
    def integers(self) -> list[int]:
        return [len(self.sizes), *self.sizes, *self.subsizes, *self.starts, self.order]

    def checked(self) -> Subarray:
        """Return the arguments. Raises ArgumentError unless the part is within the array."""
        if not len(self.sizes) == len(self.subsizes) == len(self.starts) or not all(
            length >= 0 <= start <= size - length
            for size, length, start in zip(self.sizes, self.subsizes, self.starts, strict=True)
        ):
            part = f"a part of {self.subsizes} at {self.starts}"
            raise ArgumentError(f"{part} is not within an array of {self.sizes}", code=ERR_ARG)
        return self

    def layout(self, old: TypeMap) -> TypeMap:
        """Return the layout of the part of an array of `old`."""
        axes = [
            np.arange(start, start + length, dtype=np.int64)
            for start, length in zip(self.starts, self.subsizes, strict=True)
        ]
        return _part(axes, self.sizes, self.order, old)


class DistributedArray(NamedTuple):
    """The arguments of Create_darray."""

    size: int
    rank: int
    gsizes: list[int]
    distribs: list[int]
    dargs: list[int]
    psizes: list[int]
    order: int

    @property
    def integers(self) -> list[int]:
        axes = [*self.gsizes, *self.distribs, *self.dargs, *self.psizes]
        return [self.size, self.rank, len(self.gsizes), *axes, self.order]

    def checked(self) -> DistributedArray:
        """Return the arguments. Raises ArgumentError unless the grid has the ranks, and each axis its arguments."""
        axes = {len(each) for each in (self.gsizes, self.distribs, self.dargs, self.psizes)}
        if len(axes) > 1 or math.prod(self.psizes) != self.size or not 0 <= self.rank < self.size:
            part = f"rank {self.rank} of {self.size} in a grid of {self.psizes}"
            raise ArgumentError(f"{part} has no part of an array of {self.gsizes}", code=ERR_ARG)
        return self

    def layout(self, old: TypeMap) -> TypeMap:
        """Return the layout of this rank's part of an array of `old`."""
        place = np.unravel_index(self.rank, self.psizes)
        axes = [
            _owned(length, kind, block, ranks, int(own))
            for length, kind, block, ranks, own in zip(
                self.gsizes, self.distribs, self.dargs, self.psizes, place, strict=True
            )
        ]
        return _part(axes, self.gsizes, self.order, old)


def _owned(length: int, kind: int, block: int, ranks: int, own: int) -> Integers:
    """Return the indices of an axis that belong to a rank."""
    every = np.arange(length, dtype=np.int64)
    if kind == DISTRIBUTE_NONE:
        return every
    if block == DISTRIBUTE_DFLT_DARG:
        block = -(-length // ranks) if kind == DISTRIBUTE_BLOCK else 1
    owned: Integers = every[every // block % ranks == own]
    return owned


def _part(axes: list[Integers], sizes: list[int], order: int, old: TypeMap) -> TypeMap:
    """Return the layout of the elements with these indices of each axis, in the order in which they lie."""
    if order == ORDER_FORTRAN:
        axes, sizes = axes[::-1], sizes[::-1]
    strides: list[int] = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    indices: Integers = np.zeros(1, np.int64)
    for axis, stride in zip(axes, strides, strict=True):
        indices = np.add.outer(indices, axis * stride).reshape(-1)
    return old.placed((1,), indices * old.extent).resized(0, math.prod(sizes) * old.extent)
