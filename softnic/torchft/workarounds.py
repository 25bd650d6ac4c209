"""What torchft does wrong, and what is done about it here. Each entry names the release in which it was seen."""

# No `from __future__ import annotations`: torch compares a hook's annotations with its own classes.

import torch
import torchft
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # torch's stubs leave it out
from torch.futures import Future


class DistributedDataParallel(torchft.DistributedDataParallel):  # type: ignore[misc]
    """torchft's DistributedDataParallel, which goes on after a call that has failed.

    In torchft 0.2.0 its hook returns the future of a managed Work, which a Work that has failed never makes: an
    AssertionError ends the replica, whatever the process group. `ErrorSwallowingProcessGroupWrapper` hides that, and
    lets replicas whose sums differ commit the same step. Here the hook waits for the Work, which reports the failure to
    the manager, and the step is not committed.
    """

    @staticmethod
    def _comm_hook(manager: torchft.Manager, bucket: GradBucket) -> Future[torch.Tensor]:
        manager.allreduce(bucket.buffer()).wait()
        done: Future[torch.Tensor] = Future()
        done.set_result(bucket.buffer())
        return done
