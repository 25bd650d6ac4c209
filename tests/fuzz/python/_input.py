"""An input read piece by piece, as the targets of the C read theirs. What is taken beyond its end is zeros."""

from __future__ import annotations


class Input:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return self._at < len(self._data)

    def number(self, size: int, *, signed: bool = False) -> int:
        """So many bytes, little-endian."""
        at = self._at
        self._at = at + size
        return int.from_bytes(self._data[at : at + size], "little", signed=signed)

    def take(self, most: int) -> bytes:
        part = self._data[self._at : self._at + most]
        self._at += most
        return part

    def rest(self) -> bytes:
        return self.take(len(self._data))
