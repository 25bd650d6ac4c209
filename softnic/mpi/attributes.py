"""Attributes: values that a program attaches to an object of MPI, under keys."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from softnic.comm.error_classes import ERR_KEYVAL, ERR_OTHER
from softnic.comm.errors import ArgumentError
from softnic.mpi.constants import KEYVAL_INVALID

Copy = Callable[[Any, int, Any], Any] | bool | None
Delete = Callable[[Any, int, Any], object] | None


@dataclass(frozen=True)
class Key:
    """How the values of a key are copied with their object, and deleted."""

    copy: Copy
    """True: the copy has the same value; False or None: none; a function may return NotImplemented for none."""
    delete: Delete


_keys: dict[int, Key] = {}
_numbers = itertools.count(1000)


def create_key(copy: Copy, delete: Delete) -> int:
    """Return a new key."""
    number = next(_numbers)
    _keys[number] = Key(copy, delete)
    return number


def free_key(number: int) -> int:
    """Release a key, which objects that have values of it keep; return MPI.KEYVAL_INVALID. Raises ArgumentError."""
    check_key(number)
    return KEYVAL_INVALID


def check_key(number: int) -> None:
    """Raise ArgumentError for what is no key of the program."""
    if number not in _keys:
        raise ArgumentError(f"{number!r} is not a key that was created", code=ERR_KEYVAL)


def set_value(of: Any, values: MutableMapping[int, Any], key: int, value: Any) -> None:
    """Attach a value; one that is there is deleted. Raises ArgumentError."""
    check_key(key)
    if key in values:
        delete_value(of, values, key)
    values[key] = value


def delete_value(of: Any, values: MutableMapping[int, Any], key: int) -> None:
    """Detach a value. Raises ArgumentError if there is none, CommError's kind if its function fails."""
    check_key(key)
    if key not in values:
        raise ArgumentError("there is no value of this key", code=ERR_KEYVAL)
    value, delete = values.pop(key), _keys[key].delete
    if delete is not None:
        _called(delete, of, key, value)


def delete_all(of: Any, values: MutableMapping[int, Any]) -> None:
    """Detach all values of an object that is freed, the latest first."""
    for key in reversed(list(values)):
        delete_value(of, values, key)


def copy_all(of: Any, values: MutableMapping[int, Any], to: MutableMapping[int, Any]) -> None:
    """Copy attributes to the copy of an object, as their keys define. Raises ArgumentError if a function fails."""
    for key, value in values.items():
        copy = _keys[key].copy
        copied = _called(copy, of, key, value) if callable(copy) else value if copy else NotImplemented
        if copied is not NotImplemented:
            to[key] = copied


def _called(function: Callable[[Any, int, Any], Any], of: Any, key: int, value: Any) -> Any:
    """Return what a function of the program returns. Its error is printed, as in mpi4py."""
    try:
        return function(of, key, value)
    except Exception as error:
        traceback.print_exc()
        raise ArgumentError(f"the function of an attribute raised {type(error).__name__}", code=ERR_OTHER) from error


class AttributeCalls:
    """The calls of objects that have attributes."""

    def _attribute_values(self) -> dict[int, Any]:
        """Return the values by key."""
        raise NotImplementedError

    def Get_attr(self, keyval: int) -> Any:
        """Return the value of the key `keyval`, None if there is none. Raises ArgumentError for KEYVAL_INVALID."""
        values = self._attribute_values()
        if keyval == KEYVAL_INVALID:
            raise ArgumentError("the key of the attribute is MPI.KEYVAL_INVALID", code=ERR_KEYVAL)
        return values.get(keyval)

    def Set_attr(self, keyval: int, attrval: Any) -> None:
        """Attach the value `attrval` under `keyval`, a key of Create_keyval. Raises ArgumentError."""
        set_value(self, self._attribute_values(), keyval, attrval)

    def Delete_attr(self, keyval: int) -> None:
        """Detach the value of the key `keyval`. Raises ArgumentError."""
        delete_value(self, self._attribute_values(), keyval)

    @classmethod
    def Create_keyval(cls, copy_fn: Copy = None, delete_fn: Delete = None, nopython: bool = False) -> int:
        """Return a new key of attributes.

        Parameters
        ----------
        copy_fn
            What Dup does with a value: True copies it; a function of the object, the key and the value returns
            that of the duplicate, or NotImplemented.
        delete_fn
            Called with the object, the key and the value when it is detached.
        nopython
            Accepted as in mpi4py, where values may be integers of C.
        """
        if nopython and copy_fn is None:
            copy_fn = False
        return create_key(copy_fn, delete_fn)

    @classmethod
    def Free_keyval(cls, keyval: int) -> int:
        """Release a key and return MPI.KEYVAL_INVALID. Raises ArgumentError."""
        return free_key(keyval)
