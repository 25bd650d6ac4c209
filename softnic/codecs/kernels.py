"""Which implementation of the kernels is in use: `scalar`, the reference, or one for what the machine has.

All give the same bytes and bits. The quickest that the machine has is chosen when the library is loaded;
`SOFTNIC_SIMD=scalar` (or `avx2`, `avx512`, `neon`) in the environment forces one, for tests and measurements, and is
an error where that one is not available.
"""

from __future__ import annotations

import os

from softnic._native import ffi, lib

VARIABLE = "SOFTNIC_SIMD"


def simd_available() -> tuple[str, ...]:
    """Names of the implementations that run on this machine, the reference first, the quickest last."""
    numbers = filter(lib.sn_simd_available, range(lib.SN_SIMD_NUMBERS))
    return tuple(ffi.string(lib.sn_simd_name(number)).decode() for number in numbers)


def simd() -> str:
    """The name of the implementation in use."""
    return str(ffi.string(lib.sn_simd_name(lib.sn_simd())).decode())


def simd_select(name: str) -> None:
    """Uses this implementation from now on, in the whole process. Raises ValueError where it is not available."""
    for number in range(lib.SN_SIMD_NUMBERS):
        if ffi.string(lib.sn_simd_name(number)).decode() == name and lib.sn_simd_select(number) == 0:
            return
    raise ValueError(f"{name!r} is no implementation of the codecs here; there are {', '.join(simd_available())}")


def select_from_environment() -> None:
    """Does as `SOFTNIC_SIMD` says, if it says anything. Raises ValueError naming it."""
    name = os.environ.get(VARIABLE)
    if name:
        try:
            simd_select(name)
        except ValueError as error:
            raise ValueError(f"{VARIABLE}: {error}") from None
