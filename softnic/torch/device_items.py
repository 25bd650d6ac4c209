"""The work items of collectives on tensors of a GPU, where they differ from those of the host's tensors.

Sums and copies by a codec that the GPU has are exchanged from GPU to GPU (exchange.py). What is long and not encoded is
cut to pieces (shards.py), each of which is a collective of its own: while NICs work on one, others are copied to and
from the GPU. The results have the bits that the same call has on the host, but for sums in two levels (local_sum.py),
where several ranks share a host.

Ranks decide alike if their calls are alike, down to the type of the device: they do not look at strides and places,
and exchange a flat copy of what is not contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from softnic import MPI, codecs
from softnic.collectives import schedule
from softnic.collectives.elements import carried, named
from softnic.mpi.collectives.codec_choice import NAME as EITHER
from softnic.mpi.communicator import Communicator
from softnic.mpi.requests.request import Request
from softnic.torch.arguments import writable
from softnic.torch.compression import CopyCodec, DeviceUse
from softnic.torch.devices import on_device, uncounted
from softnic.torch.encoded import SlotCodec
from softnic.torch.exchange import DeviceBroadcast, DeviceGather, DeviceSum
from softnic.torch.local import LocalGroup
from softnic.torch.local_sum import LocalSum
from softnic.torch.reduction import NO_REDUCTION, Reduction
from softnic.torch.shards import Piece, even_pieces, ranges_of, rest, within
from softnic.torch.staging import StagingBuffer, TensorAt, consecutive
from softnic.torch.unencoded import Unencoded
from softnic.torch.work_items import LocalTask, NicCollective, WorkItem

PIECE_BYTES = 8 << 20
"""Of all parts of a piece that is not encoded."""
LEAST_WORDS, MOST_WORDS = 1 << 18, 1 << 20
"""Of a rank's part of a piece that is encoded: 1 to 4 MiB."""
BY_HOSTS_BYTES = 1 << 16
"""Of a sum that goes by hosts, at least."""
_AS_FLOAT32 = (torch.float32, torch.bfloat16, torch.float16)
"""Types whose elements float32 has."""
_PIECES = 4
"""Into which parts are cut, if the pieces are neither longer nor shorter."""
_RAW = "raw"
_WORD_BYTES = 4
_USE = DeviceUse()
Post = Callable[[Communicator, StagingBuffer, Piece], Request]
CodecOf = Callable[[str, torch.device], SlotCodec | None]
LocalOf = Callable[[torch.device], LocalGroup | None]


class _Encoded(NamedTuple):
    """What is encoded by a device's codec, and what is left to NICs."""

    codec: SlotCodec
    pieces: list[Piece]
    left: list[Piece]
    """One piece, or none."""


class DeviceItems:
    """Makes work items for this rank.

    `codec_of` returns a codec of a device if all ranks have it, `local_of` the ranks of this host if sums go by hosts.

    An empty list stands for one collective on whole tensors.
    """

    def __init__(self, rank: int, size: int, codec_of: CodecOf, local_of: LocalOf) -> None:
        self._rank, self._size = rank, size
        self._place = rank, range(size)
        self._codec_of, self._local_of = codec_of, local_of

    def all_reduced(
        self, tensors: Sequence[TensorAt], count: int, reduction: Reduction, codec: str | None, use: DeviceUse
    ) -> list[WorkItem]:
        """Return the items of an all-reduce of `count` elements."""
        given = [tensor for _, tensor in tensors]
        if not self._applies(given) or reduction.op is None:
            return []
        dtype, flat = given[0].dtype, _flat(given)
        tensors = consecutive(flat)
        if items := self._summed_by_hosts(tensors, count, reduction, codec, use):
            return _with_copies(items, flat, given)
        algorithm = schedule.choose("allreduce", count * dtype.itemsize, self._size, codec or "")
        parts = schedule.blocks("allreduce", algorithm, count, self._size)

        def post(comm: Communicator, buffer: StagingBuffer, _: Piece) -> Request:
            by = {"codec": codec or _RAW, "algorithm": algorithm}
            return comm.Iallreduce_comp(MPI.IN_PLACE, buffer.elements, reduction.op, **by)

        def by_nics(pieces: Sequence[Piece]) -> list[WorkItem]:
            each = [(piece, within(tensors, piece), within(tensors, piece)) for piece in pieces]
            return _by_nics(each, dtype, post, reduction)

        if not _rounds(codec, dtype):
            pieces = _raw_pieces(parts, dtype, schedule.UNIT) if len(parts) == self._size else []
            return _with_copies(by_nics(pieces), flat, given)
        encoded = self._encoded(codec, algorithm, parts, given[0], use)
        if encoded is None:
            return []
        factor, divisor = reduction.before, self._divisor(reduction)
        summed = DeviceSum(encoded.codec, self._place, encoded.pieces, tensors, factor=factor, divisor=divisor)
        return _with_copies([summed, *by_nics(encoded.left)], flat, given)

    def _summed_by_hosts(
        self, tensors: Sequence[TensorAt], count: int, reduction: Reduction, codec: str | None, use: DeviceUse
    ) -> list[WorkItem]:
        """Return the item of a sum or mean in two levels, if it is one and the codec, if any, is the device's."""
        first = tensors[0][1]
        dtype, device = first.dtype, first.device
        if not reduction.sums or count * dtype.itemsize < BY_HOSTS_BYTES or (codec or "").startswith(EITHER):
            return []
        found: SlotCodec | None = None
        if codec is None and dtype in _AS_FLOAT32:
            found = Unencoded(dtype)
        elif codec is not None and use.encodes and _rounds(codec, dtype):
            found = self._codec_of(codec, device)
        local = None if found is None else self._local_of(device)
        if found is None or local is None:
            return []
        return [LocalSum(local, found, tensors, count, reduction, _piece_words(count // self._size, use))]

    def scattered(
        self,
        output: torch.Tensor,
        tensors: Sequence[TensorAt],
        counts: Sequence[int],
        reduction: Reduction,
        codec: str | None,
        use: DeviceUse,
    ) -> list[WorkItem]:
        """Return the items of a reduce-scatter of `counts` elements for each rank."""
        given = [tensor for _, tensor in tensors]
        if not self._applies([*given, output]) or reduction.op is None:
            return []
        dtype, target = output.dtype, output
        tensors, (output,) = consecutive(_flat(given)), _flat([target])
        algorithm = schedule.choose("reduce_scatter", sum(counts) * dtype.itemsize, self._size, codec or "")
        parts = schedule.offsets(counts)
        own = [(parts[self._rank].start, output)]

        def post(comm: Communicator, buffer: StagingBuffer, piece: Piece) -> Request:
            by = {"codec": codec or _RAW, "algorithm": algorithm}
            return comm.Ireduce_scatter_comp(MPI.IN_PLACE, buffer.elements, _lengths(piece), reduction.op, **by)

        def by_nics(pieces: Sequence[Piece]) -> list[WorkItem]:
            each = [(piece, within(tensors, piece), within(own, (piece[self._rank],))) for piece in pieces]
            return _by_nics(each, dtype, post, reduction)

        if not _rounds(codec, dtype):
            return _with_copies(by_nics(_raw_pieces(parts, dtype, 1)), [output], [target])
        encoded = self._encoded(codec, algorithm, parts, output, use)
        if encoded is None:
            return []
        factor, divisor = reduction.before, self._divisor(reduction)
        summed = DeviceSum(encoded.codec, self._place, encoded.pieces, tensors, output, factor=factor, divisor=divisor)
        return _with_copies([summed, *by_nics(encoded.left)], [output], [target])

    def gathered(self, targets: Sequence[torch.Tensor], given: torch.Tensor, codec: CopyCodec | None) -> list[WorkItem]:
        """Return the items of an all-gather: `targets` are one of each rank, or one for all."""
        if not self._applies([given, *targets]) or not _copies_words(given, codec):
            return []
        (own,), flat = _flat([given]), _flat(targets)
        items = self._gathered_raw(own, flat) if codec is None else self._gathered_encoded(own, flat, codec)
        return _with_copies(items, flat, targets)

    def _gathered_raw(self, given: torch.Tensor, targets: Sequence[torch.Tensor]) -> list[WorkItem]:
        parts = schedule.offsets([given.numel()] * self._size)
        own, row, each = [(parts[self._rank].start, given)], consecutive(targets), []
        for piece in _raw_pieces(parts, given.dtype, 1):
            start = ranges_of(piece)[self._rank].start
            loads = [(start + place, tensor) for place, tensor in within(own, (piece[self._rank],))]
            each.append((piece, loads, within(row, piece)))

        def post(comm: Communicator, buffer: StagingBuffer, _: Piece) -> Request:
            return comm.Iallgather(MPI.IN_PLACE, buffer.bytes)

        return _by_nics(each, given.dtype, post)

    def _gathered_encoded(
        self, given: torch.Tensor, targets: Sequence[torch.Tensor], codec: CopyCodec
    ) -> list[WorkItem]:
        given = _words(given, codec)
        parts = [part for target in targets for part in _words(target, codec).chunk(self._size // len(targets))]
        whole = (slice(0, given.numel()),)
        encoded = self._encoded(codec.name, "direct", whole, given)
        if encoded is None:
            return []

        def post(comm: Communicator, buffer: StagingBuffer, _: Piece) -> Request:
            return comm.Iallgather_comp(MPI.IN_PLACE, buffer.elements, codec=codec.name)

        each = []
        for (left,) in encoded.left:
            ends = consecutive([part[left] for part in parts])
            each.append(((left,) * self._size, [(ends[self._rank][0], given[left])], ends))
        ranges = [piece[0] for piece in encoded.pieces]
        gathered = DeviceGather(encoded.codec, self._place, ranges, given, parts)
        return [gathered, *_by_nics(each, torch.float32, post)]

    def broadcast(self, tensor: torch.Tensor, root: int, codec: CopyCodec | None) -> list[WorkItem]:
        """Return the items of a broadcast."""
        if not self._applies([tensor]) or not _copies_words(tensor, codec):
            return []
        (flat,) = _flat([tensor])
        if codec is None:
            whole = (slice(0, flat.numel()),)
            items = self._broadcast_by_nics(flat, root, _raw_pieces(whole, flat.dtype, 1), "")
            return _with_copies(items, [flat], [tensor])
        words = _words(flat, codec)
        whole = (slice(0, words.numel()),)
        encoded = self._encoded(codec.name, "direct", whole, words)
        if encoded is None:
            return []
        ranges = [piece[0] for piece in encoded.pieces]
        left = self._broadcast_by_nics(words, root, encoded.left, codec.name)
        return _with_copies([DeviceBroadcast(encoded.codec, self._place, ranges, words, root), *left], [flat], [tensor])

    def _broadcast_by_nics(
        self, tensor: torch.Tensor, root: int, pieces: Sequence[Piece], codec: str
    ) -> list[WorkItem]:
        def post(comm: Communicator, buffer: StagingBuffer, _: Piece) -> Request:
            if not codec:
                return comm.Ibcast(buffer.bytes, root)
            return comm.Ibcast_comp(buffer.elements, root, codec=codec)

        row, each = [(0, tensor)], []
        for piece in pieces:
            views = within(row, piece)
            loads = views if self._rank == root else []
            each.append((piece, loads, views if codec or self._rank != root else []))
        return _by_nics(each, tensor.dtype, post)

    def _applies(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether tensors are on one device and of one type."""
        first = tensors[0]
        alike = all(each.device == first.device and each.dtype == first.dtype for each in tensors)
        return self._size > 1 and on_device(first) and alike

    def _encoded(
        self, codec: str | None, algorithm: str, parts: Sequence[slice], words: torch.Tensor, use: DeviceUse = _USE
    ) -> _Encoded | None:
        """Return what the device encodes; None if NICs encode all."""
        assert codec is not None
        found = None
        if use.encodes and algorithm == "direct" and not codec.startswith(EITHER):
            found = self._codec_of(codec, words.device)
        if found is None:
            return None
        pieces = even_pieces(parts, found.block_words, _piece_words(min(_lengths(parts)), use))
        return _Encoded(found, pieces, _some(rest(parts, found.block_words))) if pieces else None

    def _divisor(self, reduction: Reduction) -> int | None:
        """Return by what a sum is divided."""
        return self._size if reduction.op is MPI.AVG else None


def _piece_words(part: int, use: DeviceUse) -> int:
    """Return how many words of a part that is encoded a piece has."""
    if use.piece_bytes is not None:
        return use.piece_bytes // _WORD_BYTES
    return min(max(part // _PIECES, LEAST_WORDS), MOST_WORDS)


def _by_nics(
    each: Sequence[tuple[Piece, Sequence[TensorAt], Sequence[TensorAt]]],
    dtype: torch.dtype,
    post: Post,
    reduction: Reduction = NO_REDUCTION,
) -> list[WorkItem]:
    """Return a collective of NICs for each piece, given with what is loaded and stored."""

    def item(piece: Piece, loads: Sequence[TensorAt], stores: Sequence[TensorAt]) -> WorkItem:
        return NicCollective(
            sum(_lengths(piece)), dtype, lambda comm, buffer: post(comm, buffer, piece), loads, stores, reduction
        )

    return [item(*one) for one in each]


def _raw_pieces(parts: Sequence[slice], dtype: torch.dtype, unit: int) -> list[Piece]:
    """Return the pieces of what is not encoded; none if it is too short to be cut."""
    length = PIECE_BYTES // dtype.itemsize // len(parts)
    if sum(_lengths(parts)) * dtype.itemsize < 2 * PIECE_BYTES:
        return []
    return [*even_pieces(parts, unit, length), *_some(rest(parts, unit))]


def _some(piece: Piece) -> list[Piece]:
    return [piece] if sum(_lengths(piece)) else []


def _lengths(parts: Sequence[slice]) -> list[int]:
    return [part.stop - part.start for part in parts]


def _rounds(codec: str | None, dtype: torch.dtype) -> bool:
    """Return whether a codec changes elements of a type, or they are sent as they are."""
    if codec is None or codec.startswith(EITHER):
        return codec is not None
    return carried(named(str(dtype).removeprefix("torch.")), codecs.get(codec))[1] is not None


def _flat(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors in one dimension, as they are if they are contiguous and begin with a word, else copied."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    with torch.no_grad():
        is_row = [each.is_contiguous() and each.data_ptr() % _WORD_BYTES == 0 for each in tensors]
        return [(each if good else copied(each)).view(-1) for each, good in zip(tensors, is_row, strict=True)]


def _with_copies(
    items: list[WorkItem], flat: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]
) -> list[WorkItem]:
    """Return items that store results in `flat`, and one that copies them to their targets, where they differ."""
    both = zip(flat, targets, strict=True)
    copies = [(each, target) for each, target in both if each.data_ptr() != target.data_ptr()]
    if not items or not copies:
        return items
    writable(targets)

    def copy() -> None:
        for source, target in copies:
            uncounted(target).copy_(source.view(target.shape))

    return [*items, LocalTask(copy, [*flat, *targets], items)]


def _copies_words(tensor: torch.Tensor, codec: CopyCodec | None) -> bool:
    """Return whether a codec, if there is one, takes the words of a tensor without converting them."""
    return codec is None or codec.as_words or tensor.dtype == torch.float32


def _words(flat: torch.Tensor, codec: CopyCodec) -> torch.Tensor:
    """Return the words of a flat tensor that a codec copies: its bytes, or its elements."""
    return flat.view(torch.uint8).view(torch.float32) if codec.as_words else flat
