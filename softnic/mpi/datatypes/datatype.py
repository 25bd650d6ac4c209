"""Datatype: mpi4py's names for the types of buffers, predefined and derived ones.

Derived types describe memory with gaps or of several types. They need no Commit. A derived type remembers how it was
made, and finds its layout when it is first used.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from softnic.comm.error_classes import ERR_COUNT, ERR_TYPE
from softnic.comm.errors import ArgumentError
from softnic.mpi import attributes
from softnic.mpi.attributes import AttributeCalls
from softnic.mpi.constants import (
    ORDER_C,
    TYPECLASS_COMPLEX,
    TYPECLASS_INTEGER,
    TYPECLASS_LOGICAL,
    TYPECLASS_REAL,
    UNDEFINED,
)
from softnic.mpi.datatypes import arrays
from softnic.mpi.datatypes.definition import TypeDefinition
from softnic.mpi.datatypes.layout import TypeMap, basic, combined
from softnic.mpi.datatypes.names import CODES, PREDEFINED, SYNONYMS, UNSUPPORTED, element_of
from softnic.mpi.datatypes.packing import DatatypePacking
from softnic.mpi.handles import constant

_CLASSES = {
    TYPECLASS_REAL: "REAL", TYPECLASS_INTEGER: "INTEGER", TYPECLASS_COMPLEX: "COMPLEX", TYPECLASS_LOGICAL: "LOGICAL",
}  # fmt: skip
_INTEGER_RANGES = {2: "b", 4: "h", 9: "i", 18: "l"}
"""By decimal digits, the letter of the shortest integer that has them."""
_REAL_RANGES = ((6, 37, "f", "F"), (15, 307, "d", "D"), (18, 4931, "g", "G"))
"""Digits, decimal exponents, and the letters of the real and the complex number that have them."""


class Datatype(DatatypePacking, AttributeCalls):
    """A type of a buffer's items. `Datatype(datatype)` is another handle of it, `Datatype()` is DATATYPE_NULL.

    Parameters of the constructors:

    count
        Number of blocks, or of items.
    blocklength, blocklengths
        Items of a block.
    stride
        Distance of the starts of blocks, in items; in Create_hvector in bytes.
    displacements
        Where blocks start, in items; in Create_hindexed, Create_hindexed_block and Create_struct in bytes.
    sizes, gsizes
        The shape of the whole array.
    order
        ORDER_C or ORDER_FORTRAN.

    Parameters of the calls that pack: see DatatypePacking: `inbuf`, `outbuf`, `position`, `comm`, `datarep`.
    """

    def Dup(self) -> Self:
        """Return a datatype with the same elements."""
        old = self._definition
        made = self._new(TypeDefinition("DUP", lambda: old.layout, types=[old], code=old.code, char=old.char))
        attributes.copy_all(self, old.attributes, made._definition.attributes)
        return made

    def _attribute_values(self) -> dict[int, Any]:
        return self._definition.attributes

    def Create_contiguous(self, count: int) -> Self:
        """Return the type of `count` items, one after the other."""
        old, count = self._definition, _count(count)
        made = partial(_blocks, old, [count], [0], 1)
        return self._new(TypeDefinition("CONTIGUOUS", made, [count], types=[old], params={"count": count}))

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Self:
        """Return the type of equal blocks at equal distances."""
        return self._vector("VECTOR", count, blocklength, stride)

    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Self:
        """Return the type of equal blocks at equal distances in bytes."""
        return self._vector("HVECTOR", count, blocklength, stride)

    def _vector(self, combiner: str, count: int, blocklength: int, stride: int) -> Self:
        old, count, blocklength, stride = self._definition, _count(count), _count(blocklength), operator.index(stride)
        in_bytes = combiner == "HVECTOR"
        starts = np.arange(count, dtype=np.int64) * stride
        made = partial(_blocks, old, [blocklength], starts, 1 if in_bytes else 0)
        params = {"count": count, "blocklength": blocklength, "stride": stride}
        integers = [count, blocklength] if in_bytes else [count, blocklength, stride]
        return self._new(TypeDefinition(combiner, made, integers, [stride] if in_bytes else [], [old], params))

    def Create_indexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Self:
        """Return the type of blocks, each with a length and a displacement."""
        return self._indexed("INDEXED", blocklengths, displacements)

    def Create_hindexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Self:
        """Return the type of blocks, each with a length and a displacement in bytes."""
        return self._indexed("HINDEXED", blocklengths, displacements)

    def _indexed(self, combiner: str, blocklengths: Sequence[int], displacements: Sequence[int]) -> Self:
        lengths, starts = _equally_long(blocklengths, displacements)
        old, in_bytes = self._definition, combiner == "HINDEXED"
        made = partial(_blocks, old, lengths, starts, 1 if in_bytes else 0)
        integers = [len(lengths), *lengths, *([] if in_bytes else starts)]
        params = {"blocklengths": lengths, "displacements": starts}
        return self._new(TypeDefinition(combiner, made, integers, starts if in_bytes else [], [old], params))

    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self:
        """Return the type of equal blocks, each with a displacement."""
        return self._indexed_block("INDEXED_BLOCK", blocklength, displacements)

    def Create_hindexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self:
        """Return the type of equal blocks, each with a displacement in bytes."""
        return self._indexed_block("HINDEXED_BLOCK", blocklength, displacements)

    def _indexed_block(self, combiner: str, blocklength: int, displacements: Sequence[int]) -> Self:
        length, starts = _count(blocklength), [operator.index(start) for start in displacements]
        old, in_bytes = self._definition, combiner == "HINDEXED_BLOCK"
        made = partial(_blocks, old, [length], starts, 1 if in_bytes else 0)
        integers = [len(starts), length, *([] if in_bytes else starts)]
        params = {"blocklength": length, "displacements": starts}
        return self._new(TypeDefinition(combiner, made, integers, starts if in_bytes else [], [old], params))

    @classmethod
    def Create_struct(
        cls, blocklengths: Sequence[int], displacements: Sequence[int], datatypes: Sequence[Datatype]
    ) -> Self:
        """Return the type of blocks, each of its own type, at displacements in bytes, as a structure of C has them.

        Parameters
        ----------
        datatypes
            The type of each block.
        """
        lengths, starts = _equally_long(blocklengths, displacements)
        types = [datatype._definition for datatype in datatypes]
        if len(types) != len(lengths):
            raise ArgumentError(f"{len(types)} datatypes for {len(lengths)} blocks")
        params = {"blocklengths": lengths, "displacements": starts}
        made = partial(_structure, types, lengths, starts)
        return cls._named(TypeDefinition("STRUCT", made, [len(lengths), *lengths], starts, types, params))

    def Create_subarray(
        self, sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], order: int = ORDER_C
    ) -> Self:
        """Return the type of a part of an array.

        Parameters
        ----------
        subsizes
            The shape of the part.
        starts
            Its first index of each axis.
        """
        old = self._definition
        params = arrays.Subarray(list(sizes), list(subsizes), list(starts), order).checked()
        return self._new(
            TypeDefinition(
                "SUBARRAY", lambda: params.layout(old.layout), params.integers, types=[old], params=params._asdict()
            )
        )

    def Create_darray(
        self,
        size: int,
        rank: int,
        gsizes: Sequence[int],
        distribs: Sequence[int],
        dargs: Sequence[int],
        psizes: Sequence[int],
        order: int = ORDER_C,
    ) -> Self:
        """Return the type of one rank's part of an array that is distributed over a grid of ranks.

        Parameters
        ----------
        size, rank
            Number of ranks, and the one whose part it is.
        distribs
            For each axis DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC or DISTRIBUTE_NONE.
        dargs
            For each axis the length of a block, or DISTRIBUTE_DFLT_DARG.
        psizes
            The shape of the grid.
        """
        old = self._definition
        params = arrays.DistributedArray(
            size, rank, list(gsizes), list(distribs), list(dargs), list(psizes), order
        ).checked()
        return self._new(
            TypeDefinition(
                "DARRAY", lambda: params.layout(old.layout), params.integers, types=[old], params=params._asdict()
            )
        )

    def Create_resized(self, lb: int, extent: int) -> Self:
        """Return the type with the same elements, whose items follow each other at another distance.

        Parameters
        ----------
        lb
            Lower bound, in bytes.
        extent
            Distance of items, in bytes.
        """
        old, lb, extent = self._definition, operator.index(lb), operator.index(extent)
        params = {"lb": lb, "extent": extent}
        return self._new(
            TypeDefinition("RESIZED", lambda: old.layout.resized(lb, extent), [], [lb, extent], [old], params)
        )

    Resized = Create_resized
    Create_dup = Dup

    @classmethod
    def Get_value_index(cls, value: Datatype, index: Datatype) -> Self:
        """Return the predefined type of a pair of a value and an index, or DATATYPE_NULL if there is none.

        Parameters
        ----------
        value, index
            The types of both.
        """
        first, second = value._definition, index._definition
        names = {id(definition): name for name, definition in PREDEFINED.items()}
        found = None
        if names.get(id(second)) == "INT":
            name = names.get(id(first), "")
            found = PREDEFINED.get("TWOINT" if name == "INT" else f"{name}_INT")
        return cls._named(found)

    @classmethod
    def Create_f90_integer(cls, r: int) -> Self:
        """Return the integer type with `r` decimal digits.

        Parameters
        ----------
        r
            Decimal digits.
        """
        letter = next((letter for digits, letter in _INTEGER_RANGES.items() if r <= digits), None)
        return cls._fortran("F90_INTEGER", letter, r=r)

    @classmethod
    def Create_f90_real(cls, p: int, r: int) -> Self:
        """Return the floating-point type of a precision and range.

        Parameters
        ----------
        p
            Decimal digits, or UNDEFINED.
        r
            Decimal exponents, or UNDEFINED.
        """
        letter = next((real for digits, range_, real, _ in _REAL_RANGES if p <= digits and r <= range_), None)
        return cls._fortran("F90_REAL", letter, p=p, r=r)

    @classmethod
    def Create_f90_complex(cls, p: int, r: int) -> Self:
        """Return the complex type whose parts have a precision and range.

        Parameters
        ----------
        p
            Decimal digits, or UNDEFINED.
        r
            Decimal exponents, or UNDEFINED.
        """
        letter = next((whole for digits, range_, _, whole in _REAL_RANGES if p <= digits and r <= range_), None)
        return cls._fortran("F90_COMPLEX", letter, p=p, r=r)

    @classmethod
    def _fortran(cls, combiner: str, letter: str | None, **params: int) -> Self:
        if letter is None or set(params.values()) == {UNDEFINED}:
            raise ArgumentError(f"there is no {combiner} with {params}")
        element = element_of(letter)
        code = f"{element.kind}{element.itemsize}"
        made = partial(basic, element)
        return cls._named(TypeDefinition(combiner, made, list(params.values()), params=params, code=code, char=letter))

    @classmethod
    def Match_size(cls, typeclass: int, size: int) -> Self:
        """Return the predefined type of a class and a size.

        Parameters
        ----------
        typeclass
            TYPECLASS_REAL, TYPECLASS_INTEGER, TYPECLASS_COMPLEX or TYPECLASS_LOGICAL.
        size
            In bytes.
        """
        found = PREDEFINED.get(f"{_CLASSES.get(typeclass)}{size}")
        if found is None:
            raise ArgumentError(f"there is no type of {size} bytes of class {typeclass}")
        return cls._named(found)

    @classmethod
    def fromcode(cls, code: str) -> Datatype:
        """Return the predefined type of a letter or type string of numpy's.

        Parameters
        ----------
        code
            As in "d", "i4" or "?".
        """
        if code not in TYPES:
            raise ArgumentError(f"{code!r} is the code of no datatype")
        return TYPES[code]

    def Commit(self) -> Self:
        """Return the type itself: no preparation is needed. Raises ArgumentError for DATATYPE_NULL."""
        self._live()
        return self

    def Free(self) -> None:
        """Make this handle DATATYPE_NULL."""
        if self._definition.is_predefined:
            raise ArgumentError(f"{self!r} is predefined: it is not freed", code=ERR_TYPE)
        attributes.delete_all(self, self._definition.attributes)
        self._target = None

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._is_constant():
            return super().__reduce__()
        base, combiner, params = self.decode()
        return _created, (type(self), base, combiner, params)

    def _new(self, definition: TypeDefinition) -> Self:
        return type(self)._named(definition)


def _count(number: int) -> int:
    if (value := operator.index(number)) < 0:
        raise ArgumentError(f"{number} items: 0 or more are expected", code=ERR_COUNT)
    return value


def _equally_long(blocklengths: Sequence[int], displacements: Sequence[int]) -> tuple[list[int], list[int]]:
    lengths, starts = [_count(each) for each in blocklengths], [operator.index(each) for each in displacements]
    if len(lengths) != len(starts):
        raise ArgumentError(f"{len(lengths)} blocklengths and {len(starts)} displacements")
    return lengths, starts


def _blocks(old: TypeDefinition, lengths: Sequence[int], starts: Any, unit: int) -> TypeMap:
    """Return blocks of items; starts are in units of bytes, or of items for 0."""
    return old.layout.placed(lengths, np.asarray(starts, np.int64) * (unit or old.layout.extent))


def _structure(types: Sequence[TypeDefinition], lengths: Sequence[int], starts: Sequence[int]) -> TypeMap:
    """Return blocks of several types; the extent is a multiple of the largest alignment, as C's."""
    placed = [
        (definition.layout.block(length), start)
        for definition, length, start in zip(types, lengths, starts, strict=True)
        if length
    ]
    layout = combined(placed)
    align = 1 if any(definition.combiner == "RESIZED" for definition in types) else layout.alignment
    return layout.resized(layout.lb, -(-layout.extent // align) * align)


def _constants() -> dict[str, Datatype]:
    found = {name: constant(name, Datatype._named(definition)) for name, definition in PREDEFINED.items()}
    found["DATATYPE_NULL"] = constant("DATATYPE_NULL", Datatype())
    found |= dict.fromkeys(UNSUPPORTED, found["DATATYPE_NULL"])
    return found | {name: found[other] for name, other in SYNONYMS.items()}


DATATYPES = _constants()
"""The constants of softnic.MPI, by name."""
DATATYPE_NULL = DATATYPES["DATATYPE_NULL"]
TYPES: dict[str, Datatype] = {
    code: next(each for each in DATATYPES.values() if each._target is definition) for code, definition in CODES.items()
}
"""Predefined types by numpy's letters and type strings."""


def _created(cls: type[Datatype], base: Datatype, combiner: str, params: dict[str, Any]) -> Datatype:
    """Return a derived datatype, for pickle."""
    made = getattr(base, f"Create_{combiner.lower()}")(**params)
    return cls._named(made._target)
