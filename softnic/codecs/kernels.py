"""Selects the implementation of the kernels: `scalar`, the reference, or one for the CPU's SIMD instructions.

All give the same bytes and bits. The fastest one that the CPU supports is selected at load. `SOFTNIC_KERNELS=scalar`
(or `avx2`, `avx512`, `neon`) in the environment selects another one, for tests and measurements; an unavailable one is
an error.
"""

from __future__ import annotations

import os

from softnic._native import ffi, lib

VARIABLE = "SOFTNIC_KERNELS"


def simd_available() -> tuple[str, ...]:
    """Return the names of the available implementations, from the reference to the fastest."""
    numbers = filter(lib.sn_simd_available, range(lib.SN_SIMD_NUMBERS))
    return tuple(ffi.string(lib.sn_simd_name(number)).decode() for number in numbers)


def simd() -> str:
    """Return the name of the implementation in use."""
    return str(ffi.string(lib.sn_simd_name(lib.sn_simd())).decode())


def simd_select(name: str) -> None:
    """Select an implementation for the whole process. Raises ValueError if it is not available."""
    for number in range(lib.SN_SIMD_NUMBERS):
        if ffi.string(lib.sn_simd_name(number)).decode() == name and lib.sn_simd_select(number) == 0:
            return
    raise ValueError(f"{name!r} is not available: use one of {', '.join(simd_available())}")


def select_from_environment() -> None:
    """Select the implementation named by `SOFTNIC_KERNELS`, if set. Raises ValueError naming the variable."""
    name = os.environ.get(VARIABLE)
    if name:
        try:
            simd_select(name)
        except ValueError as error:
            raise ValueError(f"{VARIABLE}: {error}") from None
