"""Codecs on a GPU, by Triton: tensors are encoded and decoded where they are, to the bytes of native/codecs.

Triton comes with every build of torch for CUDA and ROCm, and is imported only with the modules of this package.
codec.py and exact_codec.py are what others use.

Most codecs share their kernels (kernels.py), which work on tiles of whole blocks (tiles.py) and pack codes into bytes
(packing.py); the file of each codec computes codes of floats and floats of codes. A body whose blocks are not all of
one size is put together on the GPU (bodies.py), and taken apart by the host. Blocks of exact are of any size, and its
kernels its own (exact.py).
"""
