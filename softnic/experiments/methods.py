"""Methods of gradient exchange by name, for models in PyTorch.

- Names of softnic.gradients, such as `exact`, `dgc:0.001` or `feedback:relative:0`.
- A codec, such as `bounded:10`: NICs compress the sum, and what the codec drops is lost, as in the codecs' papers.
  `feedback:bounded:10` keeps it.
- `fp16`, `bf16` and `powersgd:RANK`: PyTorch's hooks (torch_hooks.py). `powersgd:RANK+CODEC`: what PowerSGD sends is
  compressed by the NICs.
- `wa`: workers send gradients to an aggregator, one more rank, and receive weights. `wa+bounded:10` compresses the
  gradients, `wa+adt:16` or `wa+awp:T,INTERVAL` the weights, `wa+bounded:10+adt:16` both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from softnic import codecs, gradients
from softnic.experiments.strategies import Aggregator, BulkAllreduce, CommunicatorLegs, Strategy, StrategyName, Worker
from softnic.experiments.torch_hooks import BF16, FP16, POWERSGD, TorchHook, bf16, fp16, powersgd
from softnic.experiments.torch_replica import TorchReplica
from softnic.gradients.awp import FixedPrecision, leading, precision
from softnic.mpi.communicator import Communicator

AGGREGATED = "wa"
_HALVES = {FP16: fp16, BF16: bf16}
"""Hooks that send floats of two bytes."""
_RANK = 4
"""Default rank of PowerSGD's matrices."""
_BLOCKS = 2
"""Leading parts of a parameter's name that identify its block of the network."""

NewCommunicator = Callable[[str], Communicator]
"""Makes another communicator of the same ranks, by a name that only this training uses."""


def check(name: str) -> str:
    """Return the name. Raises ValueError for an unknown one."""
    kind, _, rest = name.partition(":")
    if aggregators(name):
        StrategyName.parse(name)
    elif kind == POWERSGD:
        _low_rank(rest)
    elif name not in _HALVES:
        gradients.get(_method(name))
    return name


def gradient_method(name: str) -> gradients.Method | None:
    """Return a new method of softnic.gradients; None for a hook or an aggregator. Raises ValueError."""
    if aggregators(name) or name.partition(":")[0] in (*_HALVES, POWERSGD):
        return None
    return gradients.get(_method(name))


def aggregators(name: str) -> int:
    """Return the number of ranks that a method needs besides those that train."""
    return int(name.split("+")[0] == AGGREGATED)


@contextmanager
def strategy(
    name: str,
    method: gradients.Method | None,
    replica: TorchReplica,
    comm: Communicator,
    new_communicator: NewCommunicator,
) -> Iterator[Strategy]:
    """Give one rank's part of a method. All ranks enter it together. Raises ValueError, CommError.

    `method` is that of `gradient_method`.
    """
    kind, _, rest = name.partition(":")
    if aggregators(name):
        parsed = StrategyName.parse(name)
        policy = FixedPrecision() if parsed.precision is None else precision(parsed.precision, leading(_BLOCKS))
        legs = CommunicatorLegs(comm, parsed.codec, policy)
        if comm.rank == legs.aggregator:
            legs.publish(replica)
            yield Aggregator(replica, legs, legs.aggregator, mean=True)
        else:
            legs.fetch(replica)
            yield Worker(replica, legs)
    elif method is None:
        rank, codec = _low_rank(rest) if kind == POWERSGD else (0, None)
        hook = partial(powersgd, rank=rank) if rank else _HALVES[kind]
        with closing(TorchHook(new_communicator(kind), replica, hook, codec)) as average:
            yield BulkAllreduce(replica, average)
    else:
        if method.momentum:
            replica.disable_momentum()
        yield BulkAllreduce(replica, partial(method.average, comm, replica.named_gradients))


def _method(name: str) -> str:
    """Return the name that softnic.gradients.get takes."""
    if name.partition(":")[0] in gradients.names():
        return name
    try:
        return f"compressed:{codecs.get(name)}"
    except ValueError as error:
        known = ", ".join([*gradients.names(), *_HALVES, POWERSGD, AGGREGATED])
        raise ValueError(f"{name!r} is not a method: {known}, or a codec such as bounded:10") from error


def _low_rank(text: str) -> tuple[int, str | None]:
    """Return the rank of PowerSGD's matrices and the codec of its sums, from `4+rht:4`. Raises ValueError."""
    rank, plus, codec = text.partition("+")
    if rank and not (rank.isascii() and rank.isdigit() and int(rank)):
        raise ValueError(f"{POWERSGD}:{text}: the rank of PowerSGD's matrices is a whole number, at least 1")
    return int(rank or _RANK), str(codecs.get(codec)) if plus else None
