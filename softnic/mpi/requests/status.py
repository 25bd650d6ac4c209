"""Status: what a message was."""

from __future__ import annotations

import struct
from typing import Any, Self

from softnic.mpi.constants import ANY_SOURCE, ANY_TAG, UNDEFINED
from softnic.mpi.datatypes.datatype import Datatype
from softnic.mpi.public_names import PublicNames

_FIELDS = struct.Struct("=iiiiq")
"""Source, tag, error, whether it was cancelled, and bytes."""


class Status(PublicNames):
    """The source, tag and size of a received message.

    Parameters
    ----------
    status
        A Status to copy. None: of no message.
    """

    _memory: bytearray

    def __new__(cls, status: Status | None = None) -> Self:  # noqa: ARG004
        """Take what `__init__` takes: subclasses may pass it on."""
        return super().__new__(cls)

    def __init__(self, status: Status | None = None) -> None:
        if status is not None and not isinstance(status, Status):
            raise TypeError(f"a Status is expected, not a {type(status).__name__}")
        self._memory = bytearray(_FIELDS.pack(ANY_SOURCE, ANY_TAG, 0, 0, 0) if status is None else status._memory)

    def _get(self, field: int) -> int:
        return int(_FIELDS.unpack(self._memory)[field])

    def _set(self, field: int, value: int) -> None:
        fields = list(_FIELDS.unpack(self._memory))
        fields[field] = value
        _FIELDS.pack_into(self._memory, 0, *fields)

    def Get_source(self) -> int:
        """Return the rank of the sender."""
        return self._get(0)

    def Set_source(self, source: int) -> None:
        """Set the rank of the sender."""
        self._set(0, source)

    def Get_tag(self) -> int:
        """Return the tag of the message."""
        return self._get(1)

    def Set_tag(self, tag: int) -> None:
        """Set the tag of the message."""
        self._set(1, tag)

    def Get_error(self) -> int:
        """Return the error class, MPI.SUCCESS without an error."""
        return self._get(2)

    def Set_error(self, error: int) -> None:
        """Set the error class."""
        self._set(2, error)

    def Is_cancelled(self) -> bool:
        """Return whether the receive was cancelled."""
        return bool(self._get(3))

    def Set_cancelled(self, flag: bool) -> None:
        """Set whether the receive was cancelled to `flag`."""
        self._set(3, int(flag))

    def Get_count(self, datatype: Datatype | None = None) -> int:
        """Return the elements of `datatype`, MPI.UNDEFINED if they are not whole; the bytes without it."""
        size = datatype.Get_size() if datatype is not None else 1
        count, rest = divmod(self._get(4), size or 1)
        return UNDEFINED if rest else count

    def Get_elements(self, datatype: Datatype) -> int:
        """Return the basic elements of `datatype` received, MPI.UNDEFINED if they are not whole."""
        count = datatype._definition.layout.elements_in(self._get(4))
        return UNDEFINED if count is None else count

    def Set_elements(self, datatype: Datatype, count: int) -> None:
        """Set the size of the message to `count` basic elements of `datatype`."""
        self._set(4, datatype._definition.layout.bytes_of(count))

    source = property(Get_source, Set_source)
    tag = property(Get_tag, Set_tag)
    error = property(Get_error, Set_error)
    cancelled = property(Is_cancelled, Set_cancelled)

    @property
    def count(self) -> int:
        """Bytes."""
        return self._get(4)

    @count.setter
    def count(self, count: int) -> None:
        self._set(4, count)

    def fill(self, source: int, tag: int, count: int, *, cancelled: bool = False) -> None:
        """Set the source, tag and count in bytes, and whether the receive was `cancelled`; there was no error."""
        _FIELDS.pack_into(self._memory, 0, source, tag, 0, cancelled, count)

    def copy_from(self, status: Status) -> None:
        """Take all fields of another Status."""
        self._memory[:] = status._memory

    def tomemory(self) -> memoryview:
        """Return the memory of the fields, which may be written to."""
        return memoryview(self._memory).cast("i")

    def py2f(self) -> list[int]:
        """Return the fields as a status of Fortran has them."""
        return list(self.tomemory())

    @classmethod
    def f2py(cls, arg: list[int]) -> Self:
        """Return the Status of the fields `arg`, as py2f has returned them."""
        made = cls()
        made.tomemory()[:] = memoryview(struct.pack(f"={len(arg)}i", *arg)).cast("i")
        return made

    def __getstate__(self) -> bytes:
        return bytes(self._memory)

    def __setstate__(self, state: bytes) -> None:
        self._memory = bytearray(state)

    def __eq__(self, other: object) -> bool:
        return self._memory == other._memory if isinstance(other, Status) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Status: source {self.source}, tag {self.tag}, {self.count} bytes>"


def fill_empty(*statuses: Any) -> None:
    """Fill the Status of a request without a message; None is passed over."""
    for status in statuses:
        if status is not None:
            status.fill(ANY_SOURCE, ANY_TAG, 0)
