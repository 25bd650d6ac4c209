"""Memory as mpi4py has it: `buffer`, the bytes of an object, of an address or of their own; and addresses."""

from __future__ import annotations

import operator
from typing import Any, NoReturn

import numpy as np

from softnic.ipc import regions
from softnic.mpi.arguments.buffers import Bottom, flat_bytes
from softnic.mpi.arguments.exported_memory import bytes_at, is_accessible

REGISTERED_BYTES = 1 << 16
"""Memory of Alloc_mem of this size and more is registered: NICs read and write it without a copy."""


class buffer(np.ndarray[Any, Any]):
    """The bytes of an object, as a sequence of integers that can be viewed, sliced and assigned to.

    Parameters
    ----------
    buf
        The object; none: an empty buffer.
    """

    _owner: Any = None
    _is_empty = False
    """Whether it has no memory: it was made without, or released."""

    def __new__(cls, *buf: Any) -> buffer:
        if not buf:
            return cls._over(np.empty(0, np.uint8), None, empty=True)
        return cls._of(*buf, writable=False)

    @classmethod
    def _of(cls, obj: Any, *, writable: bool) -> buffer:
        return cls._over(flat_bytes(obj, "the object", writable=writable), obj)

    @classmethod
    def _over(cls, data: np.ndarray[Any, Any], owner: Any, *, empty: bool = False) -> buffer:
        made: buffer = np.ndarray.__new__(cls, data.size, np.uint8, data)
        made._owner, made._is_empty = owner, empty
        return made

    @staticmethod
    def allocate(nbytes: int, clear: bool = False) -> buffer:
        """Return new memory.

        Parameters
        ----------
        nbytes
            Its size.
        clear
            Whether it is zero.
        """
        if (size := operator.index(nbytes)) < 0:
            raise ValueError(f"{size} bytes: 0 or more are expected")
        data = np.zeros(size, np.uint8) if clear else np.empty(size, np.uint8)
        return buffer._over(data, data)

    @staticmethod
    def frombuffer(obj: Any, readonly: bool = False) -> buffer:
        """Return the bytes of an object.

        Parameters
        ----------
        obj
            The object.
        readonly
            Whether the bytes cannot be changed through the result.
        """
        made = buffer._of(obj, writable=not readonly)
        if readonly:
            made.flags.writeable = False
        return made

    @staticmethod
    def fromaddress(address: int, nbytes: int, readonly: bool = False) -> buffer:
        """Return the memory at an address of this process, which must exist as long as the result is used.

        Parameters
        ----------
        address
            Where it starts.
        nbytes
            Its size.
        readonly
            Whether the bytes cannot be changed through the result.
        """
        if nbytes < 0 or (nbytes and not address):
            raise ValueError(f"{nbytes} bytes at address {address}")
        made = buffer._over(bytes_at(address, nbytes), None)
        if readonly:
            made.flags.writeable = False
        return made

    @property
    def address(self) -> int:
        """Where it starts."""
        return 0 if self._is_empty else int(self.__array_interface__["data"][0])

    @property
    def obj(self) -> Any:
        """The object whose bytes these are."""
        return self._owner

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return 0 if self._is_empty else self.size

    @property
    def readonly(self) -> bool:
        """Whether the bytes cannot be changed."""
        return not self._is_empty and not self.flags.writeable

    @property
    def format(self) -> str:
        """Format of an element, as memoryview has it."""
        return "B"

    def cast(self, format: str, shape: Any = ...) -> memoryview:
        """Return a memoryview of elements of a format.

        Parameters
        ----------
        format
            As memoryview.cast has it.
        shape
            Of the view; one axis without it.
        """
        self._check()
        view: Any = self.view(np.ndarray).data
        cast: memoryview = view.cast(format) if shape is ... else view.cast(format, shape)
        return cast

    def tobytes(self, order: Any = None) -> bytes:  # noqa: ARG002
        """Return a copy.

        Parameters
        ----------
        order
            Not used.
        """
        self._check()
        return self.view(np.ndarray).tobytes()

    def toreadonly(self) -> buffer:
        """Return a buffer of the same bytes that cannot be changed through it."""
        made = buffer._over(self.view(np.ndarray), self._owner)
        made.flags.writeable = False
        return made

    def release(self) -> None:
        """Make the buffer empty. The memory itself is released when nothing uses it any more."""
        self._owner, self._is_empty = None, True

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, item: Any) -> Any:
        self._check()
        where = self._where(item)
        if isinstance(where, int):
            return int(self.view(np.ndarray)[where])
        part = buffer._over(self.view(np.ndarray)[where], self)
        part.flags.writeable = self.flags.writeable
        return part

    def __setitem__(self, item: Any, value: Any) -> None:
        self._check()
        if self.readonly:
            raise TypeError("the buffer is read-only")
        where = self._where(item)
        target = self.view(np.ndarray)
        if isinstance(where, int) or (hasattr(value, "__index__") and np.ndim(value) == 0):
            target[where] = operator.index(value)
            return
        data = flat_bytes(value, "the value")
        if data.size != len(range(*where.indices(self.nbytes))):
            raise ValueError(f"{data.size} bytes are assigned to {len(range(*where.indices(self.nbytes)))}")
        target[where] = data

    def _where(self, item: Any) -> int | slice:
        if isinstance(item, slice):
            if item.step not in (None, 1):
                raise IndexError("a slice of a buffer has no step")
            return item
        if not hasattr(item, "__index__"):
            raise TypeError(f"the index is a {type(item).__name__}: an integer or a slice is expected")
        place = operator.index(item)
        if not -self.nbytes <= place < self.nbytes:
            raise IndexError(f"index {place} of {self.nbytes} bytes")
        return place

    def __delitem__(self, item: Any) -> NoReturn:
        raise NotImplementedError("the bytes of a buffer cannot be deleted")

    def _check(self) -> None:
        """Raise BufferError for memory of a GPU."""
        if not is_accessible(self._owner):
            raise BufferError("the memory belongs to a GPU")

    def __eq__(self, other: object) -> Any:
        return self is other

    def __ne__(self, other: object) -> Any:
        return self is not other

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<MPI.buffer: {self.nbytes} bytes>"

    __str__ = __repr__


def Alloc_mem(size: int, info: Any = None) -> buffer:  # noqa: ARG001
    """Return new memory for messages; that of 64 KiB and more is registered with the NIC.

    Parameters
    ----------
    size
        In bytes.
    info
        Not used.
    """
    if operator.index(size) < REGISTERED_BYTES:
        return buffer.allocate(size)
    data = regions.empty(size, np.uint8)
    return buffer._over(data, data)


def Free_mem(mem: buffer) -> None:
    """Release memory of Alloc_mem.

    Parameters
    ----------
    mem
        The memory.
    """
    mem.release()


def Get_address(location: Any) -> int:
    """Return the address of a buffer's first byte.

    Parameters
    ----------
    location
        The buffer; MPI.BOTTOM has address 0.
    """
    if location is None or isinstance(location, Bottom):
        return 0
    if isinstance(location, buffer):
        return location.address
    return int(flat_bytes(location, "the location").__array_interface__["data"][0])


def Aint_add(base: int, disp: int) -> int:
    """Return an address and a displacement, added.

    Parameters
    ----------
    base, disp
        Address and displacement.
    """
    return base + disp


def Aint_diff(addr1: int, addr2: int) -> int:
    """Return the distance of two addresses.

    Parameters
    ----------
    addr1, addr2
        The addresses.
    """
    return addr1 - addr2
