"""What is a buffer, and what is none: the one place that decides."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic import MPI
from softnic.collectives.elements import name_of, raw
from softnic.mpi.arguments import buffers, checks
from softnic.mpi.arguments.collective_args import pair
from tests import needs


class Tensor:
    """Like a torch CPU tensor: numpy views its memory through __array__, once it is detached from its graph."""

    def __init__(self, data: Any, grad: bool = True) -> None:
        self.data, self.grad = data, grad

    def detach(self) -> Tensor:
        return Tensor(self.data, grad=False)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.grad:
            raise RuntimeError("it requires grad")
        return self.data


class Copying:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros(4)


int16 = np.dtype(np.int16)
"""As torch has it: where a tensor's dtype comes from."""


class BFloat16:
    """Like torch.bfloat16."""

    def __str__(self) -> str:
        return "torch.bfloat16"


class HalfTensor(Tensor):
    """Like a torch CPU tensor of bfloat16, which numpy is refused, but not its bits as integers."""

    dtype = BFloat16()

    def detach(self) -> HalfTensor:
        return HalfTensor(self.data, grad=False)

    def view(self, dtype: Any) -> Tensor:
        assert dtype is int16
        return Tensor(self.data.view(np.int16), self.grad)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")


FLOATS = np.arange(6, dtype=np.float32)
SHORTS = np.arange(6, dtype=np.uint16)
GOOD: dict[str, tuple[Any, str, int]] = {
    "array": (FLOATS, "float32", 6),
    "matrix": (FLOATS.reshape(2, 3), "float32", 6),
    "transposed": (FLOATS.reshape(2, 3).T, "float32", 6),
    "scalar array": (np.zeros(()), "float64", 1),
    "slice": (FLOATS[2:5], "float32", 3),
    "bytearray": (bytearray(5), "uint8", 5),
    "array.array": (array.array("d", [1, 2]), "float64", 2),
    "ctypes": ((ctypes.c_int * 3)(), "int32", 3),
    "memoryview": (FLOATS.data, "float32", 6),
    "tensor": (Tensor(FLOATS), "float32", 6),
    "[data]": ([FLOATS], "float32", 6),
    "[data, count]": ([FLOATS, 4], "float32", 4),
    "[data, type]": ([FLOATS, MPI.FLOAT], "float32", 6),
    "[data, count, type]": ([FLOATS, 4, MPI.FLOAT], "float32", 4),
    "(data, count, type)": ((FLOATS, 4, "FLOAT"), "float32", 4),
    "[data, count, None]": ([FLOATS, 4, None], "float32", 4),
    "[data, (count, None)]": ([FLOATS, (4, None)], "float32", 4),
    "[data, [count, displacement]]": ([FLOATS, [2, 3]], "float32", 2),
    "[data, (None, displacement), type]": ([FLOATS, (None, 2), MPI.FLOAT], "float32", 4),
    "[data, count, displacement, type]": ([FLOATS, 2, 3, MPI.FLOAT], "float32", 2),
    "[data, count, None, type]": ([FLOATS, 2, None, MPI.FLOAT], "float32", 2),
    "[data, (count, displacement), type]": ([FLOATS, (2, 3), "f"], "float32", 2),
    "bytes as floats": ([bytearray(16), 3, MPI.FLOAT], "float32", 3),
    "floats as bytes": ([FLOATS, MPI.BYTE], "uint8", 24),
    "numpy counts": ([FLOATS, np.int64(2)], "float32", 2),
    "float16": (np.zeros(3, np.float16), "float16", 3),
    "[float16, type]": ([np.zeros(3, np.float16), MPI.FLOAT16], "float16", 3),
    "[data, 'e']": ([bytearray(8), "e"], "float16", 4),
    "bfloat16": (SHORTS.view(MPI.BFLOAT16.dtype), "bfloat16", 6),
    "[bfloat16, type]": ([SHORTS.view(MPI.BFLOAT16.dtype), 2, MPI.BFLOAT16], "bfloat16", 2),
    "[uint16, bfloat16]": ([SHORTS, MPI.BFLOAT16], "bfloat16", 6),
    "[int16, 'bfloat16']": ([SHORTS.view(np.int16), (2, 1), "bfloat16"], "bfloat16", 2),
    "bytes as bfloat16": ([bytearray(6), MPI.BFLOAT16], "bfloat16", 3),
    "bfloat16 as bytes": ([SHORTS.view(MPI.BFLOAT16.dtype), MPI.BYTE], "uint8", 12),
    "tensor of bfloat16": (HalfTensor(SHORTS), "bfloat16", 6),
    "floats as doubles": ([FLOATS, MPI.DOUBLE], "float64", 3),
    "bfloat16 as integers": ([SHORTS.view(MPI.BFLOAT16.dtype), "u2"], "uint16", 6),
    "dates as integers": ([np.zeros(2, "M8[s]"), MPI.INT64_T], "int64", 2),
    "other byte order as integers": ([np.zeros(2, ">f4"), MPI.INT], "int32", 2),
    "structures as floats": ([np.zeros(2, "f4,f4"), MPI.FLOAT], "float32", 4),
    "complex as pairs of doubles": ([np.zeros(2, complex), 4, MPI.DOUBLE], "float64", 4),
    "same size and kind": ([np.zeros(2, np.longlong), MPI.LONG], "int64", 2),
}


@pytest.mark.parametrize("what", GOOD)
def test_a_buffer_is_viewed_and_never_copied(what: str) -> None:
    spec, dtype, size = GOOD[what]
    flat = buffers.flat(spec, writable=True)
    assert (name_of(flat.dtype), flat.shape) == (dtype, (size,))
    assert raw(flat).nbytes == flat.nbytes
    before = raw(buffers.flat(spec)).tobytes()
    raw(flat)[0] ^= 1
    assert raw(buffers.flat(spec)).tobytes() != before  # the caller's memory changed
    raw(flat)[0] ^= 1


BAD: dict[str, tuple[Any, str]] = {
    "nothing": (None, "buf is missing"),
    "IN_PLACE": (MPI.IN_PLACE, "cannot be MPI.IN_PLACE"),
    "number": (5, "is a int"),
    "text": ("abc", "is a str"),
    "strided": (np.zeros(9)[::2], "not contiguous"),
    "copies": (Copying(), "copies of its memory only"),
    "objects": (np.zeros(2, object), "holds object"),
    "dates": (np.zeros(2, "M8[s]"), "holds datetime64"),
    "structures": (np.zeros(2, "f4,f4"), "a buffer holds"),
    "other byte order": (np.zeros(2, ">f4"), "another byte order"),
    "read-only": (b"abc", "read-only"),
    "empty list": ([], "list of 0"),
    "long list": ([FLOATS, 1, 0, MPI.FLOAT, 2], "list of 5"),
    "type before displacement": ([FLOATS, 1, MPI.FLOAT, 2], "names the datatype 2"),
    "no count in a pair": ([FLOATS, ("a", None)], "the count 'a': an integer"),
    "behind the end": ([FLOATS, (None, 7)], "6 elements, fewer than the 7"),
    "negative displacement": ([FLOATS, (1, -1)], "the displacement -1"),
    "None with a count": ([None, 3, MPI.BYTE], "is None, and its count is 3"),
    "None without a type": ([None, 0], "is None: a datatype is expected"),
    "too many": ([FLOATS, 7], "6 elements, fewer than the 7"),
    "displaced": ([FLOATS, (4, 3)], "fewer than the 7"),
    "negative": ([FLOATS, -1], "count -1"),
    "fraction": ([FLOATS, 1.5], "count 1.5"),
    "no type": ([FLOATS, 1, "no such"], "names the datatype 'no such'"),
    "object type": ([FLOATS, "O"], "names the datatype 'O'"),
    "not whole": ([bytearray(7), MPI.FLOAT], "no whole number of items of 4 bytes"),
}


ERRORS: dict[str, type[Exception]] = {
    "nothing": TypeError,
    "number": TypeError,
    "text": TypeError,
    "other byte order": BufferError,
    "read-only": BufferError,
    "type before displacement": KeyError,
    "no type": KeyError,
    "object type": KeyError,
}
"""mpi4py's errors, where it has others than ValueError."""


@pytest.mark.parametrize("what", BAD)
def test_everything_else_is_an_error_that_names_the_buffer(what: str) -> None:
    spec, says = BAD[what]
    error = ERRORS.get(what, ValueError)
    with pytest.raises(error, match=r"^['\"]?buf ") as caught:
        buffers.flat(spec, writable=True, what="buf")
    assert says in str(caught.value)


@pytest.mark.parametrize("spec", [[None, MPI.INT], [None, 0, MPI.INT], [None, (0, None), "i"], (None, 0, 0, "INT")])
def test_none_with_a_datatype_is_an_empty_buffer(spec: Any) -> None:
    flat = buffers.flat(spec, writable=True)
    assert (flat.dtype, flat.shape) == (np.dtype(np.intc), (0,))


def test_a_count_can_be_that_of_each_block() -> None:
    data = np.arange(10)
    assert buffers.flat([data, 2], blocks=3).tolist() == [0, 1, 2, 3, 4, 5]
    assert buffers.flat([data, 2, 3, MPI.LONG], blocks=3).tolist() == [3, 4, 5, 6, 7, 8]
    assert buffers.flat([data, MPI.LONG], blocks=3).size == 10
    with pytest.raises(ValueError, match=r"fewer than the 12 asked for \(4 for each of 3 ranks\)"):
        buffers.flat([data, 4], blocks=3)


def test_buffers_that_overlap() -> None:
    data = np.zeros(10)
    with pytest.raises(ValueError, match=r"use MPI\.IN_PLACE"):
        pair(data[:6], data[4:])
    source, result, _ = pair(data[:5], data[5:])
    assert source.size == result.size == 5
    for in_place in (MPI.IN_PLACE, None, data, [data, 10, MPI.DOUBLE]):
        source, result, _ = pair(in_place, data)
        assert source is result


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9))
def test_recvcounts(counts: list[int]) -> None:
    assert checks.counts_of(counts, len(counts)) == tuple(counts)
    assert checks.counts_of(np.array(counts), len(counts)) == tuple(counts)
    with pytest.raises(ValueError, match="recvcounts is"):
        checks.counts_of([*counts, -1], len(counts) + 1)


@pytest.mark.parametrize("counts", [5, None, "ab", [1.0, 2.0], [1]])
def test_no_recvcounts(counts: Any) -> None:
    with pytest.raises(ValueError, match="2 integers, 0 or more, are expected"):
        checks.counts_of(counts, 2)


def test_datatypes_know_their_size() -> None:
    assert MPI.DOUBLE.Get_size() == 8
    assert repr(MPI.FLOAT) == "MPI.FLOAT"
    assert repr(MPI.IN_PLACE) == "MPI.IN_PLACE"


@pytest.mark.slow
def test_what_other_packages_call_bfloat16() -> None:
    """numpy's name for a type that ml_dtypes adds to it; and torch itself, where it is installed."""
    ml_dtypes = needs.module("ml_dtypes")
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    assert buffers.flat(array).view(np.uint16).tolist() == array.view(np.uint16).tolist()


def test_tensors_of_bfloat16() -> None:
    torch = needs.module("torch")
    tensor = torch.arange(5, dtype=torch.bfloat16, requires_grad=True)
    flat = buffers.flat(tensor, writable=True)
    assert name_of(flat.dtype) == "bfloat16"
    flat.view(np.uint16)[0] = 0x3F80
    assert tensor[0] == 1.0


def test_a_rank_or_tag_may_be_a_float_without_a_fraction() -> None:
    """As in mpi4py, for programs that compute `comm.size / 2`."""
    comm: Any = MPI.COMM_SELF
    comm.isend("hello", 0 / 2, 4 / 2).Wait()
    assert comm.recv(source=np.float64(0), tag=2) == "hello"
    for dest, tag in ((0.5, 2), (0, 2.5), ("0", 2)):
        with pytest.raises(MPI.Exception, match=r"(dest|tag) is '?\d\.?5?'?: "):
            comm.send(None, dest, tag)
