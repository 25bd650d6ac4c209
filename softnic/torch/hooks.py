"""Gradient methods as communication hooks of DistributedDataParallel, and from a plain loop.

    model = DistributedDataParallel(network)
    state, function = hooks.hook(softnic.gradients.get("dgc:0.001"), model)
    model.register_comm_hook(state, function)
    ...
    torch.save({"model": network.state_dict(), "method": state.state_dict()}, f"checkpoint.{rank}")

A bucket is handed to a thread, one for each communicator, and back-propagation goes on; buckets are exchanged in the
order in which they come, which is the same on all ranks. What a method keeps, it keeps by the parameter's name in the
model, so a checkpoint fits a model that is made anew. It is this rank's own: each rank saves and loads its own.

Gradients of other types than float32, or on a GPU, are exchanged as float32 in the host's memory, and copied back.
"""

# No `from __future__ import annotations`: torch compares a hook's annotations with its own classes.

import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from softnic.comm.communicator import Communicator
from softnic.gradients.method import Floats, Method, MethodError
from softnic.torch import communicator
from softnic.torch.untraced import untraced

__all__ = ["State", "average", "bf16_compress_hook", "hook"]

Future = torch.futures.Future[torch.Tensor]


@dataclass(frozen=True)
class _Bucket:
    """Gradients that are to be exchanged, and the promise to do so."""

    buffer: torch.Tensor
    flat: torch.Tensor
    """The buffer itself if it is float32 in the host's memory; else a copy that is."""
    gradients: dict[str, Floats]
    """Views of `flat`, by parameter."""
    future: Future

    def finish(self) -> None:
        if self.flat is not self.buffer:
            self.buffer.copy_(self.flat)
        self.future.set_result(self.buffer)


class State:
    """What a hook of a model knows: the method, the ranks, and what parameters are called."""

    def __init__(self, method: Method, model: torch.nn.Module, comm: Communicator) -> None:
        self.method = method
        self._comm = comm
        self._names: dict[torch.Tensor, str] = {
            parameter: name.removeprefix("module.") for name, parameter in model.named_parameters()
        }
        self._gathered: list[_Bucket] = []
        """For methods that want all gradients in one call."""

    def exchange(self, bucket: GradBucket) -> Future:
        """Hands a bucket to the communicator's thread; the future holds its buffer, once that is the mean."""
        found = self._opened(bucket)
        if not self.method.whole:
            _thread(self._comm).submit(self._average, [found])
            return found.future
        if bucket.index() == 0:
            self._gathered = []  # of a back-propagation that was given up
        self._gathered.append(found)
        if bucket.is_last():
            gathered, self._gathered = self._gathered, []
            _thread(self._comm).submit(self._average, gathered)
        return found.future

    def _opened(self, bucket: GradBucket) -> _Bucket:
        buffer = bucket.buffer()
        flat = buffer.detach().to("cpu", torch.float32)
        array, gradients, start = flat.numpy(), {}, 0
        for parameter in bucket.parameters():
            if parameter not in self._names:
                raise MethodError("the hook was made for another model: one of the gradients is of none of its own")
            gradients[self._names[parameter]] = array[start : start + parameter.numel()]
            start += parameter.numel()
        same = flat.data_ptr() == buffer.data_ptr()
        future: Future = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
        return _Bucket(buffer, buffer if same else flat, gradients, future)

    def _average(self, buckets: list[_Bucket]) -> None:
        """In the thread. One bucket's gradients stay in its order, on which the bits of their sums depend; all buckets'
        come in the model's, whatever torch made of them."""
        gradients = {name: array for bucket in buckets for name, array in bucket.gradients.items()}
        if self.method.whole:
            gradients = {name: gradients[name] for name in self._names.values() if name in gradients}
        try:
            self.method.average(self._comm, gradients)
            for bucket in buckets:
                bucket.finish()
        except Exception as error:
            for bucket in buckets:
                if not bucket.future.done():
                    bucket.future.set_exception(error)  # type: ignore[arg-type]  # torch annotates a tensor, and takes none

    def state_dict(self) -> dict[str, Any]:
        """The method's, with torch's tensors for arrays: torch.save takes it, and torch.load by its safe defaults.
        Between steps."""
        state: dict[str, Any] = _each(self.method.state_dict(), np.ndarray, torch.from_numpy)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` gave, on the same rank. Raises MethodError for another method's."""
        self.method.load_state_dict(_each(state, torch.Tensor, lambda tensor: tensor.cpu().numpy()))


def hook(
    method: Method, model: torch.nn.Module, group: Any = None, *, comm: Communicator | None = None
) -> tuple[State, Any]:
    """What `register_comm_hook` of a DistributedDataParallel takes, to average gradients by a method: `model` itself or
    the module in it.

    All ranks of the process group (None: the default one), which is of the backend softnic, call this together. With
    another backend, `comm` is a communicator of the same ranks in the same order, such as MPI.COMM_WORLD.
    """
    _check(method, model, comm)
    return State(method, model, _communicator(group, comm)), _run


@untraced
def _run(state: State, bucket: GradBucket) -> Future:
    return state.exchange(bucket)


@untraced
def average(method: Method, model: torch.nn.Module, group: Any = None, *, comm: Communicator | None = None) -> None:
    """For a plain loop, between `backward` and the optimizer's step: replaces all gradients of a model by the mean."""
    _check(method, model, comm)
    found = {name: each.grad.detach() for name, each in model.named_parameters() if each.grad is not None}
    flats = {name: grad.to("cpu", torch.float32).contiguous() for name, grad in found.items()}
    method.average(_communicator(group, comm), {name: flat.view(-1).numpy() for name, flat in flats.items()})
    for name, grad in found.items():
        if grad.data_ptr() != flats[name].data_ptr():
            grad.copy_(flats[name])


@untraced
def _bf16(state: Any, bucket: GradBucket) -> Future:
    """All-reduces bfloat16: half the bytes. `state`: the process group, or None.

    1. Divide by N, in float32, so that the sum cannot overflow.
    2. Round to bfloat16.
    3. All-reduce, and widen.

    torch's own hook of this name refuses other backends than NCCL and XCCL. Not worth it where a codec can be had:
    bounded:10 sends a quarter of the bytes and keeps its bound.
    """
    group = dist.group.WORLD if state is None else state
    buffer = bucket.buffer()
    narrow = buffer.div(dist.get_world_size(group)).to(torch.bfloat16)
    work = dist.all_reduce(narrow, group=group, async_op=True)

    def widen(done: Future) -> torch.Tensor:
        done.wait()
        buffer.copy_(narrow)
        return buffer

    future: Future = work.get_future().then(widen)
    return future


bf16_compress_hook = _bf16
"""By another `__name__`: torch knows its own hook by that, and refuses it."""


# -- threads -----------------------------------------------------------------------------------------------------------

_threads: weakref.WeakKeyDictionary[Communicator, ThreadPoolExecutor] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _thread(comm: Communicator) -> ThreadPoolExecutor:
    """The one thread that makes all calls of a communicator that hooks have asked for."""
    with _lock:
        if comm not in _threads:
            _threads[comm] = ThreadPoolExecutor(1, "softnic-hooks")
        return _threads[comm]


def _check(method: Any, model: Any, comm: Any) -> None:
    """Raises ValueError for arguments of other kinds."""
    if not isinstance(method, Method):
        raise ValueError(f"method is {method!r}: softnic.gradients.get('dgc:0.001'), for instance, is expected")
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"model is {model!r}: a torch.nn.Module is expected")
    if not isinstance(comm, (Communicator, NoneType)):
        raise ValueError(f"comm is {comm!r}: a communicator, as MPI.COMM_WORLD is, is expected")


def _communicator(group: Any, comm: Communicator | None) -> Communicator:
    return communicator(group) if comm is None else comm


def _each(value: Any, kind: type, convert: Any) -> Any:
    """The same dictionaries and lists, with everything of a kind converted."""
    if isinstance(value, kind):
        return convert(value)
    if isinstance(value, Mapping):
        return {key: _each(item, kind, convert) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_each(item, kind, convert) for item in value)
    return value
