"""What a datatype says of itself: sizes and bounds, its name, how it was made, and its code in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from softnic.comm.error_classes import ERR_TYPE
from softnic.comm.errors import ArgumentError
from softnic.mpi import constants
from softnic.mpi.datatypes.definition import DatatypeHandle, TypeDefinition
from softnic.mpi.datatypes.layout import TypeMap

Envelope = tuple[int, int, int, int, int]
"""Numbers of integers, addresses, large counts and datatypes, and the combiner."""


class DatatypeContents(DatatypeHandle):
    """The questions to a datatype."""

    @property
    def _definition(self) -> TypeDefinition:
        definition: TypeDefinition = self._live()
        return definition

    @property
    def _layout(self) -> TypeMap:
        return self._definition.layout

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of the elements that travel: uint8 if there are several types of elements."""
        return self._definition.dtype

    def Get_size(self) -> int:
        """Return the bytes of an item that belong to a message."""
        return self._layout.size

    def Get_extent(self) -> tuple[int, int]:
        """Return the lower bound of an item, and the distance of items, in bytes."""
        return self._layout.lb, self._layout.extent

    def Get_true_extent(self) -> tuple[int, int]:
        """Return where the elements of an item start, and the bytes to their end."""
        return self._layout.true_lb, self._layout.true_ub - self._layout.true_lb

    @property
    def size(self) -> int:
        """Bytes of an item that belong to a message."""
        return self._layout.size

    @property
    def extent(self) -> int:
        """Distance of items, in bytes."""
        return self._layout.extent

    @property
    def lb(self) -> int:
        """Lower bound."""
        return self._layout.lb

    @property
    def ub(self) -> int:
        """Upper bound."""
        return self._layout.ub

    @property
    def true_extent(self) -> int:
        """Bytes from the start of the elements of an item to their end."""
        return self._layout.true_ub - self._layout.true_lb

    @property
    def true_lb(self) -> int:
        """Where the elements of an item start."""
        return self._layout.true_lb

    @property
    def true_ub(self) -> int:
        """Where the elements of an item end."""
        return self._layout.true_ub

    def Get_name(self) -> str:
        """Return the name, as in MPI_INT; derived types have none until Set_name."""
        return "MPI_DATATYPE_NULL" if self._target is None else self._target.name

    def Set_name(self, name: str) -> None:
        """Set the name.

        Parameters
        ----------
        name
            The new name.
        """
        self._definition.name = name

    @property
    def name(self) -> str:
        """The name."""
        return self.Get_name()

    @name.setter
    def name(self, value: str) -> None:
        self.Set_name(value)

    def Get_envelope(self) -> Envelope:
        """Return the numbers of integers, addresses, large counts and datatypes of Get_contents, and the combiner."""
        made = self._definition
        return len(made.integers), len(made.addresses), 0, len(made.types), self.combiner

    def Get_contents(self) -> tuple[list[int], list[int], list[int], list[Any]]:
        """Return the arguments with which a derived type was made: integers, addresses, large counts, datatypes."""
        made = self._definition
        if made.is_named:
            raise ArgumentError(f"{self!r} is predefined: it was made of nothing", code=ERR_TYPE)
        return [*made.integers], [*made.addresses], [], [type(self)._named(each) for each in made.types]

    @property
    def envelope(self) -> Envelope:
        """What Get_envelope returns."""
        return self.Get_envelope()

    @property
    def contents(self) -> tuple[list[int], list[int], list[int], list[Any]]:
        """What Get_contents returns."""
        return self.Get_contents()

    @property
    def combiner(self) -> int:
        """How it was made: a COMBINER_ constant."""
        return int(getattr(constants, f"COMBINER_{self._definition.combiner}"))

    @property
    def is_named(self) -> bool:
        """Whether it is a constant of MPI."""
        return self._definition.is_named

    @property
    def is_predefined(self) -> bool:
        """Whether it exists without being made."""
        return self._target is None or self._target.is_predefined

    def decode(self) -> tuple[Any, str, dict[str, Any]]:
        """Return the type that it was made of, the name of its constructor, and the arguments."""
        made = self._definition
        if made.is_named:
            return self, made.combiner, {}
        params = {name: [*value] if isinstance(value, list) else value for name, value in made.params.items()}
        types = [type(self)._named(each) for each in made.types]
        if made.combiner == "STRUCT":
            params["datatypes"] = types
        return types[0] if len(types) == 1 else type(self)._named(None), made.combiner, params

    def tocode(self) -> str:
        """Return numpy's letter or type string of a basic type."""
        code = "" if self._target is None else self._target.code
        if not code:
            raise ValueError(f"{self!r} has no letter and no type string")
        return code

    @property
    def typechar(self) -> str:
        """numpy's letter, V for types that are none of numpy's."""
        return "" if self._target is None else self._target.char or "V"

    @property
    def typestr(self) -> str:
        """numpy's type string, as in i4; V and the extent for types that are none of numpy's."""
        if self._target is None:
            return ""
        char = self._target.char
        if not char:
            return f"V{self._target.layout.extent}"
        if char in "cU":
            return "S1" if char == "c" else "U1"
        return self._target.dtype.str[1:]

    def __repr__(self) -> str:
        if self._is_the_constant() or self._target is None:
            return f"MPI.{self._constant_name()}"
        return f"<MPI.Datatype: {self._target.name or self._target.combiner}>"
