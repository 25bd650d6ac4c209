"""LGC's Fig. 14: how fast the autoencoders learn, with and without the similarity loss, in either order of values.

Selected gradients of one training are kept, and all autoencoders learn from the same ones: from the first part of them,
the last is for evaluation. The error is that of the paper's losses, divided by the mean square of the target: zeros
would have 1. Beside it is the error of a codec of as many bytes on the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from softnic import codecs
from softnic.experiments.data import Floats
from softnic.experiments.plot import Lines
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.item import Item, Row, ValueTable
from softnic.experiments.reproduce.lgc import paper
from softnic.experiments.reproduce.lgc.gradients import steps
from softnic.experiments.reproduce.lgc.training import TITLES, networks_differ, plan, smoothed
from softnic.gradients.lgc.autoencoder import Autoencoder, code_words
from softnic.gradients.lgc.selection import ORDERS, Layout, SelectedIndices, largest, layout, scales, select, spread

NODES = 4
INNOVATION = 0.1
CODEC = "bfp:7"
"""Slightly more than eight bits a value; the code has eight."""
_POINTS = 12
_COLUMNS = "network | autoencoder | last lesson [.3f] | not learned from [.4f] | code (bytes)"

Vectors = list[Floats]
"""One per node, divided by the root mean squares."""


def make(context: Context) -> Item:
    own = plan(context)
    learn, held_out, skip = (4, 2, 1) if context.quick else (own.learn, 50, own.full // 2)
    rows: list[Row] = []
    charts, findings = [], []
    for model in own.models:
        selected = _selected(context, model, skip, learn + held_out)
        curves: dict[str, Sequence[float]] = {}
        at: list[float] = []
        found: dict[str, float] = {}
        for name, (errors, error) in _learned(context, model, selected, learn).items():
            at, curves[name] = smoothed(errors, _POINTS)
            found[name] = error
            rows.append([TITLES[model], name, errors[-1], error, 4 * code_words(selected.layout.covered)])
        found[CODEC] = selected.codec_error(learn)
        as_coded = len(codecs.get(CODEC).encode(selected.ring["value"][0][0].astype(np.float32)))
        rows.append([TITLES[model], f"ring, {CODEC} instead", None, found[CODEC], as_coded])
        charts.append(Lines(f"{TITLES[model]}: reconstruction error", "lessons", "share", at, curves))
        findings += _findings(TITLES[model], found)
    return Item(
        "how autoencoders learn",
        [ValueTable(f"Relative error after {learn} lessons, and on {held_out} steps not learned from", _COLUMNS, rows)],
        charts,
        [networks_differ(context), "Adam instead of SGD, which learns nothing here (autoencoder.py)."],
        findings,
        {"learn": learn, "judge": held_out, "nodes": NODES},
    )


class _Selected:
    """Selected values by their order and by step, as a ring selects them, and as the workers of a server do."""

    def __init__(self, given: Layout) -> None:
        self.layout = given
        self.ring: dict[str, list[Vectors]] = {order: [] for order in ORDERS}
        self.server: dict[str, list[Vectors]] = {order: [] for order in ORDERS}

    def add(self, vectors: Vectors, leader: int) -> SelectedIndices:
        """Select from a step's gradients in both orders. Returns the ring's indices."""
        for order in ORDERS:
            chosen = [select(vector, self.layout, order)[: self.layout.covered] for vector in vectors]
            own = [vector[indices] for vector, indices in zip(vectors, chosen, strict=True)]
            self.server[order].append([each / spread(scales(each, self.layout), self.layout) for each in own])
            factors = spread(scales(own[leader], self.layout), self.layout)
            self.ring[order].append([vector[chosen[leader]] / factors for vector in vectors])
        return chosen[leader]

    def codec_error(self, begin: int) -> float:
        """Return the error of the ring's mean if a codec rounds each node's values, in the steps from `begin` on."""
        codec = codecs.get(CODEC)
        pairs = []
        for vectors in self.ring["value"][begin:]:
            rounded = [codec.roundtrip(np.ascontiguousarray(each)) for each in vectors]
            pairs.append((np.mean(rounded, axis=0), np.mean(vectors, axis=0)))
        return relative_error(pairs)


def _selected(context: Context, model: str, skip: int, count: int) -> _Selected:
    """Select from gradients that accumulate with momentum, as in LGC; those that a ring would select are reset."""
    selected: _Selected | None = None
    rng = np.random.default_rng(context.settings.seed)
    velocities: Vectors = []
    sums: Vectors = []
    for step, nodes in enumerate(steps(context, model, NODES, skip + count)):
        context.progress(f"lgc fig14: {TITLES[model]}, step {step + 1} of {skip + count}")
        if selected is None:
            selected = _Selected(layout(nodes[0], paper.SHARE))
            velocities, sums = ([np.zeros(selected.layout.starts[-1], np.float32) for _ in nodes] for _ in range(2))
        for node, velocity, total in zip(nodes, velocities, sums, strict=True):
            velocity *= np.float32(plan(context).training.momentum)
            velocity += np.concatenate([node[name] for name in selected.layout.names])
            total += velocity
        if step >= skip:
            sent = selected.add(sums, int(rng.integers(NODES)))
            for each in (*velocities, *sums):
                each[sent] = 0
        else:
            for total in sums:
                total[:] = 0
    assert selected is not None
    return selected


def _server_name(order: str, similarity: float) -> str:
    return f"server, order of {order}, lambda_2 = {similarity}"


def _learned(context: Context, model: str, selected: _Selected, learn: int) -> Mapping[str, tuple[list[float], float]]:
    """Return, by autoencoder, the relative errors of each lesson, and of the steps not learned from."""
    found = {}
    for order in ORDERS:
        context.progress(f"lgc fig14: {TITLES[model]}, order of {order}")
        found[f"ring, order of {order}"] = _aggregate(selected.ring[order], learn, context.settings.seed)
        for similarity in (0.0, 0.5):
            own = _decoupled(selected.layout, selected.server[order], learn, similarity, context.settings.seed)
            found[_server_name(order, similarity)] = own
    return found


def _aggregate(values: list[Vectors], learn: int, seed: int) -> tuple[list[float], float]:
    """Train the ring's autoencoder, whose decoder makes the mean of all nodes."""
    coder = Autoencoder(innovation=False, seed=seed)
    errors = [
        coder.learn_aggregate(vectors) / float(np.mean(np.mean(vectors, axis=0) ** 2)) for vectors in values[:learn]
    ]
    pairs = []
    for vectors in values[learn:]:
        code = np.mean([coder.encode(each) for each in vectors], axis=0)
        pairs.append((coder.decode(code, vectors[0].size), np.mean(vectors, axis=0)))
    return errors, relative_error(pairs)


def _decoupled(
    given: Layout, values: list[Vectors], learn: int, similarity: float, seed: int
) -> tuple[list[float], float]:
    """Train the server's autoencoder, with a decoder for each node that also gets the node's innovation."""
    coder = Autoencoder(NODES, innovation=True, seed=seed)
    rng = np.random.default_rng(seed)

    def innovations(vectors: Vectors) -> Vectors:
        return [np.where(largest(each, given, INNOVATION), each, np.float32(0)) for each in vectors]

    errors = []
    for vectors in values[:learn]:
        loss, _ = coder.learn_decoupled(vectors, innovations(vectors), int(rng.integers(NODES)), similarity)
        errors.append(loss / float(np.mean(np.square(vectors))))
    pairs = []
    for vectors in values[learn:]:
        code = coder.encode(vectors[-1])
        for node, innovation in enumerate(innovations(vectors)):
            pairs.append((coder.decode(code, innovation.size, innovation, node), vectors[node]))
    return errors, relative_error(pairs)


def relative_error(pairs: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the mean square of the differences, divided by that of the targets."""
    missing = sum(float(np.mean((made - target) ** 2)) for made, target in pairs)
    return missing / sum(float(np.mean(target**2)) for _, target in pairs)


def _findings(title: str, found: Mapping[str, float]) -> list[str]:
    def server(order: str, similarity: float) -> float:
        return found[_server_name(order, similarity)]

    return [
        f"{title}: the order of values decides. In order of value a ring's autoencoder leaves an error of "
        f"{found['ring, order of value']:.3f}, in order of index {found['ring, order of index']:.3f}; a server's "
        f"{server('value', 0.5):.3f} and {server('index', 0.5):.3f}.",
        f"{title}: the paper finds that the similarity loss helps. Here a server's error is {server('value', 0.0):.3f} "
        f"without it and {server('value', 0.5):.3f} with it.",
        f"{title}: {CODEC}, about as many bytes as the code and no training, leaves {found[CODEC]:.5f} in a ring.",
    ]
