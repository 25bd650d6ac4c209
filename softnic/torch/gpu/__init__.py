"""Codecs on a GPU, by Triton: tensors are encoded and decoded where they are, to the bytes of native/codecs.

Triton comes with every build of torch for CUDA and ROCm, and is imported only with the modules of this package.
codec.py is what others use; packing.py and the file of each codec have the kernels, which work on tiles of whole
blocks. A body whose blocks are not all of one size is put together on the GPU (bodies.py), and taken apart by the host.
"""
