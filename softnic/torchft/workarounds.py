"""What torchft does wrong, and what is done about it here. Each entry names the release in which it was seen."""

# No `from __future__ import annotations`: torch compares a hook's annotations with its own classes.

from typing import Any

import torch
import torchft
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # torch's stubs leave it out
from torch.futures import Future


class DistributedDataParallel(torchft.DistributedDataParallel):  # type: ignore[misc]
    """torchft's DistributedDataParallel, which goes on after a call that has failed, and sums while gradients are made.

    In torchft 0.2.0 its hook returns the future of a managed Work, which a Work that has failed never makes: an
    AssertionError ends the replica, whatever the process group. `ErrorSwallowingProcessGroupWrapper` hides that, and
    lets replicas whose sums differ commit the same step. Here the hook waits for the Work, which reports the failure to
    the manager, and the step is not committed.

    torchft's hook also waits for each bucket before the gradients of the next one are computed. Here buckets are summed
    meanwhile, and the hook of the last one waits for all.
    """

    def __init__(self, manager: torchft.Manager, module: torch.nn.Module, **options: Any) -> None:
        self._under_way: list[tuple[Any, Future[torch.Tensor], torch.Tensor]] = []
        super().__init__(manager, module, **options)

    def _comm_hook(self, manager: torchft.Manager, bucket: GradBucket) -> Future[torch.Tensor]:
        done: Future[torch.Tensor] = Future()
        self._under_way.append((manager.allreduce(bucket.buffer()), done, bucket.buffer()))
        if bucket.is_last():
            under_way, self._under_way = self._under_way, []
            for work, future, gradients in under_way:
                work.wait()
                future.set_result(gradients)
        return done
