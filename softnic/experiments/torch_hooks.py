"""PyTorch's own hooks for DistributedDataParallel, called from a plain loop, over softnic's process group.

- `fp16`, `bf16`: gradients cross the network as float16 or bfloat16, divided by the number of ranks before they are
  added.
- `powersgd:RANK`: Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization"
  (2019). Every gradient matrix crosses as two thin ones, found by one step of power iteration from the last step's; the
  error is added to the next step's gradients. Vectors, and all gradients of the first steps, are sent as they are.
- `powersgd:RANK+CODEC`: the same hook on a group whose sums the NICs compress, as after `softnic.torch.compress(group,
  CODEC)`. All ranks receive the same bits, so the hook's error, which is what is left of the gradients after the sums,
  contains the codec's too: both are fed back.

One bucket has all parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from softnic.experiments.torch_replica import TorchReplica
from softnic.mpi.communicator import Communicator

FP16 = "fp16"
BF16 = "bf16"
POWERSGD = "powersgd"
_EXACT_STEPS = 2
"""The fewest that PowerSGD with error feedback allows."""


class TorchHook:
    """One rank's part of a hook.

    Parameters
    ----------
    comm
        Communicator for the hook alone; `close` frees it.
    replica
        Replica whose gradients are averaged.
    hook
        Takes a process group and returns the function that is called with a bucket.
    codec
        Codec of the group's sums. None: exact.
    """

    def __init__(
        self,
        comm: Communicator,
        replica: TorchReplica,
        hook: Callable[[Any], Callable[[Any], Any]],
        codec: str | None = None,
    ) -> None:
        import torch

        from softnic.torch.backend import SoftnicGroup
        from softnic.torch.compression import Compression

        self._group = SoftnicGroup(comm)
        self._group.compression = Compression(codec)
        self._hook = hook(self._group)
        flat, gradients = torch.from_numpy(replica.gradients), [each.grad for each in replica.model.parameters()]
        # The part of torch's GradBucket that the hooks use.
        self._bucket = SimpleNamespace(
            index=lambda: 0, is_last=lambda: True, buffer=lambda: flat, gradients=lambda: gradients
        )

    def close(self) -> None:
        """Free the communicator. No call may be in progress."""
        self._group.shutdown()

    def __call__(self) -> None:
        """Average the replica's gradients in place."""
        averaged = self._hook(self._bucket).wait()
        if averaged.data_ptr() != self._bucket.buffer().data_ptr():
            self._bucket.buffer().copy_(averaged)


def fp16(group: Any) -> Callable[[Any], Any]:
    """Return the hook that sends float16."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return lambda bucket: fp16_compress_hook(group, bucket)


def bf16(group: Any) -> Callable[[Any], Any]:
    """Return the hook that sends bfloat16."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    return lambda bucket: bf16_compress_hook(group, bucket)


def powersgd(group: Any, rank: int) -> Callable[[Any], Any]:
    """Return PowerSGD's hook; `rank` is the number of columns of the thin matrices."""
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    state = PowerSGDState(group, matrix_approximation_rank=rank, start_powerSGD_iter=_EXACT_STEPS)
    return lambda bucket: powerSGD_hook(state, bucket)
