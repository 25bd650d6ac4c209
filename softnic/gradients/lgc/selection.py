"""Selection of gradients in LGC: the largest of each parameter, in a certain order, and the encoding of their indices.

There are three kinds of parameters (section VI-A): those of the first layer are sent uncompressed, those of the last
layer as selected values, and all others, the covered ones, as selected values that the autoencoder compresses. A
layer's name is the part of a parameter's name before the last dot; the selection is separate for each parameter.

The paper does not state the order of the selected values in a vector, which has the largest effect of all choices:
- "value": from the smallest to the largest within each parameter. Then the vectors of all nodes are nearly the same
  curve, which an autoencoder can learn.
- "index": in the order of indices. Then a vector looks like noise, and vectors of nodes with selections of their own
  have only their distribution in common.
Indices in order of value take more bytes, as they contain the order as well: about 18 bits each instead of 12.
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
    """The kinds of parameters, and the positions in one vector of those from which values are selected: first the
    covered ones, then those of the last layer."""

    first: tuple[str, ...]
    names: tuple[str, ...]
    """The covered parameters, then those of the last layer."""
    starts: tuple[int, ...]
    """Positions of `names` in the vector, and its length."""
    counts: tuple[int, ...]
    """Numbers of selected values of `names`."""
    covered_names: int
    """The number of covered parameters in `names`."""

    @property
    def covered(self) -> int:
        """The number of selected values of covered parameters: the length of the autoencoder's input."""
        return sum(self.counts[: self.covered_names])

    @property
    def covered_words(self) -> int:
        """The number of elements of covered parameters."""
        return self.starts[self.covered_names]

    @property
    def selected(self) -> int:
        """The number of selected values."""
        return sum(self.counts)

    def parts(self) -> Iterator[tuple[str, slice, slice]]:
        """Yield each name with its part of the vector and of the vector of selected values."""
        start = 0
        for index, (name, count) in enumerate(zip(self.names, self.counts, strict=True)):
            yield name, slice(self.starts[index], self.starts[index + 1]), slice(start, start + count)
            start += count

    def covered_parts(self) -> Iterator[slice]:
        """Yield each covered parameter's part of the vector of selected values."""
        for index, (_, _, selected) in enumerate(self.parts()):
            if index < self.covered_names:
                yield selected


def layout(gradients: Gradients, share: float, first: str = "", last: str = "") -> Layout:
    """Return the layout of parameters, in their order.

    `first` and `last` are names of layers; empty: those of the first and of the last parameter. Raises MethodError for
    unknown names.
    """
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
    """Return the layer of a parameter: `conv1` of `conv1.weight`; a name without a dot is a layer."""
    return name.rpartition(".")[0] or name


def selected_of(size: int, share: float) -> int:
    """Return how many of `size` elements are selected: at least one, so that no parameter is left out."""
    return min(size, max(1, round(size * share)))


def select(vector: Floats, given: Layout, order: str = "value") -> SelectedIndices:
    """Return the indices in the vector of each parameter's elements of largest magnitude."""
    indices = np.empty(given.selected, np.uint32)
    for _, part, selected in given.parts():
        elements = vector[part]
        found = sparse.largest(elements, selected.stop - selected.start)
        if order == "value":
            found = found[np.argsort(elements[found], kind="stable")]
        indices[selected] = found + part.start
    return indices


def largest(values: Floats, given: Layout, share: float) -> npt.NDArray[np.bool_]:
    """Return which of the covered selected values are the innovation: each parameter's largest, by `share`."""
    chosen = np.zeros(given.covered, np.bool_)
    for part in given.covered_parts():
        elements = values[part]
        chosen[part.start + sparse.largest(elements, selected_of(elements.size, share))] = True
    return chosen


def scales(values: Floats, given: Layout) -> Floats:
    """Return the root mean square of each covered parameter's selected values, 1 where it is zero."""
    found = [float(np.sqrt(np.mean(np.square(values[part], dtype=np.float64)))) for part in given.covered_parts()]
    return np.array([scale or 1.0 for scale in found], np.float32)


def spread(each: Floats, given: Layout) -> Floats:
    """Repeat the number of each covered parameter for all of its selected values."""
    return np.repeat(each, given.counts[: given.covered_names])


def pack_indices(indices: SelectedIndices, given: Layout, order: str = "value") -> bytes:
    """Encode the indices of selected values (section V-A).

    In order of index: as in all sparse methods. In order of value: relative to their parameter's start, byte-shuffled,
    by DEFLATE.
    """
    if order == "index":
        return coding.encode(indices.astype(np.int64))
    return byte_shuffle.pack(indices - _origins(given), 4, zlib.compressobj(9))


def unpack_indices(data: bytes, given: Layout, order: str = "value") -> SelectedIndices:
    """Decode indices that `pack_indices` encoded. Raises MethodError for invalid bytes."""
    if order == "index":
        return coding.decode(data, given.selected, given.starts[-1]).astype(np.uint32)
    try:
        counted = byte_shuffle.unpack(data, given.selected, 4, zlib.MAX_WBITS)
    except zlib.error as error:
        raise MethodError(f"a rank sent invalid indices: {error}") from error
    if counted is None:
        raise MethodError(f"a rank sent other than {given.selected} indices")
    sizes = np.diff(given.starts).astype(np.uint32)
    if np.any(counted >= np.repeat(sizes, given.counts)):
        raise MethodError("a rank sent indices outside a parameter")
    return counted + _origins(given)


def _origins(given: Layout) -> SelectedIndices:
    return np.repeat(np.array(given.starts[:-1], np.uint32), given.counts)
