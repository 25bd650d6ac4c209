"""Info: pairs of texts that calls accept. No call of softnic depends on one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from softnic.comm.error_classes import ERR_INFO, ERR_INFO_KEY, ERR_INFO_NOKEY, ERR_INFO_VALUE
from softnic.comm.errors import ArgumentError
from softnic.mpi.constants import MAX_INFO_KEY, MAX_INFO_VAL
from softnic.mpi.handles import Handle, constant


class _Pairs(dict[str, str]):
    """The pairs that an Info names."""

    handle_number: int


class Info(Handle):
    """Pairs of texts, in the order in which they were set. It works as a dict, too."""

    null_code = ERR_INFO

    @classmethod
    def Create(cls, items: Info | Mapping[str, str] | Iterable[tuple[str, str]] | None = None) -> Self:
        """Return a new Info with these items."""
        made = cls._named(_Pairs())
        if items is not None:
            made.update(items)
        return made

    @classmethod
    def Create_env(cls, args: Sequence[str] | None = None) -> Self:
        """Return an Info that says how this process was started."""
        argv = list(sys.argv if args is None else args)
        items = {"command": argv[0] if argv else "", "thread_level": "MPI_THREAD_MULTIPLE"}
        with suppress(OSError):  # the folder may have been removed
            items["wdir"] = str(Path.cwd())
        return cls._named(_Pairs({key: value[:MAX_INFO_VAL] for key, value in items.items()}))

    def Free(self) -> None:
        """Release the Info. Raises ArgumentError if it is null or INFO_ENV."""
        self._live()
        if self._is_constant():
            raise ArgumentError("MPI.INFO_ENV is not freed", code=ERR_INFO)
        self._target = None

    def Dup(self) -> Self:
        """Return an Info with the same pairs."""
        return type(self)._named(_Pairs(self._live()))

    def Get(self, key: str) -> str | None:
        """Return the value of a key, or None."""
        pairs: _Pairs = self._live()
        return pairs.get(key)

    def Set(self, key: str, value: str) -> None:
        """Set the value of a key. Raises ArgumentError for keys and values that are too long for MPI."""
        pairs = self._live()
        if not key or len(key) > MAX_INFO_KEY:
            raise ArgumentError(f"a key of info has 1..{MAX_INFO_KEY} characters, not {len(key)}", code=ERR_INFO_KEY)
        if len(value) > MAX_INFO_VAL:
            raise ArgumentError(f"a value of info has up to {MAX_INFO_VAL} characters", code=ERR_INFO_VALUE)
        pairs[str(key)] = str(value)

    def Delete(self, key: str) -> None:
        """Remove a key. Raises ArgumentError if there is none."""
        if self._live().pop(key, None) is None:
            raise ArgumentError(f"info has no key {key!r}", code=ERR_INFO_NOKEY)

    def Get_nkeys(self) -> int:
        """Return the number of keys."""
        return len(self._live())

    def Get_nthkey(self, n: int) -> str:
        """Return the n-th key, from 0. Raises ArgumentError if there is none."""
        keys = list(self._live())
        if not 0 <= n < len(keys):
            raise ArgumentError(f"info has {len(keys)} keys and no {n}-th", code=ERR_INFO_KEY)
        key: str = keys[n]
        return key

    # As a dict

    def _pairs(self) -> _Pairs:
        return _Pairs() if self._target is None else self._target

    def _writable(self) -> _Pairs:
        if self._target is None:
            raise KeyError("MPI.INFO_NULL has no keys")
        pairs: _Pairs = self._target
        return pairs

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return the value of a key, or `default`."""
        return self._pairs().get(key, default)

    def keys(self) -> list[str]:
        """Return the keys."""
        return list(self._pairs())

    def values(self) -> list[str]:
        """Return the values."""
        return list(self._pairs().values())

    def items(self) -> list[tuple[str, str]]:
        """Return the pairs."""
        return list(self._pairs().items())

    def update(self, items: Info | Mapping[str, str] | Iterable[tuple[str, str]] = (), **kwds: str) -> None:
        """Set the pairs of `items` and of `kwds`."""
        self._writable()
        pairs: Any = items.items() if isinstance(items, (Info, Mapping)) else items
        for key, value in (*pairs, *kwds.items()):
            self.Set(key, value)

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return its value, or `default`. Raises KeyError."""
        return self._pairs().pop(key, *default)

    def popitem(self) -> tuple[str, str]:
        """Remove the last pair and return it. Raises KeyError."""
        return self._pairs().popitem()

    def copy(self) -> Self:
        """Return an Info with the same pairs; a null one of a null one."""
        return self.Dup() if self else type(self)()

    def clear(self) -> None:
        """Remove all pairs."""
        self._pairs().clear()

    def __len__(self) -> int:
        return len(self._pairs())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in self._pairs()

    def __getitem__(self, key: str) -> str:
        return self._pairs()[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._writable()
        self.Set(key, value)

    def __delitem__(self, key: str) -> None:
        del self._writable()[key]

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._is_constant():
            return super().__reduce__()
        return _created_from, (type(self), self.items())


def _created_from(kind: type[Info], items: list[tuple[str, str]]) -> Info:
    """Return an Info with these pairs, for pickle."""
    return kind.Create(items)


INFO_NULL = constant("INFO_NULL", Info())
INFO_ENV = constant("INFO_ENV", Info.Create_env())
"""How this process was started."""
