"""The tables of codes that mpi4py's utilities ask for: datatypes of C and of Fortran, and what numpy calls them."""

from __future__ import annotations

from softnic.mpi.datatypes.datatype import DATATYPES, TYPES, Datatype

_C = (
    "?", "b", "h", "i", "l", "q", "B", "H", "I", "L", "Q", "f", "d", "g", "F", "D", "G", "b1", "i1", "i2", "i4", "i8",
    "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16",
)  # fmt: skip
_FORTRAN = {
    "l": "LOGICAL", "i": "INTEGER", "r": "REAL", "s": "REAL", "d": "DOUBLE_PRECISION", "c": "COMPLEX",
    "z": "DOUBLE_COMPLEX", "l1": "LOGICAL1", "l2": "LOGICAL2", "l4": "LOGICAL4", "l8": "LOGICAL8", "i1": "INTEGER1",
    "i2": "INTEGER2", "i4": "INTEGER4", "i8": "INTEGER8", "r2": "REAL2", "r4": "REAL4", "r8": "REAL8",
    "c8": "COMPLEX8", "c16": "COMPLEX16",
}  # fmt: skip
TYPES_OF_C = {code: TYPES[code] for code in _C}
"""C's types by their codes."""
TYPES_OF_FORTRAN = {code: DATATYPES[name] for code, name in _FORTRAN.items()}
"""Fortran's types by their codes."""


def code_of(datatype: Datatype) -> str | None:
    """Return numpy's letter or type string of a datatype; None if it has none."""
    return datatype.tocode() if datatype and datatype._definition.code else None


def alignment_of(datatype: Datatype) -> int | None:
    """Return the alignment of a predefined datatype; None for others."""
    return datatype._layout.alignment if datatype and (datatype.is_named or datatype._definition.code) else None
