"""Topologies: which ranks are neighbours. Values without a communicator.

The neighbours of a rank have an order: in a Cartesian topology, for each dimension the one before and the one after.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from softnic.comm.error_classes import ERR_ARG, ERR_DIMS, ERR_TOPOLOGY
from softnic.comm.errors import ArgumentError
from softnic.mpi.constants import CART, DIST_GRAPH, GRAPH, PROC_NULL, UNWEIGHTED, WEIGHTS_EMPTY


@dataclass(frozen=True)
class CartTopology:
    """A grid of ranks in row-major order. `dims`: its extents; `periods`: which dimensions wrap around."""

    dims: tuple[int, ...]
    periods: tuple[bool, ...]
    kind: int = CART

    @property
    def size(self) -> int:
        """Number of ranks; one without dimensions."""
        return math.prod(self.dims)

    def coords(self, rank: int) -> list[int]:
        """Return the coordinates of a rank. Raises ArgumentError."""
        if not 0 <= rank < self.size:
            raise ArgumentError(f"rank {rank}: a rank of 0..{self.size - 1} is expected")
        found = []
        for extent in reversed(self.dims):
            rank, place = divmod(rank, extent)
            found.append(place)
        return found[::-1]

    def rank(self, coords: Sequence[int]) -> int:
        """Return the rank at some coordinates, which wrap around where the topology does. Raises ArgumentError."""
        if len(coords) != len(self.dims):
            raise ArgumentError(f"{len(coords)} coordinates where {len(self.dims)} are expected")
        found = 0
        for place, extent, periodic in zip(coords, self.dims, self.periods, strict=True):
            if not periodic and not 0 <= place < extent:
                raise ArgumentError(f"coordinates {list(coords)} are outside of {list(self.dims)}")
            found = found * extent + place % extent
        return found

    def shifted(self, rank: int, dimension: int, by: int) -> int:
        """Return the rank that is `by` steps along a dimension, PROC_NULL outside. Raises ArgumentError."""
        if not 0 <= dimension < len(self.dims):
            raise ArgumentError(f"dimension {dimension} of {len(self.dims)}", code=ERR_DIMS)
        coords = self.coords(rank)
        coords[dimension] += by
        if not self.periods[dimension] and not 0 <= coords[dimension] < self.dims[dimension]:
            return PROC_NULL
        return self.rank(coords)

    def sources(self, rank: int) -> list[int]:
        """Return the ranks that a rank receives from; PROC_NULL where there is none."""
        return [self.shifted(rank, dimension, by) for dimension in range(len(self.dims)) for by in (-1, 1)]

    destinations = sources


@dataclass(frozen=True)
class GraphTopology:
    """A graph that every rank knows. `edges[index[r-1]:index[r]]` are the neighbours of rank r."""

    index: tuple[int, ...]
    edges: tuple[int, ...]
    kind: int = GRAPH

    def sources(self, rank: int) -> list[int]:
        """Return the neighbours of a rank. Raises ArgumentError."""
        if not 0 <= rank < len(self.index):
            raise ArgumentError(f"rank {rank}: a rank of 0..{len(self.index) - 1} is expected")
        return list(self.edges[self.index[rank - 1] if rank else 0 : self.index[rank]])

    destinations = sources


@dataclass(frozen=True)
class DistGraphTopology:
    """A directed graph, of which each rank knows its own edges. Weights: None if there are none."""

    inward: tuple[int, ...]
    outward: tuple[int, ...]
    weights: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    kind: int = DIST_GRAPH

    def sources(self, rank: int) -> list[int]:
        """Return the ranks that this rank receives from."""
        del rank
        return list(self.inward)

    def destinations(self, rank: int) -> list[int]:
        """Return the ranks that this rank sends to."""
        del rank
        return list(self.outward)


Topology = CartTopology | GraphTopology | DistGraphTopology


def cart(dims: Sequence[int], periods: Sequence[bool] | bool | None, size: int) -> CartTopology:
    """Return the grid that is asked for. Raises ArgumentError."""
    extents = tuple(int(extent) for extent in dims)
    if periods is None or isinstance(periods, bool):
        periods = [bool(periods)] * len(extents)
    if len(periods) != len(extents):
        raise ArgumentError(f"{len(extents)} dimensions and {len(periods)} periods")
    made = CartTopology(extents, tuple(bool(period) for period in periods))
    if min(extents, default=1) < 1 or made.size > size:
        raise ArgumentError(f"a grid of {list(extents)} does not fit {size} ranks", code=ERR_DIMS)
    return made


def graph(index: Sequence[int], edges: Sequence[int], size: int) -> GraphTopology:
    """Return the graph that is asked for; a leading 0 of `index` may be left out. Raises ArgumentError."""
    ends, flat = tuple(int(end) for end in index), tuple(int(edge) for edge in edges)
    if ends and not ends[0] and ends[-1] == len(flat):
        ends = ends[1:]
    if len(ends) > size or list(ends) != sorted(ends) or (ends[-1] if ends else 0) != len(flat):
        raise ArgumentError(f"index {list(index)} does not fit {len(flat)} edges and {size} ranks", code=ERR_TOPOLOGY)
    return GraphTopology(ends, checked_ranks(flat, len(ends), "edges"))


def checked_ranks(ranks: Iterable[int], size: int, what: str) -> tuple[int, ...]:
    """Return ranks at the ends of edges. Raises ArgumentError."""
    found = tuple(int(rank) for rank in ranks)
    if not all(0 <= rank < size for rank in found):
        raise ArgumentError(f"{what} {list(found)}: ranks of 0..{size - 1} are expected", code=ERR_TOPOLOGY)
    return found


def starts_of(sources: Sequence[int], degrees: Sequence[int], edges: int) -> list[int]:
    """Return where each of `edges` edges starts: at a source as many as its degree. Raises ArgumentError."""
    if len(sources) != len(degrees) or min(degrees, default=0) < 0 or sum(degrees) != edges:
        raise ArgumentError(
            f"degrees {list(degrees)} do not fit {len(sources)} sources and {edges} destinations", code=ERR_TOPOLOGY
        )
    return [source for source, degree in zip(sources, degrees, strict=True) for _ in range(degree)]


def balanced(nodes: int, dims: int | Sequence[int]) -> list[int]:
    """Return extents of a grid of `nodes` ranks, as near to each other as they can be, the largest first.

    Parameters
    ----------
    nodes
        Number of ranks.
    dims
        Number of dimensions; or an extent for each, which is kept where it is not 0.

    Raises
    ------
    ArgumentError
        If the given extents do not divide the ranks.
    """
    given = [0] * dims if isinstance(dims, int) else [int(extent) for extent in dims]
    fixed = math.prod(extent for extent in given if extent)
    free = given.count(0)
    if nodes < 1 or min(given, default=0) < 0 or nodes % fixed or (not free and fixed != nodes and given):
        raise ArgumentError(f"{nodes} ranks do not make a grid of {given}", code=ERR_DIMS)
    found = iter(_factors(nodes // fixed, free))
    return [extent or next(found) for extent in given]


def _factors(number: int, parts: int) -> list[int]:
    """Return `parts` factors of a number, as near to each other as they can be, the largest first."""
    if parts <= 1:
        return [number] * parts
    divisors = [each for each in range(1, number + 1) if number % each == 0]

    def splits(rest: int, left: int, most: int) -> Iterable[list[int]]:
        if left == 1:
            if rest <= most:
                yield [rest]
            return
        for each in divisors:
            if each <= most and rest % each == 0 and each**left >= rest:
                yield from ([each, *others] for others in splits(rest // each, left - 1, each))

    return min(splits(number, parts, number), key=lambda found: (found[0] - found[-1], found))


def checked_weights(weights: object, count: int, what: str) -> tuple[int, ...] | None:
    """Return weights of edges, None for MPI.UNWEIGHTED. Raises ArgumentError."""
    if weights is None or (isinstance(weights, int) and weights == UNWEIGHTED):
        return None
    given: Iterable[int] = () if isinstance(weights, int) and weights == WEIGHTS_EMPTY else weights  # type: ignore[assignment]
    found = tuple(int(weight) for weight in given)
    if len(found) != count:
        raise ArgumentError(f"{what}: {len(found)} weights of {count} edges")
    if min(found, default=0) < 0:
        raise ArgumentError(f"{what}: weights are 0 or more", code=ERR_ARG)
    return found
