"""Every number of a connection by its path, to compare two connections or two ways of processing one.

`state_of(connection)["snd.snd_una"]`. Nothing is listed by hand: a part's fields are its slots, its dictionary and the
attributes that C types declare (getset descriptors), so a field that moves to C keeps its path.
"""

from __future__ import annotations

import ctypes
import types
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from softnic._fields import ConnectionFields, ReassemblyFields, ScoreboardFields, SendBufferFields
from softnic._native import ffi
from softnic.tcp.flow import Flow
from softnic.tcp.scoreboard import Scoreboard

__all__ = ["differences", "numbers_of", "state_of"]

Plain = str | int | None
_VIEWS = "softnic._fields"
_PARTS = ("softnic.tcp.", "softnic.nic.", "softnic.packet.", _VIEWS)
"""Modules whose objects are parts of a flow, unless they are shared."""
_SHARED = {"tcp", "listener", "_budget"}
"""Fields that refer to what several flows share."""
_PLACE = {"memory", "address", "memory_address"}
"""Attributes of views that say where in memory they are."""
_RANGE = ffi.typeof("sn_range *")
"""Of what is kept in C, the ranges of a scoreboard are fields; other pointers say where in memory something is."""
_FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def state_of(flow: object) -> dict[str, Plain]:
    """Return all fields of a flow, or of a part of one, and of its parts as plain values.

    Parameters
    ----------
    flow : object
        A connection or a part of one.

    Returns
    -------
    dict
        Values by path. Floats are given by `float.hex`, sequences by their items and length, read-only bytes by length
        and hash, other memory, which may hold more than data, by its length. Fields without a value, functions and what
        is shared with other flows are left out.
    """
    return dict(_walk("", flow, frozenset()))


def differences(one: Mapping[str, Plain], other: Mapping[str, Plain]) -> list[str]:
    """Return a line for each path whose values differ, or that only one state has."""
    paths = sorted(one.keys() | other.keys())
    missing = "nothing"
    pairs = [(path, one.get(path, missing), other.get(path, missing)) for path in paths]
    return [f"{path}: {first} and {second}" for path, first, second in pairs if first != second]


def _walk(path: str, value: Any, above: frozenset[int]) -> Iterator[tuple[str, Plain]]:
    if isinstance(value, Enum):
        yield path, value.name
    elif value is None or isinstance(value, bool | int | str):
        yield path, value
    elif isinstance(value, float):
        yield path, value.hex()
    elif isinstance(value, bytes) or (isinstance(value, memoryview) and value.readonly):
        yield path, f"{len(value)} bytes {blake2b(value, digest_size=8).hexdigest()}"
    elif isinstance(value, bytearray | memoryview | np.ndarray):
        yield f"{path}.len", len(value)
    elif isinstance(value, list | tuple | deque | array):
        yield f"{path}.len", len(value)
        for index, item in enumerate(value):
            yield from _walk(f"{path}[{index}]", item, above)
    elif isinstance(value, Mapping):
        yield f"{path}.len", len(value)
        for key in sorted(value, key=repr):
            yield from _walk(f"{path}[{key!r}]", value[key], above)
    elif isinstance(value, ffi.CData):
        fields = ffi.typeof(value).item.fields if ffi.typeof(value) is _RANGE else ()
        for name, _ in fields or ():
            yield f"{path}.{name}", _plain(getattr(value, name))
    elif not callable(value) and id(value) not in above:
        yield f"{path}.type".lstrip("."), type(value).__name__
        if type(value).__module__.startswith(_PARTS):
            for name, held in _fields(value):
                yield from _walk(f"{path}.{name}".lstrip("."), held, above | {id(value)})


def _plain(value: bool | int | float) -> Plain:
    return value.hex() if isinstance(value, float) else value


def _fields(value: object) -> Iterator[tuple[str, object]]:
    """Yield the names of an object's fields with their values, without those that have none."""
    names = _declared(type(value)) | set(getattr(value, "__dict__", ()))  # type: ignore[arg-type]
    for name in sorted(names - _SHARED):
        try:
            yield name, getattr(value, name)
        except AttributeError:
            continue


@cache
def _declared(kind: type) -> frozenset[str]:
    """Return the names of the fields that a class declares."""
    names = {"ranges"} if issubclass(kind, Scoreboard) else set()
    for base in kind.__mro__:
        declared = {name for name, held in vars(base).items() if isinstance(held, _FIELDS) and name[:2] != "__"}
        names |= declared - _PLACE if base.__module__ == _VIEWS else declared
    return frozenset(names)


def numbers_of(flow: Flow) -> bytes:
    """Return the memory of a flow's numbers, without pointers and its choice of the fast path."""
    memory = bytearray(ctypes.string_at(flow.memory.address, flow.memory.size))
    for at, size in _left_out():
        memory[at : at + size] = bytes(size)
    return bytes(memory)


@cache
def _left_out() -> list[tuple[int, int]]:
    """Return offset and size of the fields that `numbers_of` leaves out."""
    parts: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
        (ScoreboardFields, "sn_scoreboard", ("ranges",)),
        (SendBufferFields, "sn_send_buffer", ("memory_address", "runs", "tags")),
        (ReassemblyFields, "sn_reassembly", ("waiting", "budget")),
    )
    found = []
    for kind, struct, names in parts:
        view = kind()
        start = view.address - view.memory.address
        found += [(start + ffi.offsetof(struct, name), 8) for name in names]
    connection = ConnectionFields()
    connection.fast_path = True  # type: ignore[attr-defined]
    memory = ctypes.string_at(connection.memory.address, connection.memory.size)
    return [*found, (memory.index(1), 1)]
