"""Codecs on a GPU, by Triton: tensors are encoded and decoded where they are, to the bytes of native/codecs.

Triton comes with every build of torch for CUDA and ROCm, and is imported only with the modules of this package.
codec.py is what others use. The file of each codec has its kernels, which work on tiles of whole blocks (tiles.py) and
pack codes into bytes (packing.py). A body whose blocks are not all of one size is put together on the GPU (bodies.py),
and taken apart by the host.
"""
