"""The predefined datatypes: those of C and Fortran by MPI's names, pairs of a value and an index, and numpy's codes."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np

from softnic.collectives.elements import BFLOAT16
from softnic.mpi.datatypes.definition import TypeDefinition
from softnic.mpi.datatypes.layout import TypeMap, basic, combined

_SIZES = {"b": 1, "B": 1, "c": 1, "?": 1}
_NAMES = {
    # name: letter of its element, and its code where that is another one
    "PACKED": "B", "BYTE": "B", "AINT": "p", "OFFSET": "p", "COUNT": "p",
    "CHAR": "c", "WCHAR": "U", "SIGNED_CHAR": "b", "SHORT": "h", "INT": "i", "LONG": "l", "LONG_LONG": "q",
    "UNSIGNED_CHAR": "B", "UNSIGNED_SHORT": "H", "UNSIGNED": "I", "UNSIGNED_LONG": "L", "UNSIGNED_LONG_LONG": "Q",
    "FLOAT": "f", "DOUBLE": "d", "LONG_DOUBLE": "g",
    "C_BOOL": "? b1", "INT8_T": "b i1", "INT16_T": "h i2", "INT32_T": "i i4", "INT64_T": "l i8",
    "UINT8_T": "B u1", "UINT16_T": "H u2", "UINT32_T": "I u4", "UINT64_T": "L u8",
    "FLOAT16_T": "e", "FLOAT32_T": "f f4", "FLOAT64_T": "d f8", "BFLOAT16_T": "V2",
    "C_COMPLEX": "F", "C_FLOAT_COMPLEX": "F", "C_DOUBLE_COMPLEX": "D", "C_LONG_DOUBLE_COMPLEX": "G",
    "CXX_BOOL": "?", "CXX_FLOAT_COMPLEX": "F", "CXX_DOUBLE_COMPLEX": "D", "CXX_LONG_DOUBLE_COMPLEX": "G",
    "CHARACTER": "c", "LOGICAL": "i", "INTEGER": "i", "REAL": "f", "DOUBLE_PRECISION": "d", "COMPLEX": "F",
    "DOUBLE_COMPLEX": "D",
    "LOGICAL1": "? b1", "LOGICAL2": "h i2", "LOGICAL4": "i i4", "LOGICAL8": "l i8",
    "INTEGER1": "b i1", "INTEGER2": "h i2", "INTEGER4": "i i4", "INTEGER8": "l i8",
    "REAL2": "e f2", "REAL4": "f f4", "REAL8": "d f8", "COMPLEX8": "F c8", "COMPLEX16": "D c16",
}  # fmt: skip
_PAIRS = {
    "SHORT_INT": "hi", "TWOINT": "ii", "LONG_INT": "li", "FLOAT_INT": "fi", "DOUBLE_INT": "di", "LONG_DOUBLE_INT": "gi",
}  # fmt: skip
UNSUPPORTED = ("LOGICAL16", "INTEGER16", "REAL16", "COMPLEX4", "COMPLEX32")
"""MPI's names of types that no numpy array has. They are DATATYPE_NULL."""
SYNONYMS = {
    "UNSIGNED_INT": "UNSIGNED", "SIGNED_SHORT": "SHORT", "SIGNED_INT": "INT", "SIGNED_LONG": "LONG",
    "SIGNED_LONG_LONG": "LONG_LONG", "BOOL": "C_BOOL", "SINT8_T": "INT8_T", "SINT16_T": "INT16_T",
    "SINT32_T": "INT32_T", "SINT64_T": "INT64_T", "F_BOOL": "LOGICAL", "F_INT": "INTEGER", "F_FLOAT": "REAL",
    "F_DOUBLE": "DOUBLE_PRECISION", "F_COMPLEX": "COMPLEX", "F_FLOAT_COMPLEX": "COMPLEX",
    "F_DOUBLE_COMPLEX": "DOUBLE_COMPLEX", "INT_INT": "TWOINT", "FLOAT16": "FLOAT16_T", "BFLOAT16": "BFLOAT16_T",
}  # fmt: skip
"""Further names, and the ones that they stand for."""


def element_of(letter: str) -> np.dtype[Any]:
    """Return numpy's type of the elements with a letter; characters are integers."""
    if letter == "V2":
        return BFLOAT16
    if letter == "U":
        return np.dtype(f"i{ctypes.sizeof(ctypes.c_wchar)}")
    return np.dtype("b" if letter == "c" else letter)


def _pair(letters: str) -> TypeMap:
    """Return the layout of C's structure of a value and an index."""
    value, index = (element_of(letter) for letter in letters)
    behind = -(-value.itemsize // index.alignment) * index.alignment
    align = max(value.alignment, index.alignment)
    extent = -(-(behind + index.itemsize) // align) * align
    return combined([(basic(value), 0), (basic(index), behind)]).resized(0, extent)


def _predefined() -> dict[str, TypeDefinition]:
    found = {}
    for name, both in _NAMES.items():
        letter, *code = both.split()
        mpi_name = f"MPIX_{name}" if name == "BFLOAT16_T" else f"MPI_{name}"
        known = "" if letter == "V2" else letter
        made = partial(basic, element_of(letter))
        found[name] = TypeDefinition("NAMED", made, name=mpi_name, code=code[0] if code else known, char=known)
    for name, letters in _PAIRS.items():
        mpi_name = "MPI_2INT" if name == "TWOINT" else f"MPI_{name}"
        found[name] = TypeDefinition("NAMED", partial(_pair, letters), name=mpi_name)
    return found


PREDEFINED = _predefined()
"""By MPI's names without their prefix."""


def _codes() -> dict[str, TypeDefinition]:
    """By the codes of elements: numpy's letters and type strings, and the formats of Python's buffers."""
    names = {
        "?": "C_BOOL", "b": "SIGNED_CHAR", "h": "SHORT", "i": "INT", "l": "LONG", "q": "LONG_LONG",
        "B": "UNSIGNED_CHAR", "H": "UNSIGNED_SHORT", "I": "UNSIGNED", "L": "UNSIGNED_LONG",
        "Q": "UNSIGNED_LONG_LONG", "e": "FLOAT16_T", "f": "FLOAT", "d": "DOUBLE", "g": "LONG_DOUBLE",
        "Zf": "C_FLOAT_COMPLEX", "Zd": "C_DOUBLE_COMPLEX", "Zg": "C_LONG_DOUBLE_COMPLEX",
        "F": "C_FLOAT_COMPLEX", "D": "C_DOUBLE_COMPLEX", "G": "C_LONG_DOUBLE_COMPLEX",
        "b1": "C_BOOL", "i1": "INT8_T", "i2": "INT16_T", "i4": "INT32_T", "i8": "INT64_T",
        "u1": "UINT8_T", "u2": "UINT16_T", "u4": "UINT32_T", "u8": "UINT64_T",
        "f2": "FLOAT16_T", "f4": "FLOAT", "f8": "DOUBLE", "c8": "C_FLOAT_COMPLEX", "c16": "C_DOUBLE_COMPLEX",
        "n": "COUNT", "N": "UNSIGNED_LONG", "p": "AINT", "P": "UNSIGNED_LONG",
        "c": "CHAR", "a": "CHAR", "S": "CHAR", "S1": "CHAR", "s": "CHAR", "1s": "CHAR", "U": "WCHAR", "U1": "WCHAR",
        "u": "UINT16_T", "1u": "UINT16_T", "w": "WCHAR", "1w": "WCHAR",
        "M": "INT64_T", "M8": "INT64_T", "m": "INT64_T", "m8": "INT64_T",
        f"f{np.dtype('g').itemsize}": "LONG_DOUBLE", f"c{np.dtype('G').itemsize}": "C_LONG_DOUBLE_COMPLEX",
    }  # fmt: skip
    return {code: PREDEFINED[name] for code, name in names.items()}


CODES = _codes()


def named_type(name: str) -> TypeDefinition:
    """Return the datatype with a code, a name of MPI's or one of numpy's. Raises KeyError."""
    found = CODES.get(name) or PREDEFINED.get(SYNONYMS.get(name, name))
    if found is not None:
        return found
    if name == "bfloat16":
        return PREDEFINED["BFLOAT16_T"]
    if not name.lstrip("<=|").isalnum():
        raise KeyError(name)
    try:
        return CODES[np.dtype(name).char]
    except (TypeError, ValueError, KeyError):
        raise KeyError(name) from None


def type_of(dtype: np.dtype[Any]) -> TypeDefinition:
    """Return the datatype of an array's elements. Raises KeyError."""
    if dtype == BFLOAT16:
        return PREDEFINED["BFLOAT16_T"]
    return CODES["c" if dtype.kind == "S" else dtype.char]
