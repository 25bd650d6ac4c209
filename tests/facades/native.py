"""The C extension."""

from __future__ import annotations

from softnic._native import ffi, lib

__all__ = [
    "ffi",
    "lib",
]
