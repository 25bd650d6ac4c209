"""Selected gradients of one training, as the autoencoders of LGC's Fig. 14 learn from them.

All nodes hold the same weights, which the exact mean of all gradients moves, so a ring and a server select from the
same gradients. What they accumulate differs: every node of a ring sends, and clears, the elements that one of them
selects; each worker of a server its own selection.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers.context import Context
from benchmarks.papers.lgc import paper
from benchmarks.papers.lgc.gradients import steps
from benchmarks.papers.lgc.training import TITLES, plan
from softnic import codecs
from softnic.experiments.data import Floats
from softnic.gradients.lgc.selection import ORDERS, Layout, SelectedIndices, layout, scales, select, spread

Vectors = list[Floats]
"""One per node."""


class Accumulators:
    """What each node has accumulated, with momentum, and not sent."""

    def __init__(self, nodes: int, size: int, momentum: float) -> None:
        self.sums, self._velocities = ([np.zeros(size, np.float32) for _ in range(nodes)] for _ in range(2))
        self._momentum = np.float32(momentum)

    def add(self, gradients: Vectors) -> None:
        for gradient, velocity, total in zip(gradients, self._velocities, self.sums, strict=True):
            velocity *= self._momentum
            velocity += gradient
            total += velocity

    def clear(self) -> None:
        """Forget what was sent whole; momentum remains."""
        for total in self.sums:
            total[:] = 0

    def clear_sent(self, node: int, indices: SelectedIndices) -> None:
        """Clear the elements that a node has sent, and their momentum (factor masking)."""
        self.sums[node][indices] = 0
        self._velocities[node][indices] = 0


class Selected:
    """Selected values of the covered layers by their order and by step, divided by the root mean squares."""

    def __init__(self, given: Layout, nodes: int, momentum: float) -> None:
        self.layout = given
        self.ring: dict[str, list[Vectors]] = {order: [] for order in ORDERS}
        self.server: dict[str, list[Vectors]] = {order: [] for order in ORDERS}
        self._of_ring, self._of_server = (Accumulators(nodes, given.starts[-1], momentum) for _ in range(2))

    def skip(self, gradients: Vectors) -> None:
        """Take a step in which everything is sent."""
        for each in (self._of_ring, self._of_server):
            each.add(gradients)
            each.clear()

    def add(self, gradients: Vectors, leader: int) -> None:
        """Select from a step's gradients in both orders; `leader` is the node of the ring that selects."""
        self._of_ring.add(gradients)
        self._of_server.add(gradients)
        covered, ring, server = self.layout.covered, self._of_ring.sums, self._of_server.sums
        for order in ORDERS:
            chosen = select(ring[leader], self.layout, order)
            factors = spread(scales(ring[leader][chosen], self.layout), self.layout)
            self.ring[order].append([vector[chosen[:covered]] / factors for vector in ring])
            own = [select(vector, self.layout, order) for vector in server]
            values = [vector[indices] for vector, indices in zip(server, own, strict=True)]
            self.server[order].append(
                [each[:covered] / spread(scales(each, self.layout), self.layout) for each in values]
            )
        for node, indices in enumerate(own):
            self._of_ring.clear_sent(node, chosen)
            self._of_server.clear_sent(node, indices)

    def codec_error(self, name: str, begin: int) -> float:
        """Return the error of the ring's mean if a codec rounds each node's values, in the steps from `begin` on."""
        codec = codecs.get(name)
        pairs = []
        for vectors in self.ring["value"][begin:]:
            rounded = [codec.roundtrip(np.ascontiguousarray(each)) for each in vectors]
            pairs.append((np.mean(rounded, axis=0), np.mean(vectors, axis=0)))
        return relative_error(pairs)


def select_from(context: Context, model: str, nodes: int, skip: int, count: int) -> Selected:
    """Train for `skip` steps that send everything, and select in `count` further ones. Raises ImportError."""
    selected: Selected | None = None
    rng = np.random.default_rng(context.settings.seed)
    for step, named in enumerate(steps(context, model, nodes, skip + count)):
        context.progress(f"lgc fig14: {TITLES[model]}, {nodes} nodes, step {step + 1} of {skip + count}")
        if selected is None:
            selected = Selected(layout(named[0], paper.SHARE), nodes, plan(context).training.momentum)
        gradients = [np.concatenate([node[name] for name in selected.layout.names]) for node in named]
        if step < skip:
            selected.skip(gradients)
        else:
            selected.add(gradients, int(rng.integers(nodes)))
    assert selected is not None
    return selected


def relative_error(pairs: list[tuple[Floats, Floats]]) -> float:
    """Return the mean square of the differences, divided by that of the targets."""
    missing = sum(float(np.mean((made - target) ** 2)) for made, target in pairs)
    return missing / sum(float(np.mean(target**2)) for _, target in pairs)
