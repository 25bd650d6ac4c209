"""torchft's DiLoCo and Streaming DiLoCo, whose pseudo-gradients are averaged by a gradient method with a memory.

torchft averages each pseudo-gradient, or each bucket of them, by a call of its Manager, which knows neither what it
averages nor what became of it. Here DiLoCo gets a manager that does: it counts the calls of a fragment, which are the
same in each of its outer steps, and so finds what this replica keeps for each.

What a replica keeps, the error that its messages had so far, follows the weights:

1. An outer step changes a copy, which counts when this replica commits the step. One that is discarded, because a
   replica has died, leaves what was kept before: torchft discards the inner steps, too.
2. A quorum that changes leaves it as well. What a replica has kept is part of the way that its own weights have gone,
   and is still missing in the weights that all have.
3. A replica that heals begins with nothing: its weights are those of another one. So does a new process, unless it
   continues from a checkpoint of its own (`DiLoCo.state_dict`).
4. A replica that does not take part in a step (a spare one) sends zeros, and keeps what it has.
"""

# torchft's classes have no types that mypy reads.
# mypy: disable-error-code="misc, no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torchft
import torchft.local_sgd
from torch.distributed import ReduceOp

from softnic.gradients import Floats, MethodError
from softnic.torch.compression import FLOOR_BYTES
from softnic.torch.message_rounds import method_of
from softnic.torchft.process_group import summed_by

DEFAULT = "feedback:rht:4"
_STATE = "softnic_outer"
"""Name of this object's part in the state of a replica that heals."""

Key = tuple[int, int]
"""Of a call: the fragment, and the number of the call in its outer step."""


class DiLoCo(torchft.local_sgd.DiLoCo):
    """torchft's DiLoCo, with pseudo-gradients averaged by a gradient method with error feedback.

    Parameters
    ----------
    manager : torchft.Manager
        Its process group is a ProcessGroupSoftnic.
    model_fragments, inner_optimizer, outer_optimizer, sync_every
        As of torchft.local_sgd.DiLoCo.
    method : str
        "feedback:CODEC", such as "feedback:rht:4" or "feedback:rht:3", or "sparseloco:SHARE,BITS", with which
        `outer_optimizer` should be SGD with a learning rate of 1 and no momentum. The same on all replicas.
    **options
        As of torchft.local_sgd.DiLoCo: fragment_sync_delay, fragment_update_alpha, use_bucketization and others.

    Raises
    ------
    ValueError
        For another method, and what torchft refuses.

    Notes
    -----
    Tensors below 4,096 bytes are summed exactly. What ``softnic.torch.compress`` has set does not apply to the others.
    """

    def __init__(
        self,
        manager: torchft.Manager,
        model_fragments: list[torch.nn.Module],
        inner_optimizer: torch.optim.Optimizer,
        outer_optimizer: torch.optim.Optimizer | list[torch.optim.Optimizer],
        sync_every: int,
        *,
        method: str = DEFAULT,
        **options: Any,
    ) -> None:
        made = _MethodManager(manager, method, len(model_fragments))
        super().__init__(made, model_fragments, inner_optimizer, outer_optimizer, sync_every, **options)
        self.residuals = made.kept
        """What this replica keeps, by fragment and the number of the call in its outer step."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return a copy of what this replica keeps, for its own checkpoint, taken between two outer steps."""
        return {
            f"{fragment}.{call}": torch.from_numpy(each.copy()) for (fragment, call), each in self.residuals.items()
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from a result of `state_dict` of the same replica, with the weights of the same checkpoint."""
        self.residuals.clear()
        for name, each in state.items():
            fragment, call = map(int, name.split("."))
            self.residuals[fragment, call] = each.numpy().copy()


class _MethodManager:
    """A manager that averages by a method. What is not here is the manager's own."""

    def __init__(self, manager: torchft.Manager, method: str, fragments: int) -> None:
        self._manager, self._fragments = manager, fragments
        self._method = method_of(method)
        self.kept: dict[Key, Floats] = {}
        self._next: dict[Key, Floats] = {}
        """What the outer step that is under way will have kept."""
        self._calls = 0
        manager.register_state_dict_fn(_STATE, lambda _: self._forget(), dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def start_quorum(self, *given: Any, **options: Any) -> None:
        """Begin an outer step of a fragment."""
        self._calls = 0
        self._next = {}
        self._manager.start_quorum(*given, **options)

    def should_commit(self, *given: Any, **options: Any) -> bool:
        committed = bool(self._manager.should_commit(*given, **options))
        if committed:
            self.kept.update(self._next)
        self._next = {}
        return committed

    def allreduce(self, tensor: torch.Tensor, should_quantize: bool = False, reduce_op: Any = ReduceOp.AVG) -> Any:
        """Average a tensor by the method. `should_quantize`, which is for torchft's own codec, is not used."""
        del should_quantize
        key = self._manager.current_step() % self._fragments, self._calls
        self._calls += 1
        if not tensor.is_floating_point() or tensor.nbytes < FLOOR_BYTES:
            return self._manager.allreduce(tensor, reduce_op=reduce_op)
        kept = self._kept_for(key, tensor.numel())
        with summed_by(lambda gradient, place: self._method.rounds(gradient, kept, place)) as call:
            work = self._manager.allreduce(tensor, reduce_op=reduce_op)
        if not call.taken and self._manager.errored() is None:
            raise ValueError("the manager's process group is no ProcessGroupSoftnic: softnic's DiLoCo needs one")
        return work

    def _kept_for(self, key: Key, count: int) -> Floats:
        """Return what a call changes: a copy of what is kept."""
        kept = self.kept.get(key)
        if kept is not None and kept.size != count:
            raise MethodError(f"call {key[1]} for fragment {key[0]} has {count} elements, and had {kept.size} before")
        if not self._manager.is_participating():
            return np.zeros(count, np.float32)
        self._next[key] = np.zeros(count, np.float32) if kept is None else kept.copy()
        return self._next[key]

    def _forget(self) -> None:
        self.kept.clear()
        self._next = {}
