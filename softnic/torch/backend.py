"""The process group: maps torch's collective calls to work items (work_items.py).

A call whose name differs between releases of torch has both names. Arguments are checked in the caller's thread:
invalid ones are a ValueError or TypeError on this rank alone. Later failures are a DistBackendError, which names the
rank at fault and ends the group on every rank.
"""

# The signatures of these calls differ between releases of torch, and each call takes several forms.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from softnic import MPI
from softnic.comm.bootstrap.store import Store
from softnic.comm.errors import CommError
from softnic.comm.scratch import Scratch
from softnic.mpi.communicator import Communicator, init_communicator
from softnic.mpi.requests.request import Request
from softnic.torch.arguments import (
    OWN_TAG,
    Tensor,
    Tensors,
    by_type,
    check_alike,
    check_one_per_rank,
    check_rank,
    check_tag,
    check_type,
    flat_list,
    only_tensor,
    reduce_op,
    root_of,
    seconds,
    split,
    tensor_list,
)
from softnic.torch.compression import EXACT, Compression, DeviceUse
from softnic.torch.device_codecs import DeviceCodecError, device_codec
from softnic.torch.device_items import DeviceItems
from softnic.torch.encoded import SlotCodec
from softnic.torch.flight_recorder import GroupCalls, recorder
from softnic.torch.group_thread import GroupThread
from softnic.torch.hosts import exchange_places, hosts_of, launcher_agrees, own_place
from softnic.torch.identity import Identity
from softnic.torch.local import CONNECT_S, LocalGroup, connect
from softnic.torch.message_rounds import Begin, RoundsSum
from softnic.torch.reduction import Reduction, reduction_of
from softnic.torch.sparse import SparseSum, count_of
from softnic.torch.staging import StagingBuffer, TensorAt, consecutive
from softnic.torch.traffic import GroupStats
from softnic.torch.work import SoftnicWork
from softnic.torch.work_items import LocalCopy, LocalTask, NicCollective, P2PBatch, P2POp, WorkItem

_log = logging.getLogger("softnic")


class SoftnicGroup(Identity):
    """A process group on a communicator, which it takes over.

    `timeout` is the default timeout of calls. `store` lets the ranks connect again, for `communicator`.
    """

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
        self._calls = GroupCalls(recorder, self, comm.rank)
        self._thread = GroupThread(comm, f"group {name}")
        self._on_device = DeviceItems(comm.rank, comm.size, self._codec_of, self._local_of)
        self._device_codecs: dict[tuple[str, str], SlotCodec | None] = {}
        """By name and type of device, those that all ranks have."""
        self._locals: dict[str, LocalGroup | None] = {}
        """By type of device."""

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def abort(self) -> None:
        """End the group on all ranks. Calls in progress fail."""
        self._thread.abort(f"rank {self._rank} aborted the group")
        self._thread.close()

    def quit(self, why: str) -> None:
        """Leave the group at once: calls in progress fail, here and on ranks that wait for this one."""
        self._thread.quit(f"rank {self._rank} {why}")
        self.shutdown()

    def shutdown(self) -> None:
        """Leave the group after the calls in progress."""
        self._thread.close()
        if self._communicator is not None:
            self._communicator.Free()
        self._store = None

    def failure(self) -> str:
        """Return the first error that ended the group, on this rank or another; empty: there was none."""
        return self._thread.look()

    def stats(self) -> GroupStats:
        """Return what this rank has exchanged so far. Raises OSError if the NIC does not answer."""
        return self._thread.stats()

    def communicator(self) -> Communicator:
        """Return a communicator of the same ranks for calls beside torch's. The first call is collective."""
        if self._communicator is None:
            if self._store is None:
                raise ValueError("the group was destroyed, or was created without a store by which its ranks connect")
            self._communicator = init_communicator(self._store, self._rank, self._size, name="communicator")
        return self._communicator

    def _submit(
        self, call: str, items: Sequence[WorkItem], outputs: Sequence[Any], opts: Any, timeout: Any = None, **more: Any
    ) -> SoftnicWork:
        """Start a call. `more` is for its record: inputs, if they are not the outputs, and the peer of a message."""
        if not items:
            raise ValueError(f"{call}: no tensor is given")
        waits = getattr(opts, "asyncOp", True) is False
        record = self._calls.record(call, outputs, seconds(opts, timeout, self._timeout_s), **more)
        return self._thread.submit(record, items, outputs, waits=waits)

    # -- reductions --------------------------------------------------------------------------------------------------

    def allreduce(
        self, tensors: Tensor | Tensors, opts: Any = None, timeout: Any = None, *, op: Any = None
    ) -> SoftnicWork:
        """Reduce one tensor or several; tensors of one type are reduced together."""
        given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        how = reduce_op(opts if op is None else op)
        if len(given) == 1 and getattr(given[0], "is_sparse", False):
            return self._sparse_summed(given[0], how, opts, timeout)
        items: list[WorkItem] = []
        for group in by_type(tensor_list(given)):
            count = sum(tensor.numel() for tensor in group)
            items += self._all_reduced(group, *self._reduction(how, group[0].dtype, count), self.compression.use)
        return self._submit("all_reduce", items, given, opts, timeout)

    allreduce_coalesced = allreduce

    def _codec_of(self, name: str, device: torch.device) -> SlotCodec | None:
        """Return a codec of a device if all ranks have it. The first call for a codec waits for all ranks."""
        key = name, device.type
        if key not in self._device_codecs:
            found, failure = None, None
            try:
                found = device_codec(name, device)
            except DeviceCodecError as error:
                failure = error
            all_have = self._all_have(found)
            if failure is not None:
                raise failure
            self._device_codecs[key] = found if all_have else None
        return self._device_codecs[key]

    def _local_of(self, device: torch.device) -> LocalGroup | None:
        """Return the ranks of this host, if sums go by hosts. A type of device's first call waits for all ranks."""
        if device.type not in self._locals:
            self._locals[device.type] = self._connected_locally(device)
        return self._locals[device.type]

    def _connected_locally(self, device: torch.device) -> LocalGroup | None:
        hosts, found = hosts_of(self._thread.nic_addresses()), None
        if hosts is None or self._store is None:
            return None
        limit_s = min(CONNECT_S, self._timeout_s)
        shown = Scratch().allocate(64)
        try:
            places = exchange_places(self._store, self._rank, self._size, own_place(device, shown), limit_s)
            if not all(launcher_agrees([places[rank] for rank in ranks]) for ranks in hosts):
                return None
            found = connect(self._store, hosts, self._rank, places, device, limit_s)
        except CommError as error:
            _log.warning("sums do not go by hosts: %s", error)
        all_have = self._all_have(found)
        if found is not None:
            self._thread.at_end(found.shares.close)
        return found if all_have else None

    def _all_have(self, what: object) -> bool:
        """Return whether no rank has None. Waits for all ranks."""
        has_it = torch.tensor([what is not None], dtype=torch.int32)
        self.allreduce([has_it], op=dist.ReduceOp.MIN).wait()
        return bool(has_it.item())

    def sum_by_codec(
        self, tensors: Mapping[str | None, list[Tensor]], output: Tensor, use: DeviceUse = EXACT.use
    ) -> SoftnicWork:
        """Sum tensors of one type in place, each list by its codec (None: exact).

        The compression of the group does not apply. All ranks pass the same codecs in the same order. The output of the
        Work is `output`.
        """
        items: list[WorkItem] = []
        for codec, group in tensors.items():
            reduction = reduction_of(dist.ReduceOp.SUM, group[0].dtype, self._size, compressed=codec is not None)
            items += self._all_reduced(group, reduction, codec, use)
        return self._submit("all_reduce", items, [output], None)

    def sum_by_rounds(self, tensor: Tensor, begin: Begin) -> SoftnicWork:
        """Sum a tensor of floats in place by the rounds of a gradient method, which `begin` starts on each rank.

        The compression of the group does not apply.
        """
        reduction_of(dist.ReduceOp.SUM, tensor.dtype, self._size, compressed=True)
        return self._submit("all_reduce", [RoundsSum(tensor, begin)], [tensor], None)

    def _all_reduced(
        self, tensors: list[Tensor], reduction: Reduction, codec: str | None, use: DeviceUse
    ) -> list[WorkItem]:
        count, ranges = sum(tensor.numel() for tensor in tensors), consecutive(tensors)
        if items := self._on_device.all_reduced(ranges, count, reduction, codec, use):
            return items

        def post(comm: Communicator, buffer: StagingBuffer, op: MPI.Op | None) -> Request:
            if codec is None:
                return comm.Iallreduce(MPI.IN_PLACE, buffer.elements, op)
            return comm.Iallreduce_comp(MPI.IN_PLACE, buffer.elements, op, codec=codec)

        return [self._reduced(reduction, count, tensors[0].dtype, post, ranges, ranges)]

    def _sparse_summed(self, tensor: Tensor, op: Any, opts: Any, timeout: Any) -> SoftnicWork:
        """Sum a sparse tensor. Waits for the numbers of elements of all ranks."""
        if getattr(op, "op", op) != dist.ReduceOp.SUM:
            raise ValueError("sparse tensors can be summed only")
        reduction_of(op, tensor.dtype, self._size)
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self._size)]
        self.allgather([counts], [count_of(tensor)], opts).wait()
        items: list[WorkItem] = []

        def gather(given: Tensor) -> list[Tensor]:
            targets = [torch.empty_like(given) for _ in range(self._size)]
            items.extend(self._gathered(targets, given))
            return targets

        total = SparseSum(tensor, [int(count) for count in counts], gather)
        summed = LocalTask(total.finish, [tensor], items)
        return self._submit("all_reduce", [*items, summed], [tensor], opts, timeout)

    def reduce(
        self, tensors: Tensor | Tensors, opts: Any = None, op: Any = None, timeout: Any = None, *, root: Any = None
    ) -> SoftnicWork:
        """Give the root the reduction. `opts` are options or the root."""
        tensor, root = only_tensor(tensors), root_of(opts if root is None else root, self._size)
        reduction = reduction_of(reduce_op(getattr(opts, "reduceOp", op)), tensor.dtype, self._size)

        def post(comm: Communicator, buffer: StagingBuffer, op: MPI.Op | None) -> Request:
            if self._rank == root:
                return comm.Ireduce(MPI.IN_PLACE, buffer.elements, op, root)
            return comm.Ireduce(buffer.elements, None, op, root)

        stores = consecutive([tensor]) if self._rank == root else []
        item = self._reduced(reduction, tensor.numel(), tensor.dtype, post, consecutive([tensor]), stores)
        return self._submit("reduce", [item], [tensor], opts, timeout)

    def reduce_scatter(
        self, outputs: Tensor | Tensors, inputs: Sequence[Any], opts: Any = None, timeout: Any = None, *, op: Any = None
    ) -> SoftnicWork:
        """Give rank r the sum of every rank's r-th tensor. The lengths may differ."""
        output, given = only_tensor(outputs), flat_list(inputs)
        check_one_per_rank("reduce_scatter", given, self._size)
        check_alike("reduce_scatter", output, given[self._rank])
        check_type("reduce_scatter", given, output)
        how = reduce_op(opts if op is None else op)
        items = self._scattered(output, given, [tensor.numel() for tensor in given], how)
        return self._submit("reduce_scatter", items, [output], opts, timeout, inputs=given)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> SoftnicWork:
        """Give rank r the sum of the r-th of the equal parts of every rank's tensor."""
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> SoftnicWork:
        items: list[WorkItem] = []
        for output, given in zip(tensor_list(outputs), tensor_list(inputs), strict=True):
            check_alike("reduce_scatter_tensor", given, output, self._size)
            items += self._scattered(output, [given], [output.numel()] * self._size, reduce_op(opts))
        return self._submit("reduce_scatter_tensor", items, outputs, opts, inputs=inputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def scatter_sum(self, output: Tensor, given: Tensor, op: Any, by: Compression) -> SoftnicWork:
        """Do as reduce_scatter_single, with a compression other than the group's."""
        check_alike("reduce_scatter_tensor", given, output, self._size)
        items = self._scattered(output, [given], [output.numel()] * self._size, op, by)
        return self._submit("reduce_scatter_tensor", items, [output], None, inputs=[given])

    def _scattered(
        self, output: Tensor, given: Tensors, counts: list[int], op: Any, by: Compression | None = None
    ) -> list[WorkItem]:
        reduction, codec = self._reduction(op, output.dtype, sum(counts), by)
        use = (by or self.compression).use
        if items := self._on_device.scattered(output, consecutive(given), counts, reduction, codec, use):
            return items

        def post(comm: Communicator, buffer: StagingBuffer, op: MPI.Op | None) -> Request:
            if codec is None:
                return comm.Ireduce_scatter(MPI.IN_PLACE, buffer.elements, counts, op)
            return comm.Ireduce_scatter_comp(MPI.IN_PLACE, buffer.elements, counts, op, codec=codec)

        start = 0 if reduction.fold is None else sum(counts[: self._rank])
        return [self._reduced(reduction, sum(counts), output.dtype, post, consecutive(given), [(start, output)])]

    def _reduction(
        self, op: Any, dtype: torch.dtype, count: int, by: Compression | None = None
    ) -> tuple[Reduction, str | None]:
        """Return how to reduce `count` elements, and by which codec: of `by`, or else of the group."""
        exact = reduction_of(op, dtype, self._size)
        codec = (by or self.compression).codec_for(exact, dtype, count)
        return (exact, None) if codec is None else (reduction_of(op, dtype, self._size, compressed=True), codec)

    def _reduced(
        self,
        reduction: Reduction,
        count: int,
        dtype: torch.dtype,
        post: Callable[[Communicator, StagingBuffer, MPI.Op | None], Request],
        loads: Sequence[TensorAt],
        stores: Sequence[TensorAt],
    ) -> WorkItem:
        """Return the work item of a reduction of `count` elements: a gather if NICs cannot execute the operation."""
        if reduction.fold is not None:
            own = [(count * self._rank + start, tensor) for start, tensor in loads]
            return NicCollective(count * self._size, dtype, _gather, own, stores, reduction, self._size)

        def begin(comm: Communicator, buffer: StagingBuffer) -> Request:
            return post(comm, buffer, reduction.op)

        return NicCollective(count, dtype, begin, loads, stores, reduction)

    # -- copies ------------------------------------------------------------------------------------------------------

    def broadcast(
        self, tensors: Tensor | Tensors, opts: Any = None, timeout: Any = None, *, root: Any = None
    ) -> SoftnicWork:
        """Give every rank the root's tensor. `opts` are options or the root."""
        tensor, root = only_tensor(tensors), root_of(opts if root is None else root, self._size)
        codec = self.compression.copied_by(tensor.dtype, tensor.numel())

        def post(comm: Communicator, buffer: StagingBuffer) -> Request:
            if codec is None:
                return comm.Ibcast(buffer.bytes, root)
            return comm.Ibcast_comp(buffer.words if codec.as_words else buffer.elements, root, codec=codec.name)

        if items := self._on_device.broadcast(tensor, root, codec):
            return self._submit("broadcast", items, [tensor], opts, timeout)
        ranges = consecutive([tensor])
        rounds = codec is not None and not codec.as_words  # the root's elements as well
        loads, stores = (ranges, ranges if rounds else []) if self._rank == root else ([], ranges)
        item = NicCollective(tensor.numel(), tensor.dtype, post, loads, stores)
        return self._submit("broadcast", [item], [tensor], opts, timeout)

    def allgather(
        self, outputs: Sequence[Any], inputs: Tensor | Tensors, opts: Any = None, timeout: Any = None
    ) -> SoftnicWork:
        """Give every rank's tensor to every rank."""
        targets, given = flat_list(outputs), only_tensor(inputs)
        return self._submit("all_gather", self._gathered(targets, given), [targets], opts, timeout, inputs=[given])

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> SoftnicWork:
        """Store the i-th tensor of rank r in `outputs[r][i]`."""
        rows, inputs = [tensor_list(row) for row in outputs], tensor_list(inputs)
        for row in rows:
            if len(row) != len(inputs):
                raise ValueError(f"all_gather_coalesced: {len(row)} tensors of a rank where {len(inputs)} are expected")
        items: list[WorkItem] = []
        for index, given in enumerate(inputs):
            items += self._gathered([row[index] for row in rows], given)
        return self._submit("all_gather_coalesced", items, rows, opts, inputs=inputs)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> SoftnicWork:
        """Store every rank's tensor in the equal parts of one."""
        return self.all_gather_single_coalesced([output], [given], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> SoftnicWork:
        items: list[WorkItem] = []
        for output, given in zip(tensor_list(outputs), tensor_list(inputs), strict=True):
            check_alike("all_gather_into_tensor", output, given, self._size)
            items += self._joined([output], given)
        return self._submit("all_gather_into_tensor", items, outputs, opts, inputs=inputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather_shards(self, output: Tensor, given: Tensor, by: Compression) -> SoftnicWork:
        """Do as all_gather_single, with a compression other than the group's."""
        check_alike("all_gather_into_tensor", output, given, self._size)
        items = self._joined([output], given, by)
        return self._submit("all_gather_into_tensor", items, [output], None, inputs=[given])

    def _gathered(self, targets: Tensors, given: Tensor) -> list[WorkItem]:
        check_one_per_rank("all_gather", targets, self._size)
        for target in targets:
            check_alike("all_gather", target, given)
        return self._joined(targets, given)

    def _joined(self, targets: Tensors, given: Tensor, by: Compression | None = None) -> list[WorkItem]:
        count = given.numel()
        own = consecutive([given], count * self._rank)
        codec = (by or self.compression).copied_by(given.dtype, count)
        if items := self._on_device.gathered(targets, given, codec):
            return items

        def post(comm: Communicator, buffer: StagingBuffer) -> Request:
            if codec is None:
                return _gather(comm, buffer)
            elements = buffer.words if codec.as_words else buffer.elements
            return comm.Iallgather_comp(MPI.IN_PLACE, elements, codec=codec.name)

        return [NicCollective(count * self._size, given.dtype, post, own, consecutive(targets))]

    def barrier(self, opts: Any = None, timeout: Any = None) -> SoftnicWork:
        item = NicCollective(0, torch.uint8, lambda comm, _: comm.Ibarrier(), [], [])
        return self._submit("barrier", [item], [], opts, timeout)

    # -- messages ----------------------------------------------------------------------------------------------------

    def send(self, tensors: Tensor | Tensors, destination: int, tag: int = 0) -> SoftnicWork:
        op = P2POp(check_rank("destination", destination, self._size), check_tag(tag), only_tensor(tensors))
        return self._submit("send", [P2PBatch([op], [])], [op.tensor], None, peer=op.peer)

    def recv(self, tensors: Tensor | Tensors, source: int, tag: int = 0) -> SoftnicWork:
        op = P2POp(check_rank("source", source, self._size), check_tag(tag), only_tensor(tensors))
        return self._submit("recv", [P2PBatch([], [op])], [op.tensor], None, peer=op.peer)

    def recv_anysource(self, tensors: Tensor | Tensors, tag: int = 0) -> SoftnicWork:
        op = P2POp(MPI.ANY_SOURCE, check_tag(tag), only_tensor(tensors))
        return self._submit("recv", [P2PBatch([], [op])], [op.tensor], None, peer=op.peer)

    def gather(
        self,
        outputs: Sequence[Any],
        inputs: Tensor | Tensors,
        opts: Any = None,
        timeout: Any = None,
        *,
        root: Any = None,
    ) -> SoftnicWork:
        """Give every rank's tensor to the root. `opts` are options or the root."""
        given, root = only_tensor(inputs), root_of(opts if root is None else root, self._size)
        targets = flat_list(outputs) if self._rank == root else []
        if self._rank == root:
            check_one_per_rank("gather", targets, self._size)
        for target in targets:
            check_alike("gather", target, given)
        items = self._exchange({root: given}, dict(enumerate(targets)))
        return self._submit("gather", items, [targets], opts, timeout, inputs=[given])

    def gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> SoftnicWork:
        """Store every rank's tensor in the equal parts of the root's `output`. A call since torch 2.14.

        The output of other ranks is ignored.
        """
        given, root = only_tensor(given), root_of(opts, self._size)
        targets: dict[int, Tensor] = {}
        if self._rank == root:
            check_alike("gather_single", only_tensor(output), given, self._size)
            if not output.is_contiguous():
                raise ValueError("gather_single: the output is not contiguous")
            targets = dict(enumerate(output.view(self._size, given.numel()).unbind()))
        items = self._exchange({root: given}, targets)
        return self._submit("gather_single", items, [output] if self._rank == root else [], opts, inputs=[given])

    gather_into_tensor = gather_single

    def scatter(
        self,
        outputs: Tensor | Tensors,
        inputs: Sequence[Any],
        opts: Any = None,
        timeout: Any = None,
        *,
        root: Any = None,
    ) -> SoftnicWork:
        """Give each rank one of the root's tensors. `opts` are options or the root."""
        output, root = only_tensor(outputs), root_of(opts if root is None else root, self._size)
        given = flat_list(inputs) if self._rank == root else []
        if self._rank == root:
            check_one_per_rank("scatter", given, self._size)
        for tensor in given:
            check_alike("scatter", output, tensor)
        items = self._exchange(dict(enumerate(given)), {root: output})
        return self._submit("scatter", items, [output], opts, timeout, inputs=given)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None, timeout: Any = None) -> SoftnicWork:
        """Give rank r every rank's r-th tensor."""
        targets, sources = tensor_list(outputs), tensor_list(inputs)
        check_one_per_rank("all_to_all", targets, self._size)
        check_one_per_rank("all_to_all", sources, self._size)
        check_alike("all_to_all", targets[self._rank], sources[self._rank])
        items = self._exchange(dict(enumerate(sources)), dict(enumerate(targets)))
        return self._submit("all_to_all", items, targets, opts, timeout, inputs=sources)

    def all_to_all_single(
        self,
        output: Tensor,
        given: Tensor,
        output_sizes: Sequence[int] | None = None,
        input_sizes: Sequence[int] | None = None,
        opts: Any = None,
        timeout: Any = None,
    ) -> SoftnicWork:
        """Exchange parts of one tensor along its first dimension, as alltoall."""
        sources = split("input", only_tensor(given), input_sizes, self._size)
        targets = split("output", only_tensor(output), output_sizes, self._size)
        check_alike("all_to_all_single", targets[self._rank], sources[self._rank])
        items = self._exchange(dict(enumerate(sources)), dict(enumerate(targets)))
        return self._submit("all_to_all_single", items, [output], opts, timeout, inputs=[given])

    alltoall_base = all_to_all_single

    def _exchange(self, sends: dict[int, Tensor], receives: dict[int, Tensor]) -> list[WorkItem]:
        """Return the work items that send tensors to ranks and receive tensors from ranks."""
        items: list[WorkItem] = []
        if self._rank in sends and self._rank in receives:
            source, target = sends.pop(self._rank), receives.pop(self._rank)
            items.append(LocalCopy(source, target))
        outgoing, incoming = (
            [P2POp(peer, OWN_TAG, tensor) for peer, tensor in each.items()] for each in (sends, receives)
        )
        return [*items, P2PBatch(outgoing, incoming)]


def _gather(comm: Communicator, buffer: StagingBuffer) -> Request:
    return comm.Iallgather(MPI.IN_PLACE, buffer.bytes)
