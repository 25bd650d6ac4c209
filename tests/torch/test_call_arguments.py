"""Arguments of process group calls: every form that torch's own groups take, and what is refused.

An invalid argument is an error of the rank that passed it, before anything is sent: the group goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, _make_nccl_premul_sum
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

from softnic.torch.backend import SoftnicGroup
from tests.torch.groups import run
from tests.torch.test_collectives import options, own, reducing, strided

Tensor = torch.Tensor
Call = Callable[[Any], Any]
"""Of a SoftnicGroup; with arguments of types that its annotations exclude, too."""
SIZE = 2
SOON = timedelta(seconds=20)


def floats(count: int = 4) -> Tensor:
    return torch.ones(count)


def lists(count: int = 4) -> list[Tensor]:
    return [torch.ones(count) for _ in range(SIZE)]


def with_root(kind: Any, root: int, **more: Any) -> Any:
    return options(kind, rootRank=root, **more)


# -- what is refused -------------------------------------------------------------------------------------------------


def quiet(make: Callable[[], Tensor]) -> Tensor:
    """Return a tensor of a kind that torch warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def nested() -> Tensor:
    return quiet(lambda: torch.nested.nested_tensor([floats(), floats(3)]))


def quantized() -> Tensor:
    return quiet(lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8))


ROOTS: list[Call] = [
    lambda group: group.broadcast([floats()], with_root(dist.BroadcastOptions, 8)),
    lambda group: group.broadcast(floats(), 2),
    lambda group: group.broadcast(floats(), -1),
    lambda group: group.broadcast(floats(), root=2),
    lambda group: group.reduce([floats()], with_root(dist.ReduceOptions, 2)),
    lambda group: group.reduce(floats(), -1),
    lambda group: group.reduce(floats(), 2, dist.ReduceOp.MAX),
    lambda group: group.gather([lists()], [floats()], with_root(dist.GatherOptions, 2)),
    lambda group: group.gather([], [floats()], with_root(dist.GatherOptions, 2)),
    lambda group: group.gather(lists(), floats(), -1),
    lambda group: group.gather_single(floats(8), floats(), with_root(dist.GatherOptions, 2)),
    lambda group: group.scatter([floats()], [lists()], with_root(dist.ScatterOptions, 2)),
    lambda group: group.scatter(floats(), lists(), -1),
    lambda group: group.broadcast([floats()], with_root(dist.BroadcastOptions, 0, rootTensor=1)),
    lambda group: group.reduce([floats()], with_root(dist.ReduceOptions, 0, rootTensor=1)),
]
PEERS: list[Call] = [
    lambda group: group.send([floats()], 2),
    lambda group: group.send([floats()], -1),
    lambda group: group.recv([floats()], 2),
    lambda group: group.send([floats()], 1, -1),
    lambda group: group.recv([floats()], 1, 1 << 30),
    lambda group: group.recv_anysource([floats()], -5),
]
LENGTHS: list[Call] = [
    lambda group: group.allreduce([]),
    lambda group: group.allreduce_coalesced([]),
    lambda group: group.broadcast([], 0),
    lambda group: group.allgather([lists() + lists()], [floats()]),
    lambda group: group.allgather([lists(3)], [floats()]),
    lambda group: group.allgather_coalesced([[floats()], []], [floats()]),
    lambda group: group.allgather_coalesced([[floats()] * 2] * 2, [floats()]),
    lambda group: group.allgather_coalesced([[floats()]], [floats()]),
    lambda group: group.all_gather_single(floats(7), floats()),
    lambda group: group.gather_single(floats(7), floats(), with_root(dist.GatherOptions, group.rank())),
    lambda group: group.gather_single(floats(0), floats(), with_root(dist.GatherOptions, group.rank())),
    lambda group: group.gather_single(floats(16)[::2], floats(), with_root(dist.GatherOptions, group.rank())),
    lambda group: group.all_gather_single_coalesced([floats(8)] * 2, [floats()]),
    lambda group: group.allgather_coalesced([[], []], []),
    lambda group: group.all_gather_single_coalesced([], []),
    lambda group: group.reduce_scatter_single_coalesced([], []),
    lambda group: group.reduce_scatter([floats()], [lists(3)]),
    lambda group: group.reduce_scatter([floats()], [lists() + lists()]),
    lambda group: group.reduce_scatter_single(floats(), floats()),
    lambda group: group.reduce_scatter_single_coalesced([floats()], [floats(8)] * 2),
    lambda group: group.alltoall(lists(), lists()[:1]),
    lambda group: group.alltoall(lists(3), lists()),
    lambda group: group.all_to_all_single(floats(5), floats()),
    lambda group: group.all_to_all_single(floats(), floats(), [1, 3], [2, 2]),
    lambda group: group.all_to_all_single(floats(), floats(), [-1, 5], [2, 2]),
    lambda group: group.all_to_all_single(torch.ones(2, 3), torch.ones(2, 4)),
]
"""In the last three both ranks have the same lengths, of which the part for themselves differs."""
TYPES: list[Call] = [
    lambda group: group.allreduce([floats(), 3]),
    lambda group: group.allreduce([3]),
    lambda group: group.allreduce(3),
    lambda group: group.allreduce([floats().to_sparse()] * 2),
    lambda group: group.broadcast([floats().to_sparse()], 0),
    lambda group: group.broadcast([torch.ones(4, device="meta")], 0),
    lambda group: group.broadcast([nested()], 0),
    lambda group: group.broadcast([floats()], 1.5),
    lambda group: group.send([floats()], "0"),
    lambda group: group.allgather([[floats(), floats().double()]], [floats()]),
    lambda group: group.reduce_scatter([floats()], [[floats(), floats().double()]]),
    lambda group: group.reduce_scatter([floats()], [[floats().double(), floats()]]),
    lambda group: group.alltoall(lists(), [floats().int(), floats().int()]),
    lambda group: group.all_to_all_single(floats(), floats().int()),
    lambda group: group.broadcast([floats()], 0, 5.0),
]
OPERATIONS: list[Call] = [
    lambda group: group.allreduce([floats().bool()], reducing(dist.ReduceOp.AVG)),
    lambda group: group.allreduce([floats().long()], reducing(_make_nccl_premul_sum(0.5))),
    lambda group: group.allreduce([floats()], dist.ReduceOp.BAND),
    lambda group: group.reduce(floats(), 0, dist.ReduceOp.BXOR),
    lambda group: group.reduce_scatter(floats(), lists(), dist.ReduceOp.BOR),
    lambda group: group.allreduce([floats().to(torch.complex64)], reducing(dist.ReduceOp.MAX)),
    lambda group: group.allreduce([floats().to(torch.float8_e4m3fn)]),
    lambda group: group.allreduce([floats().to_sparse()], reducing(dist.ReduceOp.MAX)),
]
TARGETS: list[Call] = [
    lambda group: group.allreduce([torch.ones(1).expand(4)]),
    lambda group: group.broadcast([torch.ones(1).expand(4)], 1 - group.rank()),
    lambda group: group.recv([torch.ones(1).expand(4)], 1),
    lambda group: group.allgather([[floats(), torch.ones(1).expand(4)]], [floats()]),
    lambda group: group.alltoall([torch.ones(1).expand(4)] * 2, lists()),
]


QUANTIZED: list[Call] = [
    lambda group: group.allreduce([quantized()]),
    lambda group: group.reduce([quantized()], 0),
    lambda group: group.broadcast([quantized()], 0),
    lambda group: group.allgather([[quantized(), quantized()]], [quantized()]),
    lambda group: group.reduce_scatter([quantized()], [[quantized(), quantized()]]),
    lambda group: group.all_gather_single(floats(8), quantized()),
    lambda group: group.alltoall([quantized()] * 2, [quantized()] * 2),
    lambda group: group.all_to_all_single(quantized(), quantized()),
    lambda group: group.gather([], [quantized()], 0),
    lambda group: group.gather_single(floats(8), quantized()),
    lambda group: group.scatter([quantized()], [], 1 - group.rank()),
    lambda group: group.send([quantized()], 1),
    lambda group: group.recv([quantized()], 1),
]
REFUSED: list[tuple[str, list[Call], type[Exception]]] = [
    ("roots", ROOTS, ValueError),
    ("peers and tags", PEERS, ValueError),
    ("lengths", LENGTHS, ValueError),
    ("types", TYPES, TypeError),
    ("operations", OPERATIONS, ValueError),
    ("targets", TARGETS, ValueError),
    ("quantized", QUANTIZED, NotImplementedError),
]


@pytest.mark.parametrize(("calls", "error"), [pytest.param(*rest, id=name) for name, *rest in REFUSED])
def test_an_invalid_argument_is_an_error_of_this_rank_alone(calls: list[Call], error: type[Exception]) -> None:
    def program(group: SoftnicGroup) -> tuple[list[tuple[int, str]], float]:
        other = []
        for index, call in enumerate(calls if group.rank() == 0 else []):
            try:
                call(group)
                other.append((index, "accepted"))
            except error:
                pass
            except Exception as found:
                other.append((index, repr(found)))
        after = floats(1)
        group.allreduce([after]).wait(SOON)
        return other, after.item()

    assert run(SIZE, program) == [([], 2.0)] * SIZE


def test_a_distributed_tensor_is_refused() -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        given = DTensor.from_local(floats(), init_device_mesh("cpu", (1,)), [Replicate()])
    finally:
        dist.destroy_process_group()

    def program(group: SoftnicGroup) -> None:
        with pytest.raises(TypeError, match="to_local"):
            group.allreduce([given])

    run(1, program)


# -- forms -----------------------------------------------------------------------------------------------------------


def summed(root: int, rank: int) -> Tensor:
    """Return what a reduction to a root leaves on a rank."""
    return own(0) + own(1) if rank == root else own(rank)


def test_calls_without_options_take_the_defaults_of_torch() -> None:
    """SUM, rank 0 as the root, and no tag, as of `pg.allreduce([tensor])` on a group of Gloo."""

    def program(group: SoftnicGroup) -> None:
        rank = group.rank()
        total = own(0) + own(1)
        for call in (group.allreduce, group.allreduce_coalesced):
            for given in ([own(rank)], [own(rank)], own(rank)):
                call(given, *([None] if isinstance(given, Tensor) else [])).wait()
                assert torch.equal(given if isinstance(given, Tensor) else given[0], total)
        sent, reduced = own(rank), own(rank)
        group.broadcast([sent]).wait()
        group.reduce([reduced]).wait()
        assert torch.equal(sent, own(0))
        assert torch.equal(reduced, summed(0, rank))
        gathered: list[Tensor] = lists(7) if rank == 0 else []
        group.gather([gathered] if gathered else [], [own(rank)]).wait()
        assert rank or torch.equal(torch.stack(gathered), torch.stack([own(0), own(1)]))
        part = floats(7)
        group.scatter([part], [[own(3), own(4)]] if rank == 0 else []).wait()
        assert torch.equal(part, own(3 + rank))
        group.barrier().wait()
        other = floats(7)
        works = [group.recv([other], 1 - rank), group.send([own(rank)], 1 - rank)]
        for work in works:
            work.wait()
        assert torch.equal(other, own(1 - rank))

    run(SIZE, program)


def test_a_root_an_operation_or_a_timeout_may_stand_for_options() -> None:
    """As torch's bindings have it: `reduce(tensor, root, op, timeout)`, `barrier(timeout)` and so on."""

    def program(group: SoftnicGroup) -> None:
        rank, most = group.rank(), torch.maximum(own(0), own(1))
        for arguments, expected in (
            ((1,), own(0) + own(1)),
            ((1, dist.ReduceOp.MAX), most),
            ((1, dist.ReduceOp.MAX, SOON), most),
            ((with_root(dist.ReduceOptions, 1, reduceOp=dist.ReduceOp.MAX),), most),
        ):
            reduced = own(rank)
            group.reduce(reduced, *arguments).wait()
            assert torch.equal(reduced, expected if rank == 1 else own(0))
        named = own(rank)
        group.reduce(named, root=1, op=dist.ReduceOp.MAX).wait()
        assert torch.equal(named, most if rank == 1 else own(0))
        forms: list[tuple[Any, ...]] = [(dist.ReduceOp.MAX,), (dist.ReduceOp.MAX, SOON)]
        for how in forms:
            everywhere, part = own(rank), floats(1)
            group.allreduce(everywhere, *how).wait()
            group.reduce_scatter(part, list(torch.split(own(rank)[:2], 1)), *how).wait()
            assert torch.equal(everywhere, most)
            assert torch.equal(part, most[rank : rank + 1])
        group.allreduce(everywhere, op=dist.ReduceOp.MAX, timeout=SOON).wait()
        sent, gathered, single = own(rank), lists(7), floats(SIZE)
        group.broadcast(sent, 1, SOON).wait()
        group.broadcast(sent, root=1).wait()
        assert torch.equal(sent, own(1))
        group.allgather(gathered, own(rank), SOON).wait()
        assert torch.equal(torch.stack(gathered), torch.stack([own(0), own(1)]))
        group.gather(lists(7) if rank else [], own(rank), 1, SOON).wait()
        group.scatter(floats(7), lists(7) if rank else [], root=1).wait()
        group.all_to_all_single(single, own(rank, count=SIZE), [], [], SOON).wait()
        group.alltoall(lists(), lists(), SOON).wait()
        group.barrier(SOON).wait()

    run(SIZE, program)


def test_a_timeout_in_place_of_options_applies() -> None:
    def program(group: SoftnicGroup) -> str:
        if group.rank():
            return ""
        with pytest.raises(dist.DistBackendError) as caught:
            group.barrier(timedelta(milliseconds=50)).wait()
        return str(caught.value)

    assert "timeout of 0.05 s" in run(SIZE, program)[0]


def test_a_rank_keeps_its_own_part_of_any_shape_and_stride() -> None:
    def program(group: SoftnicGroup) -> Tensor:
        targets = [torch.zeros(2, 3), torch.zeros(2, 3)]
        group.alltoall(targets, [strided(own(group.rank(), count=6)) for _ in range(SIZE)]).wait()
        return torch.stack(targets)

    for found in run(SIZE, program):
        assert torch.equal(found, torch.stack([own(rank, count=6).view(2, 3) for rank in range(SIZE)]))


# -- autograd --------------------------------------------------------------------------------------------------------


def test_results_do_not_count_as_in_place_changes() -> None:
    """As of torch's backends, so that back-propagation may need what a collective has filled, also through views."""

    def program(group: SoftnicGroup) -> list[int]:
        rank, other = group.rank(), 1 - group.rank()
        one, two, six = floats(), floats(), floats(6)
        base = floats(8)
        view, turned = base[2:6], torch.ones(2, 2).t()
        mixed = [floats(), floats().long(), floats().bfloat16()]
        listed, single, rows = lists(), floats(8), [[floats(), floats(2)] for _ in range(SIZE)]
        part, uneven, pair, parts = floats(), floats(), floats(), lists()
        got, exchanged, gathered, spread = floats(), floats(), lists(), floats()
        works = [
            group.allreduce([one]),
            group.allreduce([two], reducing(dist.ReduceOp.AVG)),
            group.allreduce([six.long()], reducing(dist.ReduceOp.BOR)),
            group.allreduce([view]),
            group.allreduce([turned]),
            group.allreduce_coalesced(mixed),
            group.reduce([pair], rank and 0),
            group.broadcast([two], 1),
            group.allgather([listed], [floats()]),
            group.all_gather_single(single, floats()),
            group.allgather_coalesced(rows, [floats(), floats(2)]),
            group.reduce_scatter([uneven], [lists()]),
            group.reduce_scatter_single(part, floats(8)),
            group.alltoall(parts, lists()),
            group.all_to_all_single(exchanged, floats()),
            group.gather([gathered] if rank == 0 else [], [floats()], 0),
            group.scatter([spread], [lists()] if rank == 0 else [], 0),
            group.recv([got], other),
            group.send([floats()], other),
        ]
        for work in works:
            work.wait()
        late = options(dist.AllreduceOptions, asyncOp=False)  # by the caller's own thread
        group.allreduce([one], late).wait()
        filled = [one, two, view, base, turned, *mixed, pair, *listed, single, *(each for row in rows for each in row)]
        filled += [uneven, part, *parts, exchanged, *gathered, spread, got]
        return [tensor._version for tensor in filled]

    for versions in run(SIZE, program):
        assert not any(versions)


def test_back_propagation_may_need_what_a_collective_has_filled() -> None:
    def program(group: SoftnicGroup) -> list[Any]:
        weight = torch.full((3,), group.rank() + 1.0, requires_grad=True)
        norm = weight.norm()
        group.allreduce([norm.detach()]).wait()
        activation = weight.exp()
        group.allreduce([activation.detach()]).wait()
        (norm * activation.sum()).backward()
        assert weight.grad is not None
        return [norm.item(), bool(weight.grad.isfinite().all())]

    norms = sum((torch.full((3,), rank + 1.0).norm() for rank in range(SIZE)), torch.zeros(()))
    assert run(SIZE, program) == [[pytest.approx(norms.item()), True]] * SIZE
