"""What LGC takes of the gradients: the largest of each layer, in an order, and how their places are written.

Parameters play one of three parts (section VI-A): those of the first layer are sent whole, those of the last layer as
selected values, and all others, the covered ones, as selected values that the autoencoder compresses. A layer is what
stands before the last dot of a parameter's name; each of its parameters is selected from by itself.

The paper does not say in which order a vector holds the selected values. It matters more than all else:
- "value": from the smallest to the largest within each parameter. Then the vectors of all nodes are the same curve to
  within a little, which is what an autoencoder can learn, and what nodes have in common.
- "index": in the order of their places, which makes a vector look like noise, and vectors of nodes that select for
  themselves have nothing in common but their distribution.
Places in order of value take more bytes, as they say the order as well: some 18 bits each instead of 12.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from softnic.gradients import byte_shuffle, sparse
from softnic.gradients import indices as coding
from softnic.gradients.method import Floats, Gradients, MethodError

SelectedIndices = npt.NDArray[np.uint32]
ORDERS = ("value", "index")


@dataclass(frozen=True)
class Layout:
    """Which parameters play which part; and where in one long vector those lie that are selected from, the covered ones
    before the last layer's."""

    first: tuple[str, ...]
    names: tuple[str, ...]
    """Covered, then last."""
    starts: tuple[int, ...]
    """Of each name in the long vector, and the vector's length."""
    counts: tuple[int, ...]
    """Selected of each name."""
    covered_names: int
    """So many of `names` are covered."""

    @property
    def covered(self) -> int:
        """Values selected from covered parameters: the length of what the autoencoder sees."""
        return sum(self.counts[: self.covered_names])

    @property
    def covered_words(self) -> int:
        """All elements of covered parameters."""
        return self.starts[self.covered_names]

    @property
    def selected(self) -> int:
        """All selected values."""
        return sum(self.counts)

    def parts(self) -> Iterator[tuple[str, slice, slice]]:
        """By name: its part of the long vector and of the vector of selected values."""
        taken = 0
        for index, (name, count) in enumerate(zip(self.names, self.counts, strict=True)):
            yield name, slice(self.starts[index], self.starts[index + 1]), slice(taken, taken + count)
            taken += count

    def covered_parts(self) -> Iterator[slice]:
        """Each covered parameter's part of the vector of selected values."""
        for index, (_, _, selected) in enumerate(self.parts()):
            if index < self.covered_names:
                yield selected


def layout(gradients: Gradients, share: float, first: str = "", last: str = "") -> Layout:
    """The parts of all parameters, in the order in which they are given. `first`, `last`: names of layers (of what
    stands before the last dot); empty: of the first and of the last parameter. Raises MethodError for other names."""
    layers = [layer_of(name) for name in gradients]
    for name in (first, last):
        if name and name not in layers:
            raise MethodError(f"there is no layer {name!r}; there are {', '.join(dict.fromkeys(layers))}")
    first, last = first or layers[0], last or layers[-1]
    whole = tuple(name for name in gradients if layer_of(name) == first)
    ends = tuple(name for name in gradients if layer_of(name) == last != first)
    names = tuple(name for name in gradients if name not in whole and name not in ends) + ends
    sizes = [gradients[name].size for name in names]
    starts = tuple(int(start) for start in np.cumsum([0, *sizes]))
    counts = tuple(selected_of(size, share) for size in sizes)
    return Layout(whole, names, starts, counts, len(names) - len(ends))


def layer_of(name: str) -> str:
    """`conv1` of `conv1.weight`; a name without a dot is a layer of its own."""
    return name.rpartition(".")[0] or name


def selected_of(size: int, share: float) -> int:
    """How many of `size` elements are selected: at least one, so that no parameter is forgotten."""
    return min(size, max(1, round(size * share)))


def select(vector: Floats, given: Layout, order: str = "value") -> SelectedIndices:
    """The places in the long vector of each parameter's elements of largest magnitude, name by name."""
    indices = np.empty(given.selected, np.uint32)
    for _, part, taken in given.parts():
        elements = vector[part]
        found = sparse.largest(elements, taken.stop - taken.start)
        if order == "value":
            found = found[np.argsort(elements[found], kind="stable")]
        indices[taken] = found + part.start
    return indices


def largest(values: Floats, given: Layout, share: float) -> npt.NDArray[np.bool_]:
    """Of the covered selected values, which are the innovation: of each parameter the `share` of largest magnitude."""
    chosen = np.zeros(given.covered, np.bool_)
    for part in given.covered_parts():
        elements = values[part]
        chosen[part.start + sparse.largest(elements, selected_of(elements.size, share))] = True
    return chosen


def scales(values: Floats, given: Layout) -> Floats:
    """The root mean square of each covered parameter's selected values, 1 where it is zero: one float32 each."""
    found = [float(np.sqrt(np.mean(np.square(values[part], dtype=np.float64)))) for part in given.covered_parts()]
    return np.array([scale or 1.0 for scale in found], np.float32)


def spread(each: Floats, given: Layout) -> Floats:
    """One number a covered parameter, repeated for each of its selected values."""
    return np.repeat(each, given.counts[: given.covered_names])


def pack_indices(indices: SelectedIndices, given: Layout, order: str = "value") -> bytes:
    """Places of selected values (section V-A). In order of index: as all sparse methods code them. In order of value:
    each counted from its parameter's start, as planes of bytes, the lowest first, through DEFLATE."""
    if order == "index":
        return coding.encode(indices.astype(np.int64))
    return byte_shuffle.pack(indices - _origins(given), 4, zlib.compressobj(9))


def unpack_indices(data: bytes, given: Layout, order: str = "value") -> SelectedIndices:
    """What `pack_places` packed. Raises MethodError for bytes that it cannot have made."""
    if order == "index":
        return coding.decode(data, given.selected, given.starts[-1]).astype(np.uint32)
    try:
        counted = byte_shuffle.unpack(data, given.selected, 4, zlib.MAX_WBITS)
    except zlib.error as error:
        raise MethodError(f"a rank sent places that are none: {error}") from error
    if counted is None:
        raise MethodError(f"a rank sent other than {given.selected} places")
    sizes = np.diff(given.starts).astype(np.uint32)
    if np.any(counted >= np.repeat(sizes, given.counts)):
        raise MethodError("a rank sent places outside a parameter")
    return counted + _origins(given)


def _origins(given: Layout) -> SelectedIndices:
    return np.repeat(np.array(given.starts[:-1], np.uint32), given.counts)
