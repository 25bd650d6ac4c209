"""All collectives of the process group on all types of tensors, compared with torch's arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _make_nccl_premul_sum

from softnic.torch.backend import SoftnicGroup
from tests.torch.groups import run

Tensor = torch.Tensor
SIZE = 3


def options(kind: Any, **values: Any) -> Any:
    """Return torch's options of a call."""
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def reducing(op: Any) -> Any:
    return options(dist.AllreduceOptions, reduceOp=op)


def own(rank: int, dtype: torch.dtype = torch.float32, count: int = 7) -> Tensor:
    """Return small integers that every type represents, different on each rank."""
    return ((torch.arange(count) * (rank + 1) + rank) % 5 + 1).to(dtype)


def of_all(dtype: torch.dtype = torch.float32, count: int = 7) -> Tensor:
    return torch.stack([own(rank, dtype, count) for rank in range(SIZE)])


NUMBERS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8]


@pytest.mark.parametrize("dtype", [*NUMBERS, torch.complex64], ids=str)
def test_sums(dtype: torch.dtype) -> None:
    def program(group: SoftnicGroup) -> Tensor:
        tensor = own(group.rank(), dtype)
        group.allreduce([tensor], reducing(dist.ReduceOp.SUM)).wait()
        return tensor

    for result in run(SIZE, program):
        assert torch.equal(result, of_all(dtype).sum(0).to(dtype))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_products_and_extremes(dtype: torch.dtype) -> None:
    def program(group: SoftnicGroup) -> list[Tensor]:
        found = []
        for op in (dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
            tensor = own(group.rank(), dtype)
            group.allreduce([tensor], reducing(op)).wait()
            found.append(tensor)
        return found

    every = of_all(dtype)
    for product, least, most in run(SIZE, program):
        assert torch.equal(product, every.prod(0).to(dtype))
        assert torch.equal(least, every.min(0).values)
        assert torch.equal(most, every.max(0).values)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_bitwise_operations(dtype: torch.dtype) -> None:
    def program(group: SoftnicGroup) -> list[Tensor]:
        found = []
        for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
            tensor = (own(group.rank()) % 4).to(dtype)
            group.allreduce([tensor], reducing(op)).wait()
            found.append(tensor)
        return found

    first, second, third = (of_all() % 4).to(dtype)
    for both, either, odd in run(SIZE, program):
        assert torch.equal(both, first & second & third)
        assert torch.equal(either, first | second | third)
        assert torch.equal(odd, first ^ second ^ third)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_means_and_premultiplied_sums(dtype: torch.dtype) -> None:
    def program(group: SoftnicGroup) -> tuple[Tensor, Tensor, Tensor]:
        mean, halved, by_tensor = own(group.rank(), dtype), own(group.rank(), dtype), own(group.rank(), dtype)
        group.allreduce([mean], reducing(dist.ReduceOp.AVG)).wait()
        group.allreduce([halved], reducing(_make_nccl_premul_sum(0.5))).wait()
        group.allreduce([by_tensor], reducing(_make_nccl_premul_sum(torch.tensor([2.0], dtype=dtype)))).wait()
        return mean, halved, by_tensor

    total = of_all(torch.float64).sum(0)
    for mean, halved, by_tensor in run(SIZE, program):
        assert torch.allclose(mean.double(), total / SIZE, rtol=torch.finfo(dtype).eps)
        assert torch.equal(halved, (total / 2).to(dtype))
        assert torch.equal(by_tensor, (total * 2).to(dtype))


INTEGERS = [
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64,
]  # fmt: skip


def nccl_mean(values: list[int], dtype: torch.dtype) -> int:
    """Return the sum modulo the type's range, divided and truncated toward zero, as NCCL.

    See FuncSumPostDiv::divide in its src/device/reduce_kernel.h.
    """
    bits = int(dtype.itemsize) * 8
    total = sum(values) % 2**bits
    if dtype.is_signed and total >= 2 ** (bits - 1):
        total -= 2**bits
    quotient: int = abs(total) // len(values)
    return quotient if total >= 0 else -quotient


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_means_of_integers_are_truncated_toward_zero(dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    least = -5 if dtype.is_signed else 0
    of_ranks = [[5, 0, least, limits.max, limits.min, 7], [2, 0, 0, 2, 0, 1], [1, 1, 0, 0, 0, limits.max]]

    def program(group: SoftnicGroup) -> list[list[int]]:
        given, average = torch.tensor(of_ranks[group.rank()], dtype=dtype), {"reduceOp": dist.ReduceOp.AVG}
        everywhere, at_root, part = given.clone(), given.clone(), given[:2].clone()
        group.allreduce([everywhere], options(dist.AllreduceOptions, **average)).wait()
        group.reduce([at_root], options(dist.ReduceOptions, rootRank=1, **average)).wait()
        group.reduce_scatter_single(part, given, options(dist.ReduceScatterOptions, **average)).wait()
        return [everywhere.tolist(), at_root.tolist(), part.tolist()]

    means = [nccl_mean(list(values), dtype) for values in zip(*of_ranks, strict=True)]
    results = run(SIZE, program)
    assert [result[0] for result in results] == [means] * SIZE
    assert results[1][1] == means
    assert [value for result in results for value in result[2]] == means


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_mean_overflows_only_if_it_exceeds_the_type(dtype: torch.dtype, size: int) -> None:
    largest = torch.finfo(dtype).max

    def program(group: SoftnicGroup) -> Tensor:
        tensor = torch.tensor([largest, -largest, 1.0], dtype=dtype)
        group.allreduce([tensor], reducing(dist.ReduceOp.AVG)).wait()
        return tensor

    for result in run(size, program):
        expected = torch.tensor([largest, -largest, 1.0], dtype=torch.float64)
        assert torch.allclose(result.double(), expected, rtol=torch.finfo(dtype).eps)


def strided(values: Tensor) -> Tensor:
    """Return a tensor with the same elements and a stride of two."""
    return torch.stack([values, torch.full_like(values, -1)], 1)[:, 0]


def test_strided_tensors_in_every_collective() -> None:
    def program(group: SoftnicGroup) -> list[Tensor]:
        rank = group.rank()
        summed, sent, scattered = strided(own(rank)), strided(own(rank)), strided(torch.zeros(7))
        group.allreduce([summed]).wait()
        group.broadcast([sent], options(dist.BroadcastOptions, rootRank=1)).wait()
        parts = [[strided(own(other) * 2) for other in range(SIZE)]] if rank == 2 else []
        group.scatter([scattered], parts, options(dist.ScatterOptions, rootRank=2)).wait()
        at_root = strided(own(rank))
        group.reduce([at_root], options(dist.ReduceOptions, rootRank=1)).wait()
        gathered = [strided(torch.zeros(7)) for _ in range(SIZE)]
        group.allgather([gathered], [strided(own(rank))]).wait()
        turned = own(rank, count=6).view(2, 3).t()
        group.allreduce([turned]).wait()
        return [summed, sent, scattered, at_root, torch.stack(gathered), turned]

    every = of_all()
    for rank, found in enumerate(run(SIZE, program)):
        summed, sent, scattered, at_root, gathered, turned = found
        assert torch.equal(summed, every.sum(0))
        assert torch.equal(sent, every[1])
        assert torch.equal(scattered, every[rank] * 2)
        assert torch.equal(at_root, every.sum(0) if rank == 1 else every[rank])
        assert torch.equal(gathered, every)
        assert torch.equal(turned, of_all(count=6).sum(0).view(2, 3).t())


def test_reduce_scatter_in_all_its_forms() -> None:
    def program(group: SoftnicGroup) -> list[Tensor]:
        rank = group.rank()
        listed, uneven, whole = torch.zeros(2), torch.zeros(rank + 1), torch.zeros(2)
        group.reduce_scatter([listed], [list(torch.split(own(rank, count=6), 2))]).wait()
        group.reduce_scatter([uneven], [list(torch.split(own(rank, count=6), [1, 2, 3]))]).wait()
        group.reduce_scatter_single(whole, strided(own(rank, count=6))).wait()
        first, second = torch.zeros(2), torch.zeros(1)
        both = [own(rank, count=6), own(rank, count=3)]
        group.reduce_scatter_single_coalesced([first, second], both).wait()
        bits = torch.zeros(2, dtype=torch.int64)
        every_bit = options(dist.ReduceScatterOptions, reduceOp=dist.ReduceOp.BOR)
        group.reduce_scatter_single(bits, own(rank, torch.int64, 6), every_bit).wait()
        return [listed, uneven, whole, first, second, bits]

    total = of_all(count=6).sum(0)
    one, two, three = of_all(torch.int64, 6)
    for rank, found in enumerate(run(SIZE, program)):
        part = slice(2 * rank, 2 * rank + 2)
        listed, uneven, whole, first, second, bits = found
        assert torch.equal(listed, total[part])
        assert torch.equal(uneven, torch.split(total, [1, 2, 3])[rank])
        assert torch.equal(whole, total[part])
        assert torch.equal(first, total[part])
        assert torch.equal(second, of_all(count=3).sum(0)[rank : rank + 1])
        assert torch.equal(bits, (one | two | three)[part])


def test_gathering_in_all_its_forms() -> None:
    def program(group: SoftnicGroup) -> list[Any]:
        rank = group.rank()
        whole, first, second = torch.zeros(SIZE, 7), torch.zeros(21), torch.zeros(9, dtype=torch.int64)
        group.all_gather_single(whole, own(rank)).wait()
        given = [own(rank), own(rank, torch.int64, 3)]
        group.all_gather_single_coalesced([first, second], given).wait()
        rows = [[torch.zeros(7), torch.zeros(3, dtype=torch.int64)] for _ in range(SIZE)]
        group.allgather_coalesced(rows, given).wait()
        at_root = [torch.zeros(7) for _ in range(SIZE)] if rank == 1 else []
        group.gather([at_root] if at_root else [], [own(rank)], options(dist.GatherOptions, rootRank=1)).wait()
        stacked, flat, empty = torch.zeros(SIZE, 7), torch.zeros(9, dtype=torch.int64), torch.zeros(SIZE, 0)
        unused = torch.full((2,), 3.0)
        to_root = options(dist.GatherOptions, rootRank=1, asyncOp=False)
        group.gather_single(stacked if rank == 1 else unused, strided(own(rank)), to_root).wait()
        group.gather_into_tensor(flat if rank == 0 else unused.new_empty(0), own(rank, torch.int64, 3)).wait()
        group.gather_single(empty, torch.zeros(0)).wait()
        assert unused.tolist() == [3.0, 3.0]
        return [whole, first, second, rows, at_root, stacked, flat]

    for rank, (whole, first, second, rows, at_root, stacked, flat) in enumerate(run(SIZE, program)):
        assert torch.equal(whole, of_all())
        assert torch.equal(first, of_all().flatten())
        assert torch.equal(second, of_all(torch.int64, 3).flatten())
        assert all(torch.equal(rows[other][0], own(other)) for other in range(SIZE))
        assert all(torch.equal(rows[other][1], own(other, torch.int64, 3)) for other in range(SIZE))
        assert rank != 1 or torch.equal(torch.stack(at_root), of_all())
        assert torch.equal(stacked, of_all() if rank == 1 else torch.zeros(SIZE, 7))
        assert torch.equal(flat, of_all(torch.int64, 3).flatten() if rank == 0 else flat.new_zeros(9))


def test_all_to_all() -> None:
    def program(group: SoftnicGroup) -> list[Any]:
        rank = group.rank()
        targets = [torch.zeros(2) for _ in range(SIZE)]
        group.alltoall(targets, [torch.full((2,), 10.0 * rank + to) for to in range(SIZE)]).wait()
        equal, given = torch.zeros(SIZE, 2), 10.0 * rank + torch.arange(SIZE)
        group.all_to_all_single(equal, given[:, None].expand(SIZE, 2)).wait()
        uneven = torch.zeros(SIZE * (rank + 1))
        parts = torch.cat([torch.full((to + 1,), 10.0 * rank + to) for to in range(SIZE)])
        group.all_to_all_single(uneven, parts, [rank + 1] * SIZE, [1, 2, 3]).wait()
        return [torch.stack(targets), equal, uneven]

    for rank, (targets, equal, uneven) in enumerate(run(SIZE, program)):
        column = 10.0 * torch.arange(SIZE) + rank
        assert torch.equal(targets, column[:, None].expand(SIZE, 2))
        assert torch.equal(equal, targets)
        assert torch.equal(uneven, column.repeat_interleave(rank + 1))


def test_several_tensors_are_reduced_by_type() -> None:
    def program(group: SoftnicGroup) -> list[Tensor]:
        tensors = [own(group.rank()), own(group.rank(), torch.int64), own(group.rank(), count=3).view(3, 1)]
        group.allreduce_coalesced(tensors).wait()
        return tensors

    for first, second, third in run(SIZE, program):
        assert torch.equal(first, of_all().sum(0))
        assert torch.equal(second, of_all(torch.int64).sum(0))
        assert torch.equal(third, of_all(count=3).sum(0).view(3, 1))


def test_types_without_arithmetic_are_moved_unchanged() -> None:
    def program(group: SoftnicGroup) -> Tensor:
        tensor = torch.full((5,), group.rank() + 1.0).to(torch.float8_e4m3fn)
        group.broadcast([tensor], options(dist.BroadcastOptions, rootRank=2)).wait()
        return tensor.float()

    assert all(torch.equal(result, torch.full((5,), 3.0)) for result in run(SIZE, program))


def test_empty_tensors_and_a_single_rank() -> None:
    def program(group: SoftnicGroup) -> Tensor:
        tensor, empty = own(0), torch.zeros(0)
        for each in (tensor, empty):
            group.allreduce([each], reducing(dist.ReduceOp.AVG)).wait()
            group.broadcast([each], options(dist.BroadcastOptions, rootRank=0)).wait()
        gathered = [torch.zeros(7) for _ in range(group.size())]
        group.allgather([gathered], [tensor]).wait()
        group.alltoall([torch.zeros(0)] * group.size(), [empty] * group.size()).wait()
        group.barrier().wait()
        return torch.stack(gathered)

    for size in (1, 2):
        for result in run(size, program):
            assert torch.equal(result, own(0).expand(size, 7))
