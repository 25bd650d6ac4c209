"""The process group: torch's collective calls as parts of softnic's (parts.py).

Where releases of torch differ, a call has its old name and its new one. Arguments are checked in the caller's thread:
what is wrong with them is a ValueError or TypeError of this rank alone. What fails on the way is a DistBackendError,
which names the rank at fault; it ends the group on every rank.
"""

# Every release of torch describes these calls otherwise, and each takes them in several forms.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from softnic import MPI
from softnic.comm import Communicator, Store, init_communicator
from softnic.comm.request import Request
from softnic.torch.arguments import (
    OWN_TAG,
    Tensor,
    Tensors,
    alike,
    by_type,
    listed,
    one_each,
    peer,
    reduce_op,
    root_of,
    rows,
    seconds,
    single,
    split,
    user_tag,
)
from softnic.torch.compression import EXACT, Compression
from softnic.torch.engine import Engine
from softnic.torch.identity import Identity
from softnic.torch.parts import Exchanged, Executed, Letter, Local, Part
from softnic.torch.reduction import Reduction, reduction_of
from softnic.torch.sparse import SparseSum, count_of
from softnic.torch.staging import Placed, Stage, placed
from softnic.torch.work import Work


class SoftnicGroup(Identity):
    """Over a communicator that is the group's own from now on. `timeout` is for every call that names none; in `store`
    the group's ranks find each other again."""

    def __init__(
        self,
        comm: Communicator,
        name: str = "world",
        timeout: timedelta = dist.default_pg_timeout,
        store: Store | None = None,
    ) -> None:
        super().__init__(comm, name)
        self.compression: Compression = EXACT
        self._store = store
        self._communicator: Communicator | None = None
        self._timeout_s = timeout.total_seconds()
        self._engine = Engine(comm, f"group {name}")

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def abort(self) -> None:
        """Ends the group on all ranks: what is in progress fails."""
        self._engine.abort(f"rank {self._rank} aborted the group")
        self._engine.close()

    def shutdown(self) -> None:
        """Leaves the group, once what is in progress is over."""
        self._engine.close()
        if self._communicator is not None:
            self._communicator.Free()
        self._store = None

    def communicator(self) -> Communicator:
        """Of the same ranks, for calls beside torch's. Made when all ranks ask for it first; it ends with the group."""
        if self._communicator is None:
            if self._store is None:
                raise ValueError("the group was destroyed, or made without a store in which its ranks can meet")
            self._communicator = init_communicator(self._store, self._rank, self._size, name="communicator")
        return self._communicator

    def _submit(self, call: str, parts: Sequence[Part], outputs: Sequence[Any], opts: Any, timeout: Any = None) -> Work:
        return self._engine.submit(call, parts, outputs, seconds(opts, timeout, self._timeout_s))

    # -- reductions --------------------------------------------------------------------------------------------------

    def allreduce(self, tensors: Tensor | Tensors, opts: Any = None, timeout: Any = None) -> Work:
        """Several tensors of a type travel as one."""
        if isinstance(found := tensors if isinstance(tensors, Tensor) else tensors[0], Tensor) and found.is_sparse:
            return self._sparse_summed(found, reduce_op(opts), opts, timeout)
        tensors = listed(tensors)
        parts = []
        for group in by_type(tensors):
            count = sum(tensor.numel() for tensor in group)
            parts.append(self._all_reduced(group, *self._reduction(reduce_op(opts), group[0].dtype, count)))
        return self._submit("all_reduce", parts, tensors, opts, timeout)

    allreduce_coalesced = allreduce

    def sum_by_codec(self, tensors: Mapping[str | None, list[Tensor]], output: Tensor) -> Work:
        """Sums of tensors of one type, in place: each list by the codec that it is for, None exactly, whatever the
        group's own compression is. All ranks name the same in the same order. The Work's output is `output`."""
        parts = []
        for codec, group in tensors.items():
            reduction = reduction_of(dist.ReduceOp.SUM, group[0].dtype, self._size, compressed=codec is not None)
            parts.append(self._all_reduced(group, reduction, codec))
        return self._submit("all_reduce", parts, [output], None)

    def _all_reduced(self, tensors: list[Tensor], reduction: Reduction, codec: str | None) -> Part:
        count, places = sum(tensor.numel() for tensor in tensors), placed(tensors)

        def post(comm: Communicator, stage: Stage, op: MPI.Op | None) -> Request:
            if codec is None:
                return comm.Iallreduce(MPI.IN_PLACE, stage.flat, op)
            return comm.Iallreduce_comp(MPI.IN_PLACE, stage.flat, op, codec=codec)

        return self._reduced(reduction, count, tensors[0].dtype, post, places, places)

    def _sparse_summed(self, tensor: Tensor, op: Any, opts: Any, timeout: Any) -> Work:
        """Waits for the number of elements that each rank has."""
        if getattr(op, "op", op) != dist.ReduceOp.SUM:
            raise ValueError("sparse tensors can be summed only")
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self._size)]
        self.allgather([counts], [count_of(tensor)], opts).wait()
        parts: list[Part] = []

        def gather(given: Tensor) -> list[Tensor]:
            targets = [torch.empty_like(given) for _ in range(self._size)]
            parts.append(self._gathered(targets, given))
            return targets

        total = SparseSum(tensor, [int(count) for count in counts], gather)
        return self._submit("all_reduce", [*parts, Local(total.finish)], [tensor], opts, timeout)

    def reduce(self, tensors: Tensor | Tensors, opts: Any, op: Any = None, timeout: Any = None) -> Work:
        tensor, root = single(tensors), root_of(opts)
        reduction = reduction_of(getattr(opts, "reduceOp", op), tensor.dtype, self._size)

        def post(comm: Communicator, stage: Stage, op: MPI.Op | None) -> Request:
            if self._rank == root:
                return comm.Ireduce(MPI.IN_PLACE, stage.flat, op, root)
            return comm.Ireduce(stage.flat, None, op, root)

        stores = placed([tensor]) if self._rank == root else []
        part = self._reduced(reduction, tensor.numel(), tensor.dtype, post, placed([tensor]), stores)
        return self._submit("reduce", [part], [tensor], opts, timeout)

    def reduce_scatter(
        self, outputs: Tensor | Tensors, inputs: Sequence[Any], opts: Any = None, timeout: Any = None
    ) -> Work:
        """Rank r gets the sum of every rank's r-th tensor. They need not be equally long."""
        output, given = single(outputs), rows(inputs)
        one_each("reduce_scatter", given, self._size)
        alike("reduce_scatter", output, given[self._rank])
        part = self._scattered(output, given, [tensor.numel() for tensor in given], reduce_op(opts))
        return self._submit("reduce_scatter", [part], [output], opts, timeout)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        """Rank r gets the sum of the r-th of the equal parts of every rank's tensor."""
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        parts = []
        for output, given in zip(listed(outputs), listed(inputs), strict=True):
            alike("reduce_scatter_tensor", given, output, self._size)
            parts.append(self._scattered(output, [given], [output.numel()] * self._size, reduce_op(opts)))
        return self._submit("reduce_scatter_tensor", parts, outputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scattered(self, output: Tensor, given: Tensors, counts: list[int], op: Any) -> Part:
        reduction, codec = self._reduction(op, output.dtype, sum(counts))

        def post(comm: Communicator, stage: Stage, op: MPI.Op | None) -> Request:
            if codec is None:
                return comm.Ireduce_scatter(MPI.IN_PLACE, stage.flat, counts, op)
            return comm.Ireduce_scatter_comp(MPI.IN_PLACE, stage.flat, counts, op, codec=codec)

        start = 0 if reduction.fold is None else sum(counts[: self._rank])
        return self._reduced(reduction, sum(counts), output.dtype, post, placed(given), [(start, output)])

    def _reduction(self, op: Any, dtype: torch.dtype, count: int) -> tuple[Reduction, str | None]:
        """How it is done, and by which codec."""
        exact = reduction_of(op, dtype, self._size)
        codec = self.compression.codec_for(exact, dtype, count)
        return (exact, None) if codec is None else (reduction_of(op, dtype, self._size, compressed=True), codec)

    def _reduced(
        self,
        reduction: Reduction,
        count: int,
        dtype: torch.dtype,
        post: Callable[[Communicator, Stage, MPI.Op | None], Request],
        loads: Sequence[Placed],
        stores: Sequence[Placed],
    ) -> Part:
        """A reduction of `count` elements a rank; where NICs have none, of what all have gathered."""
        op, fold = reduction.op, reduction.fold
        if fold is not None:
            own = [(count * self._rank + start, tensor) for start, tensor in loads]
            return Executed(count * self._size, dtype, _gather, own, stores, fold=(fold, self._size))

        def begin(comm: Communicator, stage: Stage) -> Request:
            return post(comm, stage, op)

        scaling: dict[str, Any] = {"before": reduction.before, "after": reduction.after, "divisor": reduction.divisor}
        return Executed(count, dtype, begin, loads, stores, **scaling)

    # -- copies ------------------------------------------------------------------------------------------------------

    def broadcast(self, tensors: Tensor | Tensors, opts: Any, timeout: Any = None) -> Work:
        tensor, root = single(tensors), root_of(opts)

        def post(comm: Communicator, stage: Stage) -> Request:
            return comm.Ibcast(stage.bytes, root)

        place = placed([tensor])
        loads, stores = (place, []) if self._rank == root else ([], place)
        part = Executed(tensor.numel(), tensor.dtype, post, loads, stores)
        return self._submit("broadcast", [part], [tensor], opts, timeout)

    def allgather(
        self, outputs: Sequence[Any], inputs: Tensor | Tensors, opts: Any = None, timeout: Any = None
    ) -> Work:
        """Every rank's tensor, on every rank."""
        targets = rows(outputs)
        return self._submit("all_gather", [self._gathered(targets, single(inputs))], [targets], opts, timeout)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """`outputs[r][i]` gets the i-th tensor of rank r."""
        parts = [self._gathered([row[index] for row in outputs], given) for index, given in enumerate(inputs)]
        return self._submit("all_gather_coalesced", parts, list(outputs), opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        """Every rank's tensor, to the equal parts of one."""
        return self.all_gather_single_coalesced([output], [given], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        parts = []
        for output, given in zip(listed(outputs), listed(inputs), strict=True):
            alike("all_gather_into_tensor", output, given, self._size)
            parts.append(self._joined([output], given))
        return self._submit("all_gather_into_tensor", parts, outputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gathered(self, targets: Tensors, given: Tensor) -> Part:
        one_each("all_gather", targets, self._size)
        for target in targets:
            alike("all_gather", target, given)
        return self._joined(targets, given)

    def _joined(self, targets: Tensors, given: Tensor) -> Part:
        count = given.numel()
        own = placed([given], count * self._rank)
        return Executed(count * self._size, given.dtype, _gather, own, placed(targets))

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        part = Executed(0, torch.uint8, lambda comm, _: comm.Ibarrier(), [], [])
        return self._submit("barrier", [part], [], opts, timeout)

    # -- messages ----------------------------------------------------------------------------------------------------

    def send(self, tensors: Tensor | Tensors, destination: int, tag: int = 0) -> Work:
        letter = Letter(peer("destination", destination, self._size), user_tag(tag), single(tensors))
        return self._submit("send", [Exchanged([letter], [])], [letter.tensor], None)

    def recv(self, tensors: Tensor | Tensors, source: int, tag: int = 0) -> Work:
        letter = Letter(peer("source", source, self._size), user_tag(tag), single(tensors))
        return self._submit("recv", [Exchanged([], [letter])], [letter.tensor], None)

    def recv_anysource(self, tensors: Tensor | Tensors, tag: int = 0) -> Work:
        letter = Letter(MPI.ANY_SOURCE, user_tag(tag), single(tensors))
        return self._submit("recv", [Exchanged([], [letter])], [letter.tensor], None)

    def gather(self, outputs: Sequence[Any], inputs: Tensor | Tensors, opts: Any, timeout: Any = None) -> Work:
        """Every rank's tensor, at the root."""
        given, root = single(inputs), root_of(opts)
        targets = rows(outputs) if self._rank == root else []
        if self._rank == root:
            one_each("gather", targets, self._size)
        for target in targets:
            alike("gather", target, given)
        parts = self._exchange({root: given}, dict(enumerate(targets)))
        return self._submit("gather", parts, [targets], opts, timeout)

    def scatter(self, outputs: Tensor | Tensors, inputs: Sequence[Any], opts: Any, timeout: Any = None) -> Work:
        """Each rank gets one of the root's tensors."""
        output, root = single(outputs), root_of(opts)
        given = rows(inputs) if self._rank == root else []
        if self._rank == root:
            one_each("scatter", given, self._size)
        for tensor in given:
            alike("scatter", output, tensor)
        parts = self._exchange(dict(enumerate(given)), {root: output})
        return self._submit("scatter", parts, [output], opts, timeout)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None, timeout: Any = None) -> Work:
        """Rank r gets every rank's r-th tensor."""
        targets, sources = listed(outputs), listed(inputs)
        one_each("all_to_all", targets, self._size)
        one_each("all_to_all", sources, self._size)
        parts = self._exchange(dict(enumerate(sources)), dict(enumerate(targets)))
        return self._submit("all_to_all", parts, targets, opts, timeout)

    def all_to_all_single(
        self,
        output: Tensor,
        given: Tensor,
        output_sizes: Sequence[int] | None = None,
        input_sizes: Sequence[int] | None = None,
        opts: Any = None,
        timeout: Any = None,
    ) -> Work:
        """The same, from and to parts of one tensor along its first dimension."""
        sources = split("input", given, input_sizes, self._size)
        targets = split("output", output, output_sizes, self._size)
        parts = self._exchange(dict(enumerate(sources)), dict(enumerate(targets)))
        return self._submit("all_to_all_single", parts, [output], opts, timeout)

    alltoall_base = all_to_all_single

    def _exchange(self, sends: dict[int, Tensor], receives: dict[int, Tensor]) -> list[Part]:
        """By rank, what goes there and what comes from there."""
        parts: list[Part] = []
        if self._rank in sends and self._rank in receives:
            source, target = sends.pop(self._rank), receives.pop(self._rank)
            parts.append(Local(lambda: target.copy_(source.view(target.shape))))
        outgoing, incoming = ([Letter(to, OWN_TAG, tensor) for to, tensor in way.items()] for way in (sends, receives))
        return [*parts, Exchanged(outgoing, incoming)]


def _gather(comm: Communicator, stage: Stage) -> Request:
    return comm.Iallgather(MPI.IN_PLACE, stage.bytes)
