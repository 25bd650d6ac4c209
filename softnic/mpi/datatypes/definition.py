"""What handles of datatypes refer to: how a datatype was made, its name, and its layout, which is made when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from softnic.collectives.elements import name_of
from softnic.comm.error_classes import ERR_TYPE
from softnic.mpi.datatypes.layout import TypeMap
from softnic.mpi.handles import Handle

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class TypeDefinition:
    """A datatype.

    Parameters
    ----------
    combiner
        How it was made, as in VECTOR.
    make
        Returns its layout.
    integers, addresses, types
        The arguments of its constructor, as MPI's Type_get_contents has them.
    params
        The same by the names of the constructor's parameters.
    name
        As in MPI_INT.
    code
        numpy's letter or type string of a basic type, empty for others.
    char
        numpy's letter for it.
    """

    def __init__(
        self,
        combiner: str,
        make: Callable[[], TypeMap],
        integers: Sequence[int] = (),
        addresses: Sequence[int] = (),
        types: Sequence[TypeDefinition] = (),
        params: Mapping[str, Any] = _NOTHING,
        name: str = "",
        code: str = "",
        char: str = "",
    ) -> None:
        self.combiner = combiner
        self._make = make
        self.integers = list(integers)
        self.addresses = list(addresses)
        self.types = tuple(types)
        self.params = params
        self.name = name
        self.code = code
        self.char = char or code
        self.attributes: dict[int, Any] = {}
        """Values that a program attaches to it."""

    @cached_property
    def layout(self) -> TypeMap:
        """Where its elements are."""
        return self._make()

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements that travel: that of all its elements, bytes if there are several."""
        element = self.layout.element
        return np.dtype(np.uint8) if element is None else element

    @cached_property
    def element(self) -> tuple[int, str]:
        """The size and the name of the elements of a predefined type of one element; for others no name."""
        if not self.is_named or not self.layout.is_dense or self.dtype.itemsize != self.layout.size:
            return 0, ""
        return self.layout.size, name_of(self.dtype)

    @property
    def is_named(self) -> bool:
        return self.combiner == "NAMED"

    @property
    def is_predefined(self) -> bool:
        return self.is_named or self.combiner.startswith("F90")


class DatatypeHandle(Handle):
    """A handle of a TypeDefinition: the base of Datatype, which message specifications know."""

    null_code = ERR_TYPE
    _target: TypeDefinition | None
