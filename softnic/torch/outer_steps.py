"""DiLoCo's outer steps of a torch model: ranks train alone for many steps, and then agree on how far all have come.

The same as softnic/gradients/outer.py for tensors, which may be on a GPU and of any type of float, with an outer
optimizer of torch:

    optimizer = SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    outer = OuterSteps(model, optimizer, every=20, method="sparseloco:0.0125,2,beta=1", own=True)
    for batch in batches:
        inner_step(batch)
        outer.step()                    # on all ranks, after each inner step
    outer.finish()

Douillard et al. (arXiv 2311.08105); with `sparseloco`, Sarfi et al. (arXiv 2508.15706). For replicas that may die there
is softnic.torchft.DiLoCo.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from softnic.gradients.method import Floats, MethodError
from softnic.gradients.outer import FINISH
from softnic.gradients.rounds import MessageMethod, Rounds, RoundsPlace
from softnic.torch import present_group
from softnic.torch.backend import SoftnicGroup
from softnic.torch.compression import FLOOR_BYTES
from softnic.torch.message_rounds import method_of
from softnic.torch.untraced import untraced
from softnic.torch.work import SoftnicWork

DEFAULT = "feedback:rht:4"


class OuterSteps:
    """Outer steps of a model.

    Parameters
    ----------
    model : torch.nn.Module
        All ranks have the same weights now.
    optimizer : torch.optim.Optimizer
        The outer one, of the model's parameters: SGD with a learning rate of 0.7 and Nesterov momentum of 0.9 is
        DiLoCo's; with `sparseloco`, SGD with a learning rate of 1 and no momentum.
    every : int
        Inner steps between two outer ones.
    method : str
        "feedback:CODEC", such as "feedback:rht:4", or "sparseloco:SHARE,BITS". The same on all ranks.
    group : ProcessGroup, optional
        A process group of the backend softnic. Default: the default one.
    own : bool
        A rank goes on from weights that include what it has not sent yet; `finish` makes them equal at the end of the
        training. DiLoCo's optimizer then fits `sparseloco` too, with ``beta=1``. Default: all go on from the same.

    Raises
    ------
    ValueError
        For a number out of range, another method or a process group of another backend.

    Notes
    -----
    Parameters below 4,096 bytes are averaged exactly. All parameters are summed at the same time.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        every: int,
        *,
        method: str = DEFAULT,
        group: Any = None,
        own: bool = False,
    ) -> None:
        if every < 1:
            raise MethodError(f"outer steps are made every step or less often, not every {every}")
        self._parameters = dict(model.named_parameters())
        self._optimizer, self._every, self._method = optimizer, every, method_of(method)
        self._group, self._own, self._steps = group, own, 0
        present_group(group)
        self._anchors = {name: each.detach().clone() for name, each in self._parameters.items()}
        """Where all ranks were at the last outer step."""
        self._kept: dict[str, Floats] = {}

    @untraced
    def step(self) -> bool:
        """Count an inner step, and make an outer one when it is due. Returns whether it was.

        All ranks call this as often. Gradients are None after an outer step. Raises DistBackendError.
        """
        self._steps += 1
        if self._steps % self._every:
            return False
        with torch.no_grad():
            ways = self._ways()
            for name, unsent in self._unsent().items():
                ways[name] -= unsent
            self._average(ways, self._method, self._kept)
            for name, parameter in self._parameters.items():
                parameter.copy_(self._anchors[name])
                parameter.grad = ways[name]
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            for name, parameter in self._parameters.items():
                self._anchors[name].copy_(parameter)
            for name, unsent in self._unsent().items():
                self._parameters[name].sub_(unsent)
        return True

    @untraced
    def finish(self, codec: str = FINISH) -> None:
        """Agree on all that ranks have not sent yet, inner steps since included. All have the same weights then.

        At the end of a training. All ranks call this.

        Parameters
        ----------
        codec : str
            In which the rest is sent.

        Raises
        ------
        DistBackendError
            For what breaks a call of the group.
        MethodError
            If there is no such codec.
        """
        method = method_of(f"feedback:{codec}")
        with torch.no_grad():
            ways = self._ways()
            self._average(ways, method, {})
            for name, parameter in self._parameters.items():
                self._anchors[name] -= ways[name]
                parameter.copy_(self._anchors[name])
        if self._own:
            self._kept.clear()

    def _ways(self) -> dict[str, torch.Tensor]:
        """Return how far each parameter of this rank has come, as a gradient: it points back."""
        return {name: self._anchors[name] - each for name, each in self._parameters.items()}

    def _unsent(self) -> dict[str, torch.Tensor]:
        """Return what this rank's parameters have beyond those that all have; empty: they are the same."""
        if not self._own:
            return {}
        like = self._parameters
        return {name: torch.from_numpy(each).view(like[name].shape).to(like[name]) for name, each in self._kept.items()}

    def _average(self, ways: dict[str, torch.Tensor], method: MessageMethod, kept: dict[str, Floats]) -> None:
        """Average over the ranks, in place."""
        group = present_group(self._group)
        for work in [_summed(group, way, method, kept, name) for name, way in ways.items()]:
            work.wait()
        for way in ways.values():
            way.div_(group.size())

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this rank's state, without the weights and the outer optimizer's: each saves its own."""
        kept = {name: torch.from_numpy(each.copy()) for name, each in self._kept.items()}
        anchors = {name: each.clone() for name, each in self._anchors.items()}
        return {"steps": self._steps, "anchors": anchors, "kept": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state_dict` of the same rank. Raises MethodError for that of another model."""
        if state["anchors"].keys() != self._anchors.keys():
            raise MethodError("this state is of a model with other parameters")
        for name, each in state["anchors"].items():
            self._anchors[name].copy_(each)
        self._kept = {name: each.cpu().numpy().copy() for name, each in state["kept"].items()}
        self._steps = int(state["steps"])


def _summed(
    group: SoftnicGroup, way: torch.Tensor, method: MessageMethod, kept: dict[str, Floats], name: str
) -> SoftnicWork:
    if way.nbytes < FLOOR_BYTES:
        return group.sum_by_codec({None: [way]}, way)
    memory = kept.setdefault(name, np.zeros(way.numel(), np.float32))

    def begin(gradient: Floats, place: RoundsPlace) -> Rounds:
        return method.rounds(gradient, memory, place)

    return group.sum_by_rounds(way, begin)
