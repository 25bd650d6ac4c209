"""What the objects of softnic.MPI have in common: they name something, or nothing, and several may name the same.

Communicators, groups, datatypes, operations, info and error handlers are such objects.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakValueDictionary

from softnic.comm.error_classes import ERR_ARG
from softnic.comm.errors import ArgumentError
from softnic.mpi.public_names import PublicNames

H = TypeVar("H", bound="Handle")
_numbers: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""What handles name, by number."""
_constants: dict[tuple[type, int], str] = {}
"""Names of constants, by class and number."""
_free_number = itertools.count(1)
_NULL = 0


class Handle(PublicNames):
    """A name for something. `Handle(another)` is another name for the same; `Handle()` is null, and false."""

    _target: Any
    null_code: ClassVar[int] = ERR_ARG
    """Error class of calls with a null object."""

    def __new__(cls, of: Handle | None = None) -> Self:
        """Return another name for `of`, or a null object. Raises TypeError for an object of another kind."""
        made = super().__new__(cls)
        made._target = None if of is None else cls._target_of(of)
        return made

    @classmethod
    def _family(cls) -> type[Handle]:
        """Return the class below Handle: all its subclasses name things of one kind."""
        return next(each for each in reversed(cls.__mro__) if issubclass(each, Handle) and each is not Handle)

    @classmethod
    def _target_of(cls, of: Any) -> Any:
        if not isinstance(of, cls._family()):
            raise TypeError(f"{cls.__name__} is expected, not {type(of).__name__}")
        return of._target

    @classmethod
    def _named(cls, target: Any) -> Self:
        """Return a name for something new."""
        made = cls.__new__(cls)
        made._target = target
        return made

    def _live(self) -> Any:
        """Return what this names. Raises ArgumentError for a null object."""
        if self._target is None:
            raise ArgumentError(f"this {type(self).__name__} is null", code=self.null_code)
        return self._target

    def free(self) -> None:
        """Free what can be freed; a constant stays, and another name for it becomes null."""
        if self._is_the_constant():
            return
        if self._is_constant():
            self._target = None
        elif self and callable(release := getattr(self, "Free", None)):
            release()

    def _is_constant(self) -> bool:
        """Return whether this names what a constant of softnic.MPI names."""
        return self._constant_name() is not None

    def _constant_name(self) -> str | None:
        number = _NULL if self._target is None else getattr(self._target, "handle_number", None)
        return None if number is None else _constants.get((self._family(), number))

    def _is_the_constant(self) -> bool:
        """Return whether this is the constant itself."""
        name = self._constant_name()
        return name is not None and _objects[name] is self

    @property
    def handle(self) -> int:
        """Number of what this names; 0: nothing."""
        if self._target is None:
            return _NULL
        number: int | None = getattr(self._target, "handle_number", None)
        if number is None:
            number = self._target.handle_number = next(_free_number)
            _numbers[number] = self._target
            kinds = (each for each in type(self).__mro__ if each.__module__.startswith("softnic."))
            self._target.handle_kind = next(kinds)
        return number

    @classmethod
    def fromhandle(cls, handle: int) -> Any:
        """Return a name for what has this number."""
        target = _numbers.get(handle)
        if target is None:
            return cls.__new__(cls)
        kind: type[Handle] = target.handle_kind
        return (kind if issubclass(kind, cls._family()) else cls)._named(target)

    def toint(self) -> int:
        """Return the number for C."""
        return self.handle

    @classmethod
    def fromint(cls, arg: int) -> Any:
        """Return a name for what has this number in C."""
        return cls.fromhandle(arg)

    def py2f(self) -> int:
        """Return the number for Fortran."""
        return self.handle

    @classmethod
    def f2py(cls, arg: int) -> Any:
        """Return a name for what has this number in Fortran."""
        return cls.fromhandle(arg)

    def __bool__(self) -> bool:
        return self._target is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle) or other._family() is not self._family():
            return NotImplemented
        return self._target is other._target

    __hash__ = None  # type: ignore[assignment]  # as in mpi4py: what is named may change

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = self._constant_name()
        if name is None:
            raise ValueError(f"only constants can be pickled, not this {type(self).__name__}")
        return name if self._is_the_constant() else (type(self), (_objects[name],))


_objects: dict[str, Handle] = {}


def constant(name: str, made: H) -> H:
    """Return an object that `softnic.MPI` has under this name, by which it is pickled."""
    _constants[made._family(), made.handle] = name
    _objects[name] = made
    made.__module__ = "softnic.MPI"  # where pickle finds the name
    return made


def constant_named(name: str) -> Any:
    """Return a constant, once softnic.MPI has made it."""
    return _objects[name]
