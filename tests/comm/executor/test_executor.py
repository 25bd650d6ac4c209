"""Collectives in virtual time, held against numpy, and codecs' roundings by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from softnic import codecs
from softnic.codecs.combine import BFLOAT16, narrow
from softnic.comm import schedule
from softnic.comm.operations import MAX, MIN, PROD, SUM

from .group import LOSSY, Group

Array = npt.NDArray[Any]
CODECS = ("inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "auto:bounded:8")
COMBINING = [key for key in itertools.product(("allreduce", "reduce", "reduce_scatter"), schedule.ALGORITHMS)]


def contributions(size: int, count: int, dtype: str = "float32", seed: int = 1) -> list[Array]:
    rng = np.random.default_rng(seed)
    if dtype == "bfloat16":
        return [narrow(array, np.empty(count, BFLOAT16)) for array in contributions(size, count, seed=seed)]
    if np.dtype(dtype).kind == "f":
        return [(rng.standard_normal(count) * 0.1).astype(dtype) for _ in range(size)]
    return [rng.integers(0, 100, count).astype(dtype) for _ in range(size)]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("size", range(1, 10))
@pytest.mark.parametrize("count", [0, 1, 7, 1000, 100_003])
def test_allreduce(size: int, count: int, in_place: bool) -> None:
    sources = contributions(size, count, "int64")
    results = Group(size).collective("allreduce", sources, in_place=in_place, op="SUM")
    expected = np.sum(sources, axis=0, dtype=np.int64)
    for result in results:
        assert np.array_equal(result, expected)


@pytest.mark.parametrize("op", [SUM, PROD, MIN, MAX], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "complex128"])
def test_operations_and_element_types(op: Any, dtype: str) -> None:
    if op in (MIN, MAX) and dtype == "complex128":
        pytest.skip("complex numbers have no order")
    sources = contributions(3, 50_001, dtype)
    results = Group(3).collective("allreduce", sources, op=op.name)
    for block, owner in zip(schedule.partition(50_001, 3), (2, 0, 1), strict=True):
        expected = sources[(owner + 1) % 3][block]
        for rank in ((owner + 2) % 3, owner):
            before, expected = expected, np.empty_like(expected)
            op.combine(before, sources[rank][block], expected)
        for result in results:
            assert result[block].tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", range(1, 10))
@pytest.mark.parametrize("collective", ["reduce_scatter", "reduce", "allgather", "bcast"])
def test_other_collectives(size: int, collective: str) -> None:
    count, root = 20_011, size // 2
    sources = contributions(size, count, "int32")
    total: Array = np.add.reduce(np.stack(sources))
    blocks = schedule.partition(count, size)
    fields: dict[str, Any] = {"op": "SUM"} if collective.startswith("reduce") else {}
    if collective in ("reduce", "bcast"):
        fields["root"] = root
    results = Group(size).collective(collective, sources, **fields)
    if collective == "reduce":
        assert np.array_equal(results[root], total)
    for rank, result in enumerate(results):
        if collective == "reduce_scatter":
            assert np.array_equal(result[blocks[rank]], total[blocks[rank]])
        elif collective == "allgather":
            assert np.array_equal(result, np.concatenate([sources[r][b] for r, b in enumerate(blocks)]))
        elif collective == "bcast":
            assert np.array_equal(result, sources[root])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("count", [5, 4_999, 200_003])
def test_allreduce_rounds_every_partial_sum(codec: str, size: int, count: int) -> None:
    sources = contributions(size, count)
    results = Group(size).collective("allreduce", sources, op="SUM", codec=codec, call="Iallreduce_comp")
    rounded = codecs.get(codec).roundtrip
    for index, block in enumerate(schedule.partition(count, size)):
        partial = sources[index][block]
        for step in range(1, size):
            partial = rounded(partial) + sources[(index + step) % size][block]
        for result in results:
            assert result[block].tobytes() == rounded(partial).tobytes()


@pytest.mark.parametrize("codec", CODECS)
def test_other_collectives_compressed(codec: str) -> None:
    size, count = 4, 30_001
    sources, blocks = contributions(size, count), schedule.partition(count, size)
    rounded = codecs.get(codec).roundtrip
    group = Group(size)
    for result in group.collective("allgather", sources, codec=codec):
        for rank, block in enumerate(blocks):
            assert result[block].tobytes() == rounded(sources[rank][block]).tobytes()
    for result in group.collective("bcast", sources, root=2, codec=codec):
        assert result.tobytes() == rounded(sources[2]).tobytes()
    reduced = group.collective("reduce", sources, root=1, op="SUM", codec=codec)[1]
    assert reduced.tobytes() == group.collective("allreduce", sources, op="SUM", codec=codec)[3].tobytes()
    scattered = group.collective("reduce_scatter", sources, op="SUM", codec=codec)
    for rank, block in enumerate(blocks):
        assert rounded(scattered[rank][block]).shape == scattered[rank][block].shape
        partial = sources[(rank + 1) % size][block]
        for step in range(2, size + 1):
            partial = rounded(partial) + sources[(rank + step) % size][block]
        assert scattered[rank][block].tobytes() == partial.tobytes()


@pytest.mark.parametrize("seed", range(12))
def test_bad_links_change_no_bit(seed: int) -> None:
    size, count = 2 + seed % 4, 30_000 + seed
    codec = ("", *CODECS)[seed % 6]
    sources = contributions(size, count, seed=seed)
    for in_place in (False, True):
        clean = Group(size).collective("allreduce", sources, op="SUM", codec=codec)
        bad = Group(size, seed=seed, link=LOSSY).collective(
            "allreduce", sources, in_place=in_place, op="SUM", codec=codec
        )
        for result in bad:
            assert result.tobytes() == clean[0].tobytes()
