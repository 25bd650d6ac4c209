"""LGC's Fig. 14: how fast the autoencoders learn; with and without the similarity loss, in either order of values.

Selected gradients of one training are kept, and all autoencoders learn from the same ones: the first part of them to
learn from, the last to be judged by. The error is that of the paper's losses, divided by the mean square of what was to
be made: 1 is what zeros would give. Beside it, what a codec of as many bytes does to the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from softnic import codecs
from softnic.experiments.data import Floats
from softnic.experiments.plot import Lines
from softnic.experiments.report import Value, ValueColumn, ValueTable
from softnic.experiments.reproduce.context import Context
from softnic.experiments.reproduce.lgc import paper
from softnic.experiments.reproduce.lgc.gradients import steps
from softnic.experiments.reproduce.lgc.rank import MOMENTUM
from softnic.experiments.reproduce.lgc.training import TITLES, networks_differ, plan, smoothed
from softnic.experiments.reproduce.report import Item
from softnic.gradients.lgc.autoencoder import Autoencoder, code_words
from softnic.gradients.lgc.selection import ORDERS, Layout, Places, largest, layout, scales, select, spread

NODES = 4
INNOVATION = 0.1
CODEC = "bfp:7"
"""Eight bits a value and a little, as the code has."""
_POINTS = 12

Vectors = list[Floats]
"""One a node, divided by the root mean squares."""


def make(context: Context) -> Item:
    given = plan(context)
    learn, judge = (4, 2) if context.quick else (given.learn, 50)
    rows: list[list[Value]] = []
    charts = []
    findings = []
    for model in given.models:
        kept = _kept(context, model, 1 if context.quick else given.full // 2, learn + judge)
        curves: dict[str, Sequence[float | None]] = {}
        at: list[float] = []
        found: dict[str, float] = {}
        for name, (errors, judged) in _learned(context, model, kept, learn).items():
            at, curves[name] = smoothed(errors, _POINTS)
            found[name] = judged
            rows.append([TITLES[model], name, errors[-1], judged, 4 * code_words(kept.layout.covered)])
        found[CODEC] = kept.codec_error(learn)
        as_coded = len(codecs.get(CODEC).encode(kept.ring["value"][0][0].astype(np.float32)))
        rows.append([TITLES[model], f"ring, {CODEC} instead", None, found[CODEC], as_coded])
        charts.append(Lines(f"{TITLES[model]}: reconstruction error", "lessons", "share", at, curves))
        findings += _findings(TITLES[model], found)
    return Item(
        "lgc",
        "fig14",
        "how autoencoders learn",
        [ValueTable(f"Relative error after {learn} lessons, and on {judge} steps not learned from", _COLUMNS, rows)],
        charts,
        [*networks_differ(context), "Adam instead of SGD, which learns nothing here (autoencoder.py)."],
        findings,
        {"learn": learn, "judge": judge, "nodes": NODES, "quick": context.quick},
    )


_COLUMNS = [
    ValueColumn("network"),
    ValueColumn("autoencoder"),
    ValueColumn("last lesson", ".3f"),
    ValueColumn("not learned from", ".4f"),
    ValueColumn("code (bytes)"),
]
_RING, _SERVER = "ring", "server"


class _Kept:
    """What was selected, by order of values and step: as a ring selects, and as workers do."""

    def __init__(self, given: Layout) -> None:
        self.layout = given
        self.ring: dict[str, list[Vectors]] = {order: [] for order in ORDERS}
        self.server: dict[str, list[Vectors]] = {order: [] for order in ORDERS}

    def select(self, vectors: Vectors, leader: int) -> Places:
        """Keeps a step's selection in both orders; returns where the ring has selected."""
        for order in ORDERS:
            chosen = [select(vector, self.layout, order)[: self.layout.covered] for vector in vectors]
            own = [vector[places] for vector, places in zip(vectors, chosen, strict=True)]
            self.server[order].append([each / spread(scales(each, self.layout), self.layout) for each in own])
            factors = spread(scales(own[leader], self.layout), self.layout)
            self.ring[order].append([vector[chosen[leader]] / factors for vector in vectors])
        return chosen[leader]

    def codec_error(self, begin: int) -> float:
        """Of the ring's mean, each node's values rounded by a codec of about as many bytes as the code."""
        codec = codecs.get(CODEC)
        pairs = []
        for vectors in self.ring["value"][begin:]:
            rounded = [codec.roundtrip(np.ascontiguousarray(each)) for each in vectors]
            pairs.append((np.mean(rounded, axis=0), np.mean(vectors, axis=0)))
        return _relative(pairs)


def _kept(context: Context, model: str, skip: int, count: int) -> _Kept:
    """Gradients are accumulated with momentum, as LGC does, and what a ring would select is spent."""
    kept: _Kept | None = None
    rng = np.random.default_rng(context.settings.seed)
    velocities: Vectors = []
    sums: Vectors = []
    for step, nodes in enumerate(steps(context, model, NODES, skip + count)):
        context.progress(f"lgc fig14: {TITLES[model]}, step {step + 1} of {skip + count}")
        if kept is None:
            kept = _Kept(layout(nodes[0], paper.SHARE))
            velocities = [np.zeros(kept.layout.starts[-1], np.float32) for _ in nodes]
            sums = [np.zeros_like(each) for each in velocities]
        for node, velocity, total in zip(nodes, velocities, sums, strict=True):
            velocity *= np.float32(MOMENTUM)
            velocity += np.concatenate([node[name] for name in kept.layout.names])
            total += velocity
        if step >= skip:
            spent = kept.select(sums, int(rng.integers(NODES)))
            for each in (*velocities, *sums):
                each[spent] = 0
        else:
            for total in sums:
                total[:] = 0
    assert kept is not None
    return kept


def _learned(context: Context, model: str, kept: _Kept, learn: int) -> Mapping[str, tuple[list[float], float]]:
    """By autoencoder: the relative error of each lesson, and on what was not learned from."""
    found = {}
    for order in ORDERS:
        context.progress(f"lgc fig14: {TITLES[model]}, order of {order}")
        found[f"{_RING}, order of {order}"] = _aggregate(kept.ring[order], learn, context.settings.seed)
        for similarity in (0.0, 0.5):
            name = f"{_SERVER}, order of {order}, lambda_2 = {similarity}"
            found[name] = _decoupled(kept, kept.server[order], learn, similarity, context.settings.seed)
    return found


def _aggregate(given: list[Vectors], learn: int, seed: int) -> tuple[list[float], float]:
    made = Autoencoder(innovation=False, seed=seed)
    errors = [
        made.learn_aggregate(vectors) / float(np.mean(np.mean(vectors, axis=0) ** 2)) for vectors in given[:learn]
    ]
    pairs = []
    for vectors in given[learn:]:
        code = np.mean([made.encode(each) for each in vectors], axis=0)
        pairs.append((made.decode(code, vectors[0].size), np.mean(vectors, axis=0)))
    return errors, _relative(pairs)


def _decoupled(
    kept: _Kept, given: list[Vectors], learn: int, similarity: float, seed: int
) -> tuple[list[float], float]:
    made = Autoencoder(NODES, innovation=True, seed=seed)
    rng = np.random.default_rng(seed)

    def innovations(vectors: Vectors) -> Vectors:
        return [np.where(largest(each, kept.layout, INNOVATION), each, np.float32(0)) for each in vectors]

    errors = []
    for vectors in given[:learn]:
        loss, _ = made.learn_decoupled(vectors, innovations(vectors), int(rng.integers(NODES)), similarity)
        errors.append(loss / float(np.mean(np.square(vectors))))
    pairs = []
    for vectors in given[learn:]:
        code = made.encode(vectors[-1])
        for node, innovation in enumerate(innovations(vectors)):
            pairs.append((made.decode(code, innovation.size, innovation, node), vectors[node]))
    return errors, _relative(pairs)


def _relative(pairs: Sequence[tuple[Floats, Floats]]) -> float:
    """Mean square of what is missing, over that of what was to be made."""
    missing = sum(float(np.mean((made - wanted) ** 2)) for made, wanted in pairs)
    return missing / sum(float(np.mean(wanted**2)) for _, wanted in pairs)


def _findings(title: str, found: Mapping[str, float]) -> list[str]:
    def server(order: str, similarity: float) -> float:
        return found[f"{_SERVER}, order of {order}, lambda_2 = {similarity}"]

    return [
        f"{title}: the order of values decides. In order of value a ring's autoencoder leaves an error of "
        f"{found['ring, order of value']:.3f}, in order of index {found['ring, order of index']:.3f}; a server's "
        f"{server('value', 0.5):.3f} and {server('index', 0.5):.3f}.",
        f"{title}: the paper finds that the similarity loss helps. Here a server's error is {server('value', 0.0):.3f} "
        f"without it and {server('value', 0.5):.3f} with it.",
        f"{title}: {CODEC}, about as many bytes as the code and no training, leaves {found[CODEC]:.5f} in a ring.",
    ]
