"""Registered memory as a program sees it, without a NIC."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import softnic
from softnic.ipc import regions as memory
from tests import needs


def regions() -> int:
    """Memfds of ours that this process maps."""
    gc.collect()
    return len(set(re.findall(r"(\d+) +/memfd:softnic", Path("/proc/self/maps").read_text())))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "complex128", "bool"])
@pytest.mark.parametrize("shape", [5, (3, 4), [2, 3, 4], np.int64(7), ()])
def test_arrays_are_like_any_other(shape: Any, dtype: str) -> None:
    array, usual = softnic.empty(shape, dtype), np.zeros(shape, dtype)
    assert (array.shape, array.dtype, array.strides) == (usual.shape, usual.dtype, usual.strides)
    assert array.flags.writeable
    assert array.flags.c_contiguous
    array[...] = 1
    assert array.sum() == usual.size
    assert (softnic.zeros(shape, dtype) == usual).all()


def test_views_are_registered_and_copies_are_not() -> None:
    array = softnic.empty((10, 10))
    for view in (array, array[3:], array[::2, 5], array.T, array[::-1, ::-1], array.view(np.uint8), array[9, 9:]):
        assert softnic.is_registered(view)
    for other in (array.copy(), np.zeros(3), b"bytes", array[:0], array + 1):
        assert not softnic.is_registered(other)


def test_a_place_is_where_the_bytes_are() -> None:
    array = softnic.empty(100, np.uint8)
    array[:] = np.arange(100)
    place = memory.find(array[40:50].data)
    assert place is not None
    assert os.pread(place.region.fd, 10, place.offset) == bytes(range(40, 50))


def test_what_is_freed_is_given_back() -> None:
    before, open_before = regions(), descriptors()
    arrays = [softnic.empty(1000) for _ in range(20)]
    assert (regions(), descriptors()) == (before + 20, open_before + 20 + 20)  # mmap keeps one of its own
    rest = arrays[7][500:]
    del arrays
    assert regions() == before + 1
    assert softnic.is_registered(rest)
    del rest
    assert (regions(), descriptors()) == (before, open_before)


def test_the_seals_hold() -> None:
    array = softnic.empty(100_000)
    place = memory.find(array.view(np.uint8).data)
    assert place is not None
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(place.region.fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(place.region.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


@pytest.mark.parametrize("wrong", [-1, (3, -2), "12", 2.5, (1, None)])
def test_what_is_no_shape(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        softnic.empty(wrong)


def test_what_cannot_be_there() -> None:
    with pytest.raises(ValueError, match="numbers"):
        softnic.empty(3, object)
    with pytest.raises(OSError, match=r"memory|large"):
        softnic.empty(1 << 60)
    empty = softnic.empty((0, 5))
    assert (empty.shape, softnic.is_registered(empty)) == ((0, 5), False)


def test_torch_tensors_over_it_are_registered() -> None:
    torch = needs.module("torch")
    array = softnic.empty(100)
    tensor = torch.from_numpy(array)
    del array
    assert softnic.is_registered(tensor[10:20].numpy())


def test_a_forked_child_shares_it() -> None:
    program = """
import os, softnic
array = softnic.zeros(10)
child = os.fork()
if not child:
    array[3] = 7
    own = softnic.zeros(5)
    os._exit(softnic.is_registered(array) + 2 * softnic.is_registered(own))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert array[3] == 7
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
