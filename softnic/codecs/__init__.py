"""Codecs: float32 arrays to bytes and back, as FORMAT.md says, without a network.

`get("bounded:10")` gives a codec. Kernels are C (`native/`, one codec a file); this package is their numpy face
and `payload` the header that a codec's bytes travel under. `simd()` tells which kernels are in use, `SOFTNIC_SIMD` in
the environment forces others. `combine` has the reductions, alone and fused with codecs; `threads` says how many
threads large arrays are worked on by.
"""

from softnic.codecs import kernels, threads
from softnic.codecs.kernels import simd, simd_available
from softnic.codecs.registry import BUILT_IN, Codec, CodecError, DecodeError, from_number, get, names

kernels.select_from_environment()
threads.select_from_environment()

__all__ = [
    "BUILT_IN",
    "Codec",
    "CodecError",
    "DecodeError",
    "from_number",
    "get",
    "names",
    "simd",
    "simd_available",
]
