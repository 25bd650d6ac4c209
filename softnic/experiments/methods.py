"""Methods by name, and what a training by one of them is made of.

- Names of softnic.gradients, as `exact`, `dgc:0.001` or `feedback:relative:0`.
- A codec, as `bounded:10`: NICs compress the sum, and what the codec drops is lost, as in the codecs' papers.
  `feedback:bounded:10` keeps it.
- `fp16` and `powersgd:RANK`: torch's hooks (torch_hooks.py).
- `wa`: workers send gradients to an aggregator, one more rank, and get weights. `wa+bounded:10` compresses the
  gradients, `wa+adt:16` or `wa+awp:T,INTERVAL` the weights, `wa+bounded:10+adt:16` both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from softnic import codecs, gradients
from softnic.comm.communicator import Communicator
from softnic.experiments.compare.exchange import Aggregated, Exchange, Together
from softnic.experiments.torch_hooks import FP16, POWERSGD, TorchHook, fp16, powersgd
from softnic.experiments.torch_replica import TorchReplica
from softnic.gradients.awp import ADAPTIVE, FIXED, leading, precision
from softnic.gradients.worker_aggregator import WorkerAggregator

AGGREGATED = "wa"
_RANK = 4
"""Of PowerSGD's matrices."""
_BLOCKS = 2
"""Parts of a parameter's name that say to which block of its network it belongs."""

Meet = Callable[[str], Communicator]
"""Makes another communicator of the same ranks, by a name that only this training uses."""


@dataclass(frozen=True)
class Legs:
    """How gradients go to an aggregator, and how weights come back. None: as they are."""

    codec: str | None = None
    precision: str | None = None


def check(name: str) -> str:
    """The name, if it is one. Raises ValueError."""
    kind, _, rest = name.partition(":")
    if name.split("+")[0] == AGGREGATED:
        _legs(name)
    elif kind == POWERSGD:
        _rank(rest)
    elif name != FP16:
        gradients.get(_method(name))
    return name


def aggregators(name: str) -> int:
    """How many ranks a method needs besides those that train."""
    return int(name.split("+")[0] == AGGREGATED)


@contextmanager
def exchange(name: str, replica: TorchReplica, comm: Communicator, meet: Meet) -> Iterator[Exchange]:
    """One rank's end of a method. All ranks enter it at a time. Raises ValueError, CommError."""
    kind, _, rest = name.partition(":")
    if aggregators(name):
        legs = _legs(name)
        policy = None if legs.precision is None else precision(legs.precision, leading(_BLOCKS))
        yield Aggregated(replica, WorkerAggregator(comm, precision=policy, codec=legs.codec))
    elif kind in (FP16, POWERSGD):
        hook = fp16 if kind == FP16 else partial(powersgd, rank=_rank(rest))
        with closing(TorchHook(meet(kind), replica, hook)) as average:
            yield Together(replica, average)
    else:
        method = gradients.get(_method(name))
        if method.momentum:
            replica.leave_momentum()
        yield Together(replica, partial(method.average, comm))


def _method(name: str) -> str:
    """As softnic.gradients.get takes it."""
    if name.partition(":")[0] in gradients.names():
        return name
    try:
        return f"compressed:{codecs.get(name)}"
    except ValueError as error:
        known = ", ".join([*gradients.names(), FP16, POWERSGD, AGGREGATED])
        raise ValueError(f"{name!r} is no method: {known}, or a codec such as bounded:10") from error


def _rank(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError(f"{POWERSGD}:{text}: the rank of PowerSGD's matrices is a whole number, at least 1")
    return int(text or _RANK)


def _legs(name: str) -> Legs:
    codec = weights = None
    for part in name.split("+")[1:]:
        if part.partition(":")[0] in (FIXED, ADAPTIVE) and weights is None:
            precision(part)
            weights = part
        elif codec is None and weights is None:
            codec = str(codecs.get(part))
        else:
            raise ValueError(f"{name!r}: `{AGGREGATED}` takes a codec for gradients, then a precision for weights")
    return Legs(codec, weights)
