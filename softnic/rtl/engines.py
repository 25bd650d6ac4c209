"""Enters the engines in the table of codecs (native/codecs/codecs.h, `SN_RTL`)."""

from __future__ import annotations

import ctypes
import functools

from softnic._native import ffi, lib
from softnic.rtl import library


@functools.cache
def register() -> ctypes.CDLL:
    """Load the library, make it first if need be, and register its functions. Raises RtlError if it cannot be made."""
    loaded = ctypes.CDLL(str(library.path()))
    numbers = {_name(number): number for number in range(lib.SN_LAST_CODEC + 1)}
    for codec in library.codecs():
        lib.sn_rtl_register(
            numbers[codec],
            *(ctypes.c_int * 2).in_dll(loaded, f"rtl_{codec}_parameters"),
            _function(loaded, f"rtl_{codec}_encode", "sn_encoder *"),
            _function(loaded, f"rtl_{codec}_decode", "sn_decoder *"),
            _function(loaded, f"rtl_{codec}_roundtrip", "sn_roundtripper *"),
        )
    return loaded


def cycles() -> int:
    """Return how many clock cycles the calling thread has simulated."""
    function = register().rtl_cycles
    function.restype = ctypes.c_uint64
    return int(function())


def _name(number: int) -> str:
    limits = ffi.new("int[2]")
    return str(ffi.string(lib.sn_codec_describe(number, limits, limits + 1)).decode())


def _function(loaded: ctypes.CDLL, name: str, kind: str) -> object:
    return ffi.cast(kind, ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value)
