"""A sum of tensors of a GPU in two levels: within each host, and between the hosts.

The elements of the tensors, side by side as float32 and filled up with zeros, are cut to a share for each rank of a
host: the same cut on every host.

1. Every rank of a host gets its share of all the others there. It adds them: the share of the host's first rank, then
   that of the second one, and so on.
2. The ranks that have the same share, one of each host, sum it between the hosts (exchange.py): each host owns a part
   of the share, to which it adds those of the host before it, of the one before this, and so on. There it is divided
   for a mean, and encoded: with a codec by it, else as elements of the tensors' type.
3. Every rank of a host gets the shares of all the others there.

How the ranks of a host exchange shares (local.py) has no part in it: nothing is added on the way. So all ranks have the
same bits. Each float crosses the network once for a host and not once for each of its ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import pad

from softnic import MPI
from softnic.torch.arguments import writable
from softnic.torch.devices import ReadyEvents, uncounted
from softnic.torch.encoded import Course, SlotCodec, Steps
from softnic.torch.exchange import DeviceSum, float_words
from softnic.torch.exec_context import ExecContext
from softnic.torch.local import LocalGroup
from softnic.torch.reduction import Reduction
from softnic.torch.shards import even_pieces
from softnic.torch.staging import TensorAt
from softnic.torch.work_items import WorkItem
from softnic.torch_private import copy_each


class LocalSum(WorkItem):
    """The sum of `count` elements, of contiguous tensors, given with their places among these.

    `codec` is for what crosses the network, in pieces of at most `words` words of a host's part.
    """

    def __init__(
        self,
        local: LocalGroup,
        codec: SlotCodec,
        tensors: Sequence[TensorAt],
        count: int,
        reduction: Reduction,
        words: int,
    ) -> None:
        given = [tensor for _, tensor in tensors]
        writable(given)
        self._ready = ReadyEvents(given)
        self._local, self._codec = local, codec
        self._tensors = tensors
        self._reduction = reduction
        self._hosts, self._shares = len(local.hosts), len(local.ranks)
        unit = codec.block_words * self._hosts
        self._share_words = -(-count // (unit * self._shares)) * unit
        self._filler = self._share_words * self._shares - count
        even = self._share_words // self._hosts
        parts = [slice(start, start + even) for start in range(0, self._share_words, even)]
        self._pieces = even_pieces(parts, codec.block_words, words)
        self._is_within = False

    @property
    def waits_for(self) -> str:
        return f"not all of ranks {self._local.listed}, of one host, take part" if self._is_within else ""

    def start(self, context: ExecContext) -> None:
        self._context = context
        self._course = Course(self._steps())
        self.advance()

    def advance(self) -> bool:
        return self._course.advance()

    def _steps(self) -> Steps:
        context, local, reduction = self._context, self._local, self._reduction
        device = self._ready.device
        assert device is not None
        streams = context.streams(device)
        with streams.kernels(self._ready.of(device)):
            words = float_words([uncounted(tensor) for _, tensor in self._tensors], reduction.before)
            row = pad(words, (0, self._filler))
            shares = torch.empty_like(row).view(self._shares, -1)
            divisor = sum(map(len, local.hosts)) if reduction.op is MPI.AVG else None
            between = DeviceSum(self._codec, local.across, self._pieces, [(0, shares[0])], divisor=divisor)
        first = context.numbers(between.numbers + local.shares.numbers)
        self._is_within = True
        yield from local.shares.scatter(context, first, row, shares.view(-1))
        with streams.kernels():
            for share in shares[1:]:
                shares[0].add_(share)
        self._is_within = False
        between.start_numbered(context, first + local.shares.numbers)
        yield between.advance
        self._is_within = True
        yield from local.shares.gather(context, first, shares[0], row)
        self._is_within = False
        with streams.kernels():
            if reduction.after is not None:
                row.mul_(reduction.after)
            targets = [uncounted(tensor) for _, tensor in self._tensors]
            copy_each(targets, [row[start : start + tensor.numel()] for start, tensor in self._tensors])
        (stored,) = context.watched([streams.mark()])
        yield stored.query
