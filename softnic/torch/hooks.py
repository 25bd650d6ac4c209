"""Gradient methods as communication hooks of DistributedDataParallel, and from a plain loop.

    model = DistributedDataParallel(network)
    state, function = hooks.hook(softnic.gradients.get("dgc:0.001"), model)
    model.register_comm_hook(state, function)
    ...
    torch.save({"model": network.state_dict(), "method": state.state_dict()}, f"checkpoint.{rank}")

One thread for each communicator exchanges the buckets while back-propagation continues, in the order in which they are
ready, which is the same on all ranks. A method keeps its state by parameter names, so that a checkpoint fits a newly
created model. The state belongs to the rank: each rank saves and loads its own.

Gradients on a GPU, or of other types than float32, are exchanged as float32 in host memory and copied back.
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
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # public, but not in its __all__

from softnic.gradients.method import Floats, Method, MethodError
from softnic.mpi.communicator import Communicator
from softnic.torch import communicator
from softnic.torch.untraced import untraced

__all__ = ["HookState", "State", "average", "bf16_compress_hook", "hook"]

Future = torch.futures.Future[torch.Tensor]


@dataclass(frozen=True)
class _PendingBucket:
    """A bucket of gradients in exchange."""

    buffer: torch.Tensor
    flat: torch.Tensor
    """The buffer if it is float32 in host memory, else a copy that is."""
    gradients: dict[str, Floats]
    """Views of `flat` by parameter name."""
    future: Future

    def finish(self) -> None:
        if self.flat is not self.buffer:
            self.buffer.copy_(self.flat)
        self.future.set_result(self.buffer)


class HookState:
    """State of a model's hook: the method, the communicator, and the names of parameters.

    `state_dict` and `load_state_dict` save and restore the method.
    """

    def __init__(self, method: Method, model: torch.nn.Module, comm: Communicator) -> None:
        self.method = method
        self._comm = comm
        self._names: dict[torch.Tensor, str] = {
            parameter: name.removeprefix("module.") for name, parameter in model.named_parameters()
        }
        self._gathered: list[_PendingBucket] = []
        """Buckets for a method that takes all gradients in one call."""

    def exchange(self, bucket: GradBucket) -> Future:
        """Submit a bucket to the communicator's thread. The future holds the buffer with the mean."""
        found = self._opened(bucket)
        if not self.method.whole:
            _thread(self._comm).submit(self._average, [found])
            return found.future
        if bucket.index() == 0:
            self._gathered = []  # left by a back-propagation that was aborted
        self._gathered.append(found)
        if bucket.is_last():
            gathered, self._gathered = self._gathered, []
            _thread(self._comm).submit(self._average, gathered)
        return found.future

    def _opened(self, bucket: GradBucket) -> _PendingBucket:
        buffer = bucket.buffer()
        flat = buffer.detach().to("cpu", torch.float32)
        array, gradients, start = flat.numpy(), {}, 0
        for parameter in bucket.parameters():
            if parameter not in self._names:
                raise MethodError(
                    "the hook was made for another model: a gradient belongs to no parameter of that model"
                )
            gradients[self._names[parameter]] = array[start : start + parameter.numel()]
            start += parameter.numel()
        same = flat.data_ptr() == buffer.data_ptr()
        future: Future = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
        return _PendingBucket(buffer, buffer if same else flat, gradients, future)

    def _average(self, buckets: list[_PendingBucket]) -> None:
        """Average buckets, in the communicator's thread.

        The gradients of one bucket stay in its order, on which the bits of their sums depend. Those of all buckets are
        in the model's order, which does not depend on how torch assigns parameters to buckets.
        """
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
                    bucket.future.set_exception(error)  # type: ignore[arg-type]  # torch annotates a tensor but takes an exception

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the method between steps.

        Returns
        -------
        dict
            With tensors in place of arrays, so that `torch.load` accepts it with its safe defaults.
        """
        state: dict[str, Any] = _each(self.method.state_dict(), np.ndarray, torch.from_numpy)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict` of the same rank. Raises MethodError for another method's."""
        self.method.load_state_dict(_each(state, torch.Tensor, lambda tensor: tensor.cpu().numpy()))


State = HookState
"""Former name of HookState."""


def hook(
    method: Method, model: torch.nn.Module, group: Any = None, *, comm: Communicator | None = None
) -> tuple[HookState, Any]:
    """Return the arguments of `register_comm_hook` that average gradients by a method.

    All ranks of the process group call this.

    Parameters
    ----------
    method : Method
        As `softnic.gradients.get` returns it.
    model : torch.nn.Module
        The DistributedDataParallel model or the module in it.
    group : ProcessGroup, optional
        A process group of the backend softnic. Default: the default one.
    comm : Communicator, optional
        For another backend: a communicator of the same ranks in the same order, such as MPI.COMM_WORLD.

    Returns
    -------
    tuple
        The state, which has `state_dict` and `load_state_dict`, and the hook.

    Raises
    ------
    ValueError
        For an argument of another type, or a group of another backend without `comm`.
    """
    _check(method, model, comm)
    return HookState(method, model, _communicator(group, comm)), _run


@untraced
def _run(state: HookState, bucket: GradBucket) -> Future:
    return state.exchange(bucket)


@untraced
def average(method: Method, model: torch.nn.Module, group: Any = None, *, comm: Communicator | None = None) -> None:
    """Replace all gradients of a model by their means over the ranks.

    Called in a training loop without DDP, between `backward` and the optimizer's step. The parameters are those of
    `hook`.
    """
    _check(method, model, comm)
    found = {name: each.grad.detach() for name, each in model.named_parameters() if each.grad is not None}
    flats = {name: grad.to("cpu", torch.float32).contiguous() for name, grad in found.items()}
    method.average(_communicator(group, comm), {name: flat.view(-1).numpy() for name, flat in flats.items()})
    for name, grad in found.items():
        if grad.data_ptr() != flats[name].data_ptr():
            grad.copy_(flats[name])


@untraced
def _bf16(state: Any, bucket: GradBucket) -> Future:
    """All-reduce gradients in bfloat16, which halves the bytes.

    1. Divide by the number of ranks in float32, so that the sum cannot overflow.
    2. Round to bfloat16.
    3. All-reduce, and convert back.

    Parameters
    ----------
    state : ProcessGroup or None
        None: the default process group.
    bucket : GradBucket
        The gradients.

    Notes
    -----
    torch's hook of this name refuses other backends than NCCL and XCCL. With softnic, a codec is preferable:
    bounded:10 sends a quarter of the bytes within its error bound.
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
"""Has another `__name__` than torch's hook, by which torch recognizes and refuses that."""


# -- threads -----------------------------------------------------------------------------------------------------------

_threads: dict[int, ThreadPoolExecutor] = {}
"""By the handle of a communicator."""
_lock = threading.Lock()


def _thread(comm: Communicator) -> ThreadPoolExecutor:
    """Return the thread that makes all calls of a communicator for hooks."""
    handle = comm.handle
    with _lock:
        if handle not in _threads:
            _threads[handle] = ThreadPoolExecutor(1, "softnic-hooks")
            weakref.finalize(comm, _threads.pop, handle, None)
        return _threads[handle]


def _check(method: Any, model: Any, comm: Any) -> None:
    """Raise ValueError for arguments of other types."""
    if not isinstance(method, Method):
        raise ValueError(f"method is {method!r}: softnic.gradients.get('dgc:0.001'), for instance, is expected")
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"model is {model!r}: a torch.nn.Module is expected")
    if not isinstance(comm, (Communicator, NoneType)):
        raise ValueError(f"comm is {comm!r}: a communicator, as MPI.COMM_WORLD is, is expected")


def _communicator(group: Any, comm: Communicator | None) -> Communicator:
    return communicator(group) if comm is None else comm


def _each(value: Any, kind: type, convert: Any) -> Any:
    """Return a copy of nested dictionaries and lists, with all values of a type converted."""
    if isinstance(value, kind):
        return convert(value)
    if isinstance(value, Mapping):
        return {key: _each(item, kind, convert) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_each(item, kind, convert) for item in value)
    return value
