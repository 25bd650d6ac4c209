"""The collective calls on buffers: blocking and nonblocking, exact and compressed.

Each operation is declared once, by a function that checks its arguments, and `_calls` makes the blocking and the
nonblocking call of it: both post a work request to the NIC, and the blocking call waits for it.

A compressed call differs from the exact one in its codec alone. It takes elements of any type: float32 travels
compressed, other floats as float32 or as they are, and everything else exactly (softnic/collectives/elements.py). With
one rank nothing crosses a network, and nothing is rounded. All ranks make their calls in the same order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec

import numpy as np

from softnic.comm import buffers, collective_args, execution
from softnic.comm.base import Base
from softnic.comm.codec_choice import NAME, either_of
from softnic.comm.collective_args import CollectiveArgs, CompressionOptions
from softnic.comm.connections import CommConnections
from softnic.comm.objects import gather_integers
from softnic.comm.operators import MAX, SUM, Op
from softnic.comm.request import Request

P = ParamSpec("P")


class _Context(NamedTuple):
    """A call in progress."""

    call: str
    comm: Base
    connections: CommConnections

    @property
    def ranks(self) -> tuple[int, int]:
        """The number of ranks, and this one."""
        return self.comm.size, self.comm.rank

    def options(self, codec: Any, algorithm: Any = None) -> CompressionOptions:
        """Return the checked keywords of a compressed call."""
        return self.comm._options(self.connections, codec, algorithm)

    def reduction_options(
        self, codec: Any, algorithm: Any, sendbuf: Any, recvbuf: Any, blocks: int = 1
    ) -> CompressionOptions:
        """Return those of a reduction, whose codec may depend on its data: the ranks agree on it, and wait for it."""
        either = either_of(codec)
        if either is not None:
            in_place = buffers.is_in_place(sendbuf)
            data = buffers.flat(recvbuf if in_place else sendbuf, what="the input", blocks=blocks)
            asks = self.comm.size > 1 and either.decides(data)
            codec = either.agree(self.connections, f"{self.call} with {NAME}", data) if asks else either.dense
        return self.options(codec, algorithm)

    def counts(self, sendbuf: Any, recvbuf: Any, recvcounts: Any) -> Any:
        """Return the `recvcounts` of a Reduce_scatter.

        None stands for the length of each rank's receive buffer, as in mpi4py, if these add up to the input. Otherwise
        it stays None, for near-equal blocks.
        """
        if recvcounts is not None or buffers.is_in_place(sendbuf):
            return recvcounts
        source = buffers.flat(sendbuf, what="the send buffer")
        own = buffers.flat(recvbuf, writable=True, what="the receive buffer")
        if buffers.same_memory(source, own):
            return None
        lengths = gather_integers(self.connections, f"{self.call} without recvcounts", own.size)
        return lengths if sum(lengths) == source.size else None


def _calls(
    name: str, declaration: Callable[Concatenate[_Context, P], CollectiveArgs]
) -> tuple[Callable[Concatenate[Any, P], None], Callable[Concatenate[Any, P], Request]]:
    """Return the blocking call `name` of an operation, and the nonblocking one."""
    nonblocking_name = f"I{name.lower()}"

    @wraps(declaration)
    def blocking(self: Base, /, *args: P.args, **kwargs: P.kwargs) -> None:
        with self._state.call(name) as connections:
            context = _Context(name, self, connections)
            execution.run(connections, name, declaration(context, *args, **kwargs))

    @wraps(declaration)
    def nonblocking(self: Base, /, *args: P.args, **kwargs: P.kwargs) -> Request:
        with self._state.call(nonblocking_name) as connections:
            context = _Context(nonblocking_name, self, connections)
            posted = declaration(context, *args, **kwargs)
            return Request(execution.post(connections, nonblocking_name, posted))

    nonblocking.__doc__ = f"Start {name}, and return its Request.\n\n    {declaration.__doc__}"
    _, *parameters = inspect.signature(declaration).parameters.values()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for call, its_name, result in ((blocking, name, "None"), (nonblocking, nonblocking_name, "Request")):
        call.__name__, call.__qualname__ = its_name, f"BufferCollectives.{its_name}"
        signature = inspect.Signature([own, *parameters], return_annotation=result)
        setattr(call, "__signature__", signature)  # noqa: B010
    return blocking, nonblocking


def _barrier(context: _Context) -> CollectiveArgs:
    """Return when every rank has called it."""
    token = np.zeros(context.comm.size, np.uint8)
    return collective_args.allreduce(*context.ranks, buffers.IN_PLACE, token, MAX)


def _allreduce(context: _Context, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> CollectiveArgs:
    """Combine the buffers of all ranks element by element; every rank gets the result."""
    return collective_args.allreduce(*context.ranks, sendbuf, recvbuf, op)


def _allreduce_comp(
    context: _Context,
    sendbuf: Any,
    recvbuf: Any,
    op: Op | None = SUM,
    *,
    codec: Any = None,
    algorithm: str | None = None,
) -> CollectiveArgs:
    """Allreduce of which everything that crosses the network is compressed.

    Parameters
    ----------
    codec
        As in "bounded:10"; None: the one of this rank's NIC for tagged streams, the same on all ranks. "either":
        bounded:10 for data of mostly zeros, rht:4 for other data, as all ranks agree before.
    algorithm
        ring, direct, tree, hierarchical or wa; None: the best one for the size and the ranks.
    """
    options = context.reduction_options(codec, algorithm, sendbuf, recvbuf)
    return collective_args.allreduce(*context.ranks, sendbuf, recvbuf, op, options)


def _reduce(context: _Context, sendbuf: Any, recvbuf: Any, op: Op | None = SUM, root: int = 0) -> CollectiveArgs:
    """Combine the buffers of all ranks element by element; `root` gets the result. `recvbuf` of others is ignored."""
    return collective_args.reduce(*context.ranks, sendbuf, recvbuf, op, root)


def _reduce_comp(
    context: _Context,
    sendbuf: Any,
    recvbuf: Any,
    op: Op | None = SUM,
    root: int = 0,
    *,
    codec: Any = None,
    algorithm: str | None = None,
) -> CollectiveArgs:
    """Reduce, compressed as in Allreduce_comp.

    By ring, direct and hierarchical, the root gets the same bits as from Allreduce_comp by the same algorithm.
    """
    options = context.reduction_options(codec, algorithm, sendbuf, recvbuf)
    return collective_args.reduce(*context.ranks, sendbuf, recvbuf, op, root, options)


def _reduce_scatter(
    context: _Context,
    sendbuf: Any,
    recvbuf: Any,
    recvcounts: Sequence[int] | None = None,
    op: Op | None = SUM,
) -> CollectiveArgs:
    """Combine the buffers of all ranks; rank r gets the r-th block of the result, of recvcounts[r] elements.

    Without `recvcounts`, blocks are as long as the receive buffers if these add up to the input; otherwise, and in
    place, they are near-equal, the longer ones first. In place, `recvbuf` holds the whole input, and its start the
    block afterwards; the rest of it is unchanged.
    """
    counts = context.counts(sendbuf, recvbuf, recvcounts)
    return collective_args.reduce_scatter(*context.ranks, sendbuf, recvbuf, counts, op)


def _reduce_scatter_comp(
    context: _Context,
    sendbuf: Any,
    recvbuf: Any,
    recvcounts: Sequence[int] | None = None,
    op: Op | None = SUM,
    *,
    codec: Any = None,
    algorithm: str | None = None,
) -> CollectiveArgs:
    """Reduce_scatter, compressed as in Allreduce_comp. A rank's block is not rounded again after its last addition."""
    options = context.reduction_options(codec, algorithm, sendbuf, recvbuf)
    counts = context.counts(sendbuf, recvbuf, recvcounts)
    return collective_args.reduce_scatter(*context.ranks, sendbuf, recvbuf, counts, op, options)


def _reduce_scatter_block(context: _Context, sendbuf: Any, recvbuf: Any, op: Op | None = SUM) -> CollectiveArgs:
    """Reduce_scatter with equal blocks. A count in the input's list, [buffer, count, type], is that of a block."""
    return collective_args.reduce_scatter_block(*context.ranks, sendbuf, recvbuf, op)


def _reduce_scatter_block_comp(
    context: _Context,
    sendbuf: Any,
    recvbuf: Any,
    op: Op | None = SUM,
    *,
    codec: Any = None,
    algorithm: str | None = None,
) -> CollectiveArgs:
    """Reduce_scatter_comp with equal blocks."""
    options = context.reduction_options(codec, algorithm, sendbuf, recvbuf, context.comm.size)
    return collective_args.reduce_scatter_block(*context.ranks, sendbuf, recvbuf, op, options)


def _allgather(context: _Context, sendbuf: Any, recvbuf: Any) -> CollectiveArgs:
    """Gather the equal blocks of all ranks on every rank, in rank order.

    In place, a rank's own block is in `recvbuf` already. A count in `recvbuf`, [buffer, count, type], is that of one
    block.
    """
    return collective_args.allgather(*context.ranks, sendbuf, recvbuf)


def _allgather_comp(context: _Context, sendbuf: Any, recvbuf: Any, *, codec: Any = None) -> CollectiveArgs:
    """Allgather, compressed. A rank's own block becomes what the others decode, too."""
    return collective_args.allgather(*context.ranks, sendbuf, recvbuf, context.options(codec))


def _bcast(context: _Context, buf: Any, root: int = 0) -> CollectiveArgs:
    """Copy the buffer of `root` to every rank."""
    return collective_args.bcast(*context.ranks, buf, root)


def _bcast_comp(context: _Context, buf: Any, root: int = 0, *, codec: Any = None) -> CollectiveArgs:
    """Bcast, compressed. The root's buffer becomes what the others decode, too."""
    return collective_args.bcast(*context.ranks, buf, root, context.options(codec))


class BufferCollectives(Base):
    """The calls that every rank makes with a buffer."""

    Barrier, Ibarrier = _calls("Barrier", _barrier)
    Allreduce, Iallreduce = _calls("Allreduce", _allreduce)
    Allreduce_comp, Iallreduce_comp = _calls("Allreduce_comp", _allreduce_comp)
    Reduce, Ireduce = _calls("Reduce", _reduce)
    Reduce_comp, Ireduce_comp = _calls("Reduce_comp", _reduce_comp)
    Reduce_scatter, Ireduce_scatter = _calls("Reduce_scatter", _reduce_scatter)
    Reduce_scatter_comp, Ireduce_scatter_comp = _calls("Reduce_scatter_comp", _reduce_scatter_comp)
    Reduce_scatter_block, Ireduce_scatter_block = _calls("Reduce_scatter_block", _reduce_scatter_block)
    Reduce_scatter_block_comp, Ireduce_scatter_block_comp = _calls(
        "Reduce_scatter_block_comp", _reduce_scatter_block_comp
    )
    Allgather, Iallgather = _calls("Allgather", _allgather)
    Allgather_comp, Iallgather_comp = _calls("Allgather_comp", _allgather_comp)
    Bcast, Ibcast = _calls("Bcast", _bcast)
    Bcast_comp, Ibcast_comp = _calls("Bcast_comp", _bcast_comp)
