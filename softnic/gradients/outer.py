"""Local training with outer steps: ranks train alone for many steps, and then agree on how far all of them have come.

DiLoCo (Douillard et al., arXiv 2311.08105): the way that a rank's weights have gone since the last agreement is a
*pseudo-gradient*. The ranks' mean of it is the gradient of an outer optimizer, SGD with Nesterov momentum, whose step
starts from the weights that all ranks had. So bytes cross the network once in `every` steps, compressed by any method
of this package: `exact`, `feedback:rht:4`, or `sparseloco`, which takes the place of momentum.

Streaming DiLoCo (Douillard et al., arXiv 2501.18512): the parameters are divided into fragments, which agree in turn,
and whose sums the NICs compute while the inner steps go on. What arrives `delay` steps later is mixed into the weights
that have moved on meanwhile.

    outer = Outer(gradients.get("feedback:rht:4"), weights, every=100)
    for batch in batches:
        inner_step(batch)                # any optimizer, on weights
        outer.step(comm)                 # all ranks, after each inner step
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from softnic import codecs
from softnic.codecs import feedback
from softnic.gradients.feedback import Feedback
from softnic.gradients.flat import Flat, cut
from softnic.gradients.method import Floats, Gradients, Method, MethodError
from softnic.gradients.rounds import MessageMethod
from softnic.mpi.arguments.buffers import IN_PLACE
from softnic.mpi.communicator import Communicator

FINISH = "rht:4"
"""The codec of `finish`."""
RATE, MOMENTUM = 0.7, 0.9
"""Of DiLoCo's outer optimizer."""
Weights = Mapping[str, Floats]
"""By parameter: a contiguous float32 array of one dimension, which the model uses and outer steps change in place."""


class OuterOptimizer:
    """Where all ranks were at the last agreement, and the outer optimizer's momentum. Every rank has the same bits."""

    def __init__(self, weights: Weights, rate: float, momentum: float) -> None:
        if not 0 <= momentum < 1 or not rate > 0:
            raise MethodError(f"outer steps take a rate above 0 and a momentum of 0..1, not {rate} and {momentum}")
        self._rate, self._momentum = np.float32(rate), np.float32(momentum)
        self._weights = weights
        self.anchors = {name: array.copy() for name, array in weights.items()}
        self.velocities = {name: np.zeros_like(array) for name, array in weights.items()} if momentum else {}

    def pseudo_gradient(self, name: str) -> Floats:
        """Return how far a parameter of this rank has come, as a gradient: it points back."""
        return self.anchors[name] - self._weights[name]

    def step(self, name: str, gradient: Floats) -> Floats:
        """Make a step of a parameter by the mean of all ranks' pseudo-gradients. Returns where all ranks are then."""
        if self.velocities:
            velocity = self.velocities[name]
            velocity *= self._momentum
            velocity += gradient
            gradient = gradient + self._momentum * velocity
        anchor = self.anchors[name]
        anchor -= self._rate * gradient
        return anchor

    def state_dict(self) -> dict[str, Any]:
        return {
            kind: {name: array.copy() for name, array in arrays.items()}
            for kind, arrays in (("anchors", self.anchors), ("velocities", self.velocities))
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for kind, arrays in (("anchors", self.anchors), ("velocities", self.velocities)):
            if state[kind].keys() != arrays.keys():
                raise MethodError(f"this state has other {kind} than these weights")
            for name, array in arrays.items():
                array[:] = state[kind][name]


class Outer:
    """DiLoCo's outer steps.

    Parameters
    ----------
    method : Method
        Averages pseudo-gradients. It must not be used for gradients, too.
    weights : Weights
        All parameters, the same bits on all ranks now.
    every : int
        Inner steps between two outer ones. DiLoCo has 500, of small models 50 to 100.
    rate, momentum : float
        Of the outer optimizer; DiLoCo's 0.7 and 0.9. The paper of `sparseloco` has 1 and 0.
    own : bool
        For `sparseloco` and `feedback`: a rank goes on from weights that include what it has not sent yet. Else all go
        on from the same weights, and learn again what is on its way. Call `finish` at the end of the training.

    Raises
    ------
    MethodError
        If a number is out of range, or `own` does not fit the method.
    """

    def __init__(
        self,
        method: Method,
        weights: Weights,
        every: int,
        rate: float = RATE,
        momentum: float = MOMENTUM,
        *,
        own: bool = False,
    ) -> None:
        if every < 1:
            raise MethodError(f"outer steps are made every step or less often, not every {every}")
        if own and not isinstance(method, MessageMethod):
            raise MethodError(f"outer steps from own weights are by feedback or sparseloco, not by {method.name}")
        self.method = method
        self._keeps = method.keeps if own and isinstance(method, MessageMethod) else ""
        self._weights, self._every, self._steps = weights, every, 0
        self._optimizer = OuterOptimizer(weights, rate, momentum)

    def step(self, comm: Communicator) -> bool:
        """Count an inner step, and make an outer one when it is due. Returns whether it was.

        All ranks call this as often. Raises CommError.
        """
        self._steps += 1
        if self._steps % self._every:
            return False
        gradients = {name: self._optimizer.pseudo_gradient(name) for name in self._weights}
        for name, unsent in self._unsent().items():
            gradients[name] -= unsent
        self.method.average(comm, gradients)
        for name, gradient in gradients.items():
            self._weights[name][:] = self._optimizer.step(name, gradient)
        for name, unsent in self._unsent().items():
            self._weights[name] -= unsent
        return True

    def finish(self, comm: Communicator, codec: str = FINISH) -> int:
        """Agree on all that ranks have not sent yet, inner steps since included, at the end of a training.

        All ranks have the same weights then.

        Parameters
        ----------
        comm : Communicator
            All ranks call this.
        codec : str
            In which the rest is sent.

        Returns
        -------
        int
            Bytes that this rank sends of the sum, each counted once.
        """
        rest = {name: self._optimizer.pseudo_gradient(name) for name in self._weights}
        method = Feedback(codec)
        method.average(comm, rest)
        for name, mean in rest.items():
            self._optimizer.anchors[name] -= mean
            self._weights[name][:] = self._optimizer.anchors[name]
        for unsent in self._unsent().values():
            unsent[:] = 0
        return method.stats.sent_bytes

    def _unsent(self) -> dict[str, Floats]:
        """Return what this rank's weights have beyond those that all have; empty: they are the same."""
        if not self._keeps:
            return {}
        return {name: self.method.kept(self._keeps, name, each.size) for name, each in self._weights.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this rank's state, without the weights."""
        return {"steps": self._steps, "method": self.method.state_dict(), **self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state_dict`. Raises MethodError for that of other weights or another method."""
        self.method.load_state_dict(state["method"])
        self._optimizer.load_state_dict(state)
        self._steps = int(state["steps"])


class StreamingOuter:
    """Streaming DiLoCo's outer steps: fragments in turn, summed by the NICs while the inner steps go on.

    Parameters
    ----------
    codec : str
        In which pseudo-gradients travel, as in "rht:4", with feedback of this rank's error. Empty: exact.
    weights : Weights
        All parameters, the same bits on all ranks now.
    every : int
        Inner steps between two outer steps of one fragment.
    fragments : int
        Into how many the parameters are divided, about equal ones of whole parameters in their order.
    delay : int
        Inner steps from the start of a fragment's sum to its use.
    mix : float
        Share of a rank's own weights in what it goes on with, 0..1; the rest is where all ranks are.

    Raises
    ------
    MethodError
        If a number is out of range.

    Notes
    -----
    The outer optimizer has DiLoCo's rate and momentum.
    """

    def __init__(
        self,
        codec: str,
        weights: Weights,
        every: int,
        fragments: int = 4,
        delay: int = 1,
        mix: float = 0.5,
    ) -> None:
        if not 1 <= fragments <= min(len(weights), every) or not 0 <= delay < every or not 0 <= mix <= 1:
            raise MethodError(
                f"{fragments} fragments, delay {delay} and mix {mix} do not fit {len(weights)} parameters every {every}"
            )
        self._codec = codecs.get(codec) if codec else None
        self._weights, self._every, self._delay, self._mix = weights, every, delay, np.float32(mix)
        self._optimizer = OuterOptimizer(weights, RATE, MOMENTUM)
        self._residuals = {name: np.zeros_like(array) for name, array in weights.items()} if codec else {}
        self._fragments = [_Fragment(names) for names in _divided(weights, fragments)]
        self._steps = 0
        self.sent_bytes = 0
        """Encoded pseudo-gradients of this rank, each counted once."""

    def step(self, comm: Communicator) -> None:
        """Count an inner step; start the sums that are due, and use those that were started `delay` steps ago.

        All ranks call this as often. Waits only for a sum that is due. Raises CommError.
        """
        self._steps += 1
        for number, fragment in enumerate(self._fragments):
            phase = (self._steps - number * self._every // len(self._fragments)) % self._every
            if phase == 0:
                self._start(comm, fragment)
            if phase == self._delay and fragment.wait is not None:
                self._use(comm, fragment)

    def finish(self, comm: Communicator) -> None:
        """Use all sums that are under way, at the end of the training."""
        for fragment in self._fragments:
            if fragment.wait is not None:
                self._use(comm, fragment)

    def _start(self, comm: Communicator, fragment: _Fragment) -> None:
        gradients = {name: self._optimizer.pseudo_gradient(name) for name in fragment.names}
        if self._codec is None:
            flat = fragment.flat.get(gradients)
            for _, gradient, part in cut(flat, gradients):
                part[:] = gradient
            self.sent_bytes += flat.nbytes
            fragment.wait = comm.Iallreduce(IN_PLACE, flat).Wait
        else:
            flat = fragment.flat.get(gradients, multiple=max(1, self._codec.block_bytes // 4))
            residuals = [self._residuals[name] for name in fragment.names]
            self.sent_bytes += feedback.round_parts(self._codec, list(gradients.values()), residuals, flat)
            fragment.wait = comm.Iallreduce_comp(IN_PLACE, flat, codec=self._codec).Wait
        fragment.sum = flat

    def _use(self, comm: Communicator, fragment: _Fragment) -> None:
        assert fragment.wait is not None
        fragment.wait()
        fragment.wait = None
        weights = {name: self._weights[name] for name in fragment.names}
        for name, own, total in cut(fragment.sum, weights):
            agreed = self._optimizer.step(name, total * np.float32(1 / comm.size))
            own *= self._mix
            own += (1 - self._mix) * agreed


class _Fragment:
    """Some parameters, and their sum that is under way."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.flat = Flat()
        self.sum: Floats = np.empty(0, np.float32)
        self.wait: Callable[[], object] | None = None


def _divided(weights: Gradients, count: int) -> list[list[str]]:
    """Return the names of parameters in consecutive groups of about equal sizes, none of which is empty."""
    left, total, passed = list(weights), sum(array.size for array in weights.values()), 0
    groups: list[list[str]] = []
    for later in reversed(range(count)):
        group: list[str] = []
        while left and (not group or not later or len(left) > later):
            size = weights[left[0]].size
            if group and later and (passed + size / 2) * count > total * (count - later):
                break
            passed += size
            group.append(left.pop(0))
        groups.append(group)
    return groups
