"""Codecs: float32 arrays to bytes and back as specified in FORMAT.md, without a network.

`get("bounded:10")` returns a codec. The kernels are in C (`native/`, one codec a file); this package is their numpy
interface, and `payload` the header under which a codec's bytes are sent. `simd()` names the kernels in use, which
`SOFTNIC_KERNELS` in the environment selects. `combine` has the reductions, alone and fused with codecs; `threads` the
number of threads used for large arrays.
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
