"""Selects the implementation of the kernels: `scalar`, the reference, one for the CPU's SIMD instructions, or `rtl`.

All give the same bytes and bits. The fastest one that the CPU supports is selected at load. `SOFTNIC_KERNELS=scalar`
(or `avx2`, `avx512`, `neon`) in the environment selects another one, for tests and measurements; an unavailable one is
an error. `rtl` simulates the engines of native/rtl, made by Verilator when they are first needed (`softnic.rtl`).
"""

from __future__ import annotations

import os

from softnic._native import ffi, lib

VARIABLE = "SOFTNIC_KERNELS"
RTL = "rtl"


def simd_available() -> tuple[str, ...]:
    """Return the names of the implementations for this CPU, from the reference to the fastest."""
    numbers = (number for number in range(lib.SN_SIMD_NUMBERS) if number != lib.SN_RTL)
    return tuple(ffi.string(lib.sn_simd_name(number)).decode() for number in numbers if lib.sn_simd_available(number))


def simd() -> str:
    """Return the name of the implementation in use."""
    return str(ffi.string(lib.sn_simd_name(lib.sn_simd())).decode())


def simd_select(name: str) -> None:
    """Select an implementation for the whole process. Raises ValueError if it is not available."""
    if name == RTL:
        _register_rtl()
    for number in range(lib.SN_SIMD_NUMBERS):
        if ffi.string(lib.sn_simd_name(number)).decode() == name and lib.sn_simd_select(number) == 0:
            return
    raise ValueError(f"{name!r} is not available: use one of {', '.join((*simd_available(), RTL))}")


def select_from_environment() -> None:
    """Select the implementation named by `SOFTNIC_KERNELS`, if set. Raises ValueError naming the variable."""
    name = os.environ.get(VARIABLE)
    if name:
        try:
            simd_select(name)
        except ValueError as error:
            raise ValueError(f"{VARIABLE}: {error}") from None


def _register_rtl() -> None:
    from softnic.rtl import engines, verilator  # not needed by most processes

    try:
        engines.register()
    except verilator.RtlError as error:
        raise ValueError(f"{RTL!r} is not available: {error}") from None
