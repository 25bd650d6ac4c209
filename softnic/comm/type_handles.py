"""Handles: the objects of softnic.MPI that refer to something, as Datatype and Op, and may refer to nothing.

Two handles are equal if they refer to the same thing. `Datatype(datatype)` is another handle of the same datatype. A
constant, as MPI.INT, stays what it is when it is freed, and is pickled by its name.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, ClassVar, Self

from softnic.comm.public_names import PublicNames

_numbers = itertools.count(1)


class Numbered:
    """What a handle refers to. It has a number, from which a handle can be made again."""

    def __init__(self) -> None:
        self.number = next(_numbers)


class TypeHandle(PublicNames):
    """A reference to a `Numbered`, or to nothing."""

    _things: ClassVar[weakref.WeakValueDictionary[int, Numbered]] = weakref.WeakValueDictionary()
    _kind: ClassVar[str] = ""
    """The class that a handle can be made from, in errors."""
    _thing: Any
    _constant: str
    """The name of a constant of softnic.MPI; empty for other handles."""

    def __new__(cls, of: Any = None) -> Self:
        if of is not None and not (isinstance(of, TypeHandle) and of._kind == cls._kind):
            raise TypeError(f"{cls.__name__} of a {type(of).__name__}: a {cls._kind} is expected")
        return cls._made(None if of is None else of._thing)

    @classmethod
    def _made(cls, thing: Any, constant: str = "") -> Self:
        """Return a handle of `thing`."""
        handle = super().__new__(cls)
        handle._thing = thing
        handle._constant = constant
        if thing is not None:
            TypeHandle._things[thing.number] = thing
        return handle

    def __bool__(self) -> bool:
        return self._thing is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypeHandle) or self._kind != other._kind:
            return NotImplemented
        return self._thing is other._thing

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Self:
        return self if self._constant else type(self)._made(self._thing)

    def __deepcopy__(self, memo: Any) -> Self:
        return self.__copy__()

    @property
    def handle(self) -> int:
        """Number of what it refers to; 0 for nothing."""
        return 0 if self._thing is None else int(self._thing.number)

    @classmethod
    def fromhandle(cls, handle: int) -> Self:
        """Return an object for a number that `handle` gave.

        Parameters
        ----------
        handle
            The number.
        """
        return cls._made(TypeHandle._things.get(handle))

    def toint(self) -> int:
        """Return the number of what it refers to."""
        return self.handle

    @classmethod
    def fromint(cls, arg: int, /) -> Self:
        """Return an object for a number that `toint` gave."""
        return cls.fromhandle(arg)

    def py2f(self) -> int:
        """Return the number of what it refers to."""
        return self.handle

    @classmethod
    def f2py(cls, arg: int) -> Self:
        """Return an object for a number that `py2f` gave.

        Parameters
        ----------
        arg
            The number.
        """
        return cls.fromhandle(arg)
