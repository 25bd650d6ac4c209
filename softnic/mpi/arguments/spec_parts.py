"""The parts of mpi4py's lists that describe buffers: data, count, displacement and datatype."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from softnic.comm.error_classes import ERR_COUNT
from softnic.comm.errors import Refused
from softnic.mpi.datatypes.definition import DatatypeHandle


class NotIntegersError(Refused, TypeError):
    """Counts or displacements are not integers."""


class SpecParts(NamedTuple):
    """The parts of one of mpi4py's lists. Fields set to None follow from the buffer."""

    data: Any
    count: Any = None
    displacement: Any = None
    datatype: Any = None


def unpacked(spec: Sequence[Any], what: str, *, several: bool = False) -> SpecParts:
    """Return the parts of a list; with `several` counts, a list is counts, and a tuple is counts and displacements."""
    match list(spec):
        case [data]:
            return SpecParts(data)
        case [data, (DatatypeHandle() | str()) as datatype]:
            return SpecParts(data, datatype=datatype)
        case [data, counts, *datatype] if len(datatype) < 2 and _is_pair(counts, several):
            count, displacement = counts
            return SpecParts(data, count, displacement, *datatype)
        case [data, count]:
            return SpecParts(data, count)
        case [data, count, datatype]:
            return SpecParts(data, count, datatype=datatype)
        case [data, count, displacement, datatype]:
            return SpecParts(data, count, displacement, datatype)
    raise ValueError(f"{what} is a list of {len(spec)}: [data, count, datatype] is expected")


def _is_pair(value: Any, several: bool) -> bool:
    """Return whether a part of a list is (count, displacement)."""
    return isinstance(value, tuple if several else (tuple, list)) and len(value) == 2


def is_integer(number: Any) -> bool:
    with suppress(TypeError):
        operator.index(number)
        return True
    return False


def integer(number: Any, name: str, what: str) -> int:
    """Return a count or a displacement. Raises ValueError."""
    with suppress(TypeError):
        if (value := operator.index(number)) >= 0:
            return value
    raise ValueError(f"{what} has the {name} {number!r}: an integer, 0 or more, is expected")


def integers(numbers: Any, ranks: int, name: str, what: str) -> list[int]:
    """Return one integer for each rank; a single one stands for all. Raises ValueError."""
    if is_integer(numbers):
        return [integer(numbers, name, what)] * ranks
    try:
        found = [operator.index(number) for number in numbers]
    except TypeError as error:
        text = f"{what} has the {name} {numbers!r}: {ranks} integers are expected, one a rank"
        raise NotIntegersError(ERR_COUNT, text) from error
    if len(found) != ranks:
        raise ValueError(f"{what} has the {name} {numbers!r}: {ranks} integers are expected, one a rank")
    return [integer(number, name, what) for number in found]
