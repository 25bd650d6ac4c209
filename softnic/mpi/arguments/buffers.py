"""What is a buffer: converts the buffer arguments of calls to flat arrays of the elements that travel.

A buffer is an object whose memory raw_memory.py finds. It is given alone or in one of mpi4py's lists: [data, count],
[data, datatype], [data, count, datatype], [data, count, displacement, datatype]. (count, displacement) may replace the
count. Both are numbers of items of the datatype; None: as the buffer itself has it. A datatype describes the memory
whatever the buffer says of its elements; without one, the buffer's elements are those of the message.

A message of a datatype without gaps is the caller's memory. Others are packed: their elements are copied to contiguous
memory, and copied back with `write_back` when a call has written them. Elements of one type travel as that type, and
others as bytes.
"""

from __future__ import annotations

import operator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from softnic.collectives.elements import BFLOAT16, Array, kind_of
from softnic.comm.error_classes import ERR_TYPE
from softnic.comm.errors import Refused
from softnic.mpi.arguments.exported_memory import BufferAccessError, bytes_at
from softnic.mpi.arguments.raw_memory import array_of
from softnic.mpi.arguments.spec_parts import SpecParts, integer, integers, is_integer, unpacked
from softnic.mpi.datatypes.definition import DatatypeHandle, TypeDefinition
from softnic.mpi.datatypes.names import named_type, type_of

SEND, RECEIVE = "the send buffer", "the receive buffer"
"""Names of buffers in errors."""
_KINDS = "biufc"
_array_names: dict[np.dtype[Any], str] = {np.dtype(each): np.dtype(each).name for each in (*"?bhilqBHILQefdgFDG",)}
"""By the element type of an array, its name."""


class InPlace:
    """The type of MPI.IN_PLACE: the input is in the receive buffer."""

    def __repr__(self) -> str:
        return "MPI.IN_PLACE"

    def __reduce__(self) -> str:
        return "IN_PLACE"


class Bottom(int):
    """The type of MPI.BOTTOM: a buffer whose datatype has addresses for displacements."""

    def __repr__(self) -> str:
        return "MPI.BOTTOM"

    def __reduce__(self) -> str:
        return "BOTTOM"


IN_PLACE: Final = InPlace()
BOTTOM: Final = Bottom()


class UnknownTypeError(Refused, KeyError):
    """There is no such datatype."""

    def __init__(self, text: str) -> None:
        super().__init__(ERR_TYPE, text)


class MessageBuffer:
    """The elements of one message, and the memory that they belong to.

    Attributes
    ----------
    array
        The flat elements: the caller's memory, or a packed copy.
    count
        Items of the datatype.
    """

    __slots__ = ("_definition", "_memory", "_start", "array", "count")

    def __init__(
        self,
        array: Array,
        definition: TypeDefinition | None = None,
        count: int | None = None,
        memory: Array | None = None,
        start: int = 0,
    ) -> None:
        self.array = array
        self.count = array.size if count is None else count
        self._definition = definition
        self._memory = memory
        self._start = start

    @property
    def definition(self) -> TypeDefinition:
        """The datatype, of the specification or of the buffer's elements."""
        return type_of(self.array.dtype) if self._definition is None else self._definition

    @property
    def datatype(self) -> DatatypeHandle:
        """A handle of the datatype."""
        return DatatypeHandle._named(self.definition)

    @property
    def is_packed(self) -> bool:
        """Whether `array` is a copy."""
        return self._memory is not None

    def write_back(self, nbytes: int | None = None) -> None:
        """Copy what a call has written to a packed copy, or its first bytes, to the memory it belongs to."""
        if self._memory is not None:
            packed = self.array.view(np.uint8)
            self.definition.layout.scatter(packed if nbytes is None else packed[:nbytes], self._memory, self._start)


def is_in_place(send: Any) -> bool:
    """Return whether a send buffer is MPI.IN_PLACE, or None, which means the same in mpi4py."""
    return send is None or isinstance(send, InPlace)


def flat(spec: Any, *, writable: bool = False, what: str = "the buffer", blocks: int = 1) -> Array:
    """Return the flat array of a message specification, which must not be packed if it is written to.

    Parameters and errors are those of `message`.
    """
    found = message(spec, writable=writable, what=what, blocks=blocks)
    if writable and found.is_packed:
        raise ValueError(f"{what} has a datatype with gaps, which this call does not take")
    return found.array


def message(spec: Any, *, writable: bool = False, what: str = "the buffer", blocks: int = 1) -> MessageBuffer:
    """Return the elements of a message specification.

    Parameters
    ----------
    spec
        The buffer, alone or in a list.
    writable
        Whether the call writes to the buffer.
    what
        The buffer's name in errors.
    blocks
        Number of blocks in the buffer, as in Allgather's receive buffer; a count in `spec` is that of one block.

    Raises
    ------
    ValueError
        If `spec` is not a valid specification.
    TypeError
        If the data is not a buffer.
    BufferError
        If the buffer is read-only and the call writes to it, or its elements have another byte order.
    KeyError
        If there is no such datatype.
    """
    if not isinstance(spec, (list, tuple)):
        return MessageBuffer(_elements(spec, writable, what))
    given = unpacked(spec, what)
    source = _Source.of(given.data, given.datatype, writable, what)
    displacement = 0 if given.displacement is None else integer(given.displacement, "displacement", what)
    if given.count is not None:
        return source.items(integer(given.count, "count", what), displacement, blocks)
    return source.items(source.items_behind(displacement), displacement)


def bytes_of(spec: Any) -> tuple[memoryview, str] | None:
    """Return the bytes of a message and the name of their element type, as `message` finds them.

    Only for arrays in C order, and for [data, count, datatype] with a predefined datatype, where all of it is valid;
    None: `message` is to look at it.
    """
    kind = type(spec)
    try:
        if kind is np.ndarray:
            name = _array_names[spec.dtype]
            return memoryview(spec).cast("B"), name
        if (kind is list or kind is tuple) and len(spec) == 3:
            data, count, datatype = spec
            if type(count) is int and count >= 0 and isinstance(datatype, DatatypeHandle):
                return _predefined_items(data, count, datatype._target)
    except (TypeError, ValueError, KeyError, BufferError):
        pass
    return None


def _predefined_items(data: Any, count: int, definition: TypeDefinition | None) -> tuple[memoryview, str] | None:
    if definition is None:
        return None
    size, name = definition.element
    view = memoryview(data)
    size *= count
    if not name or size > view.nbytes:
        return None
    return (view if view.format == "B" and view.ndim == 1 else view.cast("B"))[:size], name


def vector(spec: Any, ranks: int, *, writable: bool = False, what: str = "the buffer") -> list[MessageBuffer]:
    """Return the elements for each rank of a specification with counts and displacements.

    Parameters
    ----------
    spec
        As [data, counts], [data, (counts, displacements)], both with a datatype behind, [data, counts, displacements,
        datatype], or the buffer alone. One number stands for the count of every rank; one displacement for the distance
        of all. Without counts, the blocks are near-equal; without displacements, they follow each other.
    ranks
        Number of blocks.
    writable, what
        As of `message`, with its errors.
    """
    given = unpacked(spec, what, several=True) if isinstance(spec, (list, tuple)) else SpecParts(spec)
    source = _Source.of(given.data, given.datatype, writable, what)
    if given.count is None:
        whole = source.items_behind(0)
        counts = [whole // ranks + (whole % ranks > rank) for rank in range(ranks)]
    else:
        counts = integers(given.count, ranks, "counts", what)
    if given.displacement is None:
        displacements = [0, *np.cumsum(counts, dtype=np.int64).tolist()][:ranks]
    elif is_integer(given.displacement):
        distance = operator.index(given.displacement)
        displacements = [rank * distance for rank in range(ranks)]
    else:
        displacements = integers(given.displacement, ranks, "displacements", what)
    return [source.items(count, start) for count, start in zip(counts, displacements, strict=True)]


def vector_w(spec: Any, ranks: int, *, writable: bool = False, what: str = "the buffer") -> list[MessageBuffer]:
    """Return the elements for each rank of a specification with a datatype for each, as Alltoallw has them.

    Parameters
    ----------
    spec
        As [data, counts, displacements, datatypes], [data, (counts, displacements), datatypes] or [data, datatypes],
        which is one item for each rank. Displacements are in bytes.
    ranks
        Number of blocks.
    writable, what
        As of `message`, with its errors.
    """
    match list(spec):
        case [data, types] | [data, None, None, types]:
            counts, displacements = [1] * ranks, [0] * ranks
        case [data, (given_counts, given_displacements), types] | [data, given_counts, given_displacements, types]:
            counts = integers(given_counts, ranks, "counts", what)
            displacements = integers(given_displacements, ranks, "displacements", what)
        case _:
            raise ValueError(f"{what} is a list of {len(spec)}: [data, counts, displacements, datatypes] is expected")
    if len(types) != ranks:
        raise ValueError(f"{what} names {len(types)} datatypes for {ranks} ranks")
    data = data if data is None or isinstance(data, Bottom) else _memory(data, what)
    found = []
    for count, displacement, datatype in zip(counts, displacements, types, strict=True):
        found.append(_Source.of(data, datatype, writable, what).items_at(count, displacement))
    return found


class _Source(NamedTuple):
    """A buffer as items of a datatype."""

    elements: Array | None
    """The buffer's own elements, if the specification names no datatype or theirs."""
    memory: Array | None
    """All bytes of the buffer, otherwise. None: the datatype has addresses."""
    definition: TypeDefinition | None
    what: str
    missing: bool = False
    """The buffer is None."""

    @classmethod
    def of(cls, data: Any, datatype: Any, writable: bool, what: str) -> _Source:
        """Return the source of a specification's data and datatype."""
        definition = None if datatype is None else definition_of(datatype, what)
        if data is None or isinstance(data, Bottom):
            if definition is None:
                name = "MPI.BOTTOM" if data is not None else "None"
                raise ValueError(f"{what} is {name}: a datatype is expected with it, as in [None, 0, MPI.BYTE]")
            return cls(None, None if data is not None else np.empty(0, np.uint8), definition, what, data is None)
        if definition is None:
            return cls(_elements(data, writable, what), None, None, what)
        array = _in_memory_order(_memory(data, what), what)
        if writable and not array.flags.writeable:
            raise BufferAccessError(f"{what} is read-only, and the call writes to it")
        if array.dtype == definition.dtype and definition.layout.is_dense and array.itemsize == definition.layout.size:
            return cls(array, None, definition, what)
        return cls(None, array.view(np.uint8), definition, what)

    @property
    def extent(self) -> int:
        """The bytes from one item to the next, as elements: 1."""
        if self.elements is not None or self.definition is None:
            return 1
        return self.definition.layout.extent

    def items_behind(self, displacement: int) -> int:
        """Return the number of items from a displacement to the end of the buffer. Raises ValueError."""
        size = self.elements.size if self.elements is not None else 0 if self.memory is None else self.memory.size
        extent = self.extent
        if size and extent <= 0:
            raise ValueError(f"{self.what} needs a count: items of the datatype are {extent} bytes apart")
        if not size:
            return 0
        count, rest = divmod(size, extent)
        if rest:
            raise ValueError(f"{self.what} has {size} bytes, no whole number of items of {extent} bytes")
        if displacement > count:
            raise ValueError(f"{self.what} has {count} elements, fewer than the {displacement} asked for")
        return count - displacement

    def items(self, count: int, displacement: int, blocks: int = 1) -> MessageBuffer:
        """Return blocks of `count` items, from an item on. Raises ValueError."""
        if self.missing and count:
            raise ValueError(f"{self.what} is None, and its count is {count}")
        if self.elements is None:
            extent = self.extent
            if displacement and extent <= 0:
                raise ValueError(f"{self.what} has a displacement: items of the datatype are {extent} bytes apart")
            if not count and displacement and self.memory is not None and displacement * extent > self.memory.size:
                raise ValueError(
                    f"{self.what} has {self.memory.size} bytes, fewer than the {displacement} items before"
                )
            return self.items_at(count * blocks, displacement * extent, count, blocks)
        asked = displacement + count * blocks
        if asked > self.elements.size:
            raise self._too_few(self.elements.size, asked, count, blocks)
        return MessageBuffer(self.elements[displacement:asked], self.definition, count * blocks)

    def items_at(self, count: int, start: int, each: int = 0, blocks: int = 1) -> MessageBuffer:
        """Return items from a byte on. Raises ValueError."""
        definition = self.definition
        assert definition is not None
        layout, memory = definition.layout, self.memory
        if memory is None and self.elements is not None:
            memory = self.elements.view(np.uint8)
        if not count or not layout.size:
            return MessageBuffer(np.empty(0, definition.dtype), definition, count)
        if memory is None:
            reach = (count - 1) * layout.extent
            first = start + layout.true_lb + min(0, reach)
            memory, start = bytes_at(first, layout.true_ub - layout.true_lb + abs(reach)), start - first
        elif layout.is_dense and (asked := start + count * layout.size) > memory.size:
            size = layout.size
            raise self._too_few(memory.size // size, -(-asked // size), each, blocks)
        if layout.is_dense:
            return MessageBuffer(memory[start : start + count * layout.size].view(definition.dtype), definition, count)
        try:
            packed = layout.gather(memory, start, count)
        except ValueError as error:
            raise ValueError(f"{self.what} {error}") from None
        return MessageBuffer(packed.view(definition.dtype), definition, count, memory, start)

    def _too_few(self, size: int, asked: int, count: int, blocks: int) -> ValueError:
        each = f" ({count} for each of {blocks} ranks)" if blocks > 1 else ""
        return ValueError(f"{self.what} has {size} elements, fewer than the {asked} asked for{each}")


def _elements(data: Any, writable: bool, what: str) -> Array:
    """Return the elements of a buffer as it describes them itself. Errors are those of `message`."""
    array = _memory(data, what)
    if array.dtype.kind == "V" and array.dtype.name == "bfloat16":  # of ml_dtypes
        array = array.view(np.uint16).view(BFLOAT16)
    elif array.dtype.kind == "V" and array.dtype.names is None:  # elements of a size, and no more is known
        array = _in_memory_order(array, what).view(np.uint8)
    elif array.dtype.kind == "S" and array.dtype.itemsize == 1:
        array = array.view(np.int8)
    if kind_of(array.dtype) not in _KINDS:
        raise ValueError(f"{what} holds {array.dtype}; a buffer holds booleans, integers, floats or complex numbers")
    if not array.dtype.isnative:
        raise BufferAccessError(f"{what} holds {array.dtype} in another byte order than this machine's")
    if writable and not array.flags.writeable:
        raise BufferAccessError(f"{what} is read-only, and the call writes to it")
    return _in_memory_order(array, what)


def flat_bytes(data: Any, what: str, *, writable: bool = False) -> Array:
    """Return the bytes of a buffer, whatever its elements are. Errors are those of `message`."""
    array = _in_memory_order(_memory(data, what), what)
    if writable and not array.flags.writeable:
        raise BufferAccessError(f"{what} is read-only")
    return array.view(np.uint8)


def definition_of(datatype: Any, what: str) -> TypeDefinition:
    """Return the definition of a Datatype, or of its name or code. Raises ValueError and KeyError."""
    if isinstance(datatype, DatatypeHandle):
        if datatype._target is None:
            raise ValueError(f"{what} names MPI.DATATYPE_NULL: a datatype is expected")
        return datatype._target
    if isinstance(datatype, str):
        with suppress(KeyError):
            return named_type(datatype)
    raise UnknownTypeError(f"{what} names the datatype {datatype!r}, which is none (MPI.FLOAT and 'f' are)")


def _memory(data: Any, what: str) -> Array:
    if isinstance(data, InPlace):
        raise ValueError(f"{what} cannot be MPI.IN_PLACE")
    return array_of(data, what)


def _in_memory_order(array: Array, what: str) -> Array:
    """Return the elements of an array in the order in which they lie. Raises ValueError."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.flags.f_contiguous:
        return array.T.reshape(-1)
    raise ValueError(f"{what} is not contiguous: copy it first (numpy.ascontiguousarray)")
