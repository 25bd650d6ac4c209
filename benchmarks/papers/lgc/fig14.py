"""LGC's Fig. 14: how fast the autoencoders learn, with and without the similarity loss, in either order of values.

All autoencoders of a network learn from the selected gradients of one training: from the first part of them, the last
is for evaluation. The error is that of the paper's losses, divided by the mean square of the target: zeros would have
1. Beside it is the error of a codec of as many bytes on the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.papers.context import Context, needs_torch
from benchmarks.papers.item import Item, Row, ValueTable
from benchmarks.papers.learner import one_thread
from benchmarks.papers.lgc.selected import Selected, Vectors, relative_error, select_from
from benchmarks.papers.lgc.training import TITLES, networks_differ, plan, smoothed
from softnic import codecs
from softnic.gradients.lgc.autoencoder import Autoencoder, code_words
from softnic.gradients.lgc.selection import ORDERS, Layout, largest
from softnic.measure.plot import Lines

NODES: Mapping[str, int] = {"convnet": 32, "resnet": 24}
"""The paper has VGG16 on 32 nodes and ResNet50 on 24."""
INNOVATION = 0.1
CODEC = "bfp:7"
"""Slightly more than eight bits a value; the code has eight."""
SIMILARITIES = (0.0, 0.5)
_POINTS = 12
COLUMNS = "network | autoencoder | last lesson [.3f] | not learned from [.4f] | code (bytes)"


@dataclass(frozen=True)
class LessonPlan:
    """Steps of the training: sent whole, to learn from, and for evaluation."""

    skip: int = 30
    learn: int = 200
    held_out: int = 50


QUICK = LessonPlan(1, 4, 2)


@dataclass(frozen=True)
class Learned:
    """How an autoencoder, or a codec in its place, reconstructs."""

    error: float
    """Relative, on the steps that it has not learned from."""
    coded: int
    """Bytes of the code of a vector."""
    at: Sequence[float] = ()
    """Lessons."""
    errors: Sequence[float] = ()
    """Relative, means over the lessons since the one before in `at`."""


def make(context: Context) -> Item:
    own = QUICK if context.quick else LessonPlan()
    models = plan(context).models
    rows: list[Row] = []
    charts, findings = [], []
    for model in models:
        found = _learned(context, model, own)
        curves = {name: each.errors for name, each in found.items() if each.errors}
        at = next(each.at for each in found.values() if each.errors)
        rows += [
            [TITLES[model], name, each.errors[-1] if each.errors else None, each.error, each.coded]
            for name, each in found.items()
        ]
        charts.append(Lines(f"{TITLES[model]}: reconstruction error", "lessons", "share", list(at), curves))
        findings += _findings(TITLES[model], found)
    title = f"Relative error at the end of {own.learn} lessons, and on {own.held_out} steps not learned from"
    nodes = ", ".join(f"{TITLES[model]} on {nodes_of(context, model)} nodes" for model in models)
    return Item(
        "how autoencoders learn",
        [ValueTable(title, COLUMNS, rows)],
        charts,
        [
            networks_differ(context),
            f"{nodes}, computed one after the other in one process; the paper has VGG16 on 32 and ResNet50 on 24. One "
            f"seed; {own.skip} steps come before, in which everything is sent.",
            "Adam instead of SGD, which learns nothing here (autoencoder.py).",
        ],
        findings,
        {"learn": own.learn, "judge": own.held_out, "nodes": [nodes_of(context, model) for model in models]},
    )


def nodes_of(context: Context, model: str) -> int:
    return 3 if context.quick else NODES[model]


def server_name(order: str, similarity: float) -> str:
    return f"server, order of {order}, lambda_2 = {similarity}"


def ring_name(order: str) -> str:
    return f"ring, order of {order}"


CODEC_NAME = f"ring, {CODEC} instead"


def _learned(context: Context, model: str, own: LessonPlan) -> dict[str, Learned]:
    """Return how each autoencoder learns. The gradients are computed only for what the item's file lacks."""
    nodes, seed = nodes_of(context, model), context.settings.seed

    def selected() -> Selected:
        count = own.learn + own.held_out
        return context.once(("lgc fig14", model), lambda: select_from(context, model, nodes, own.skip, count))

    measures: dict[str, Callable[[], Learned]] = {}
    for order in ORDERS:
        measures[ring_name(order)] = lambda order=order: _aggregate(selected(), order, own, seed)  # type: ignore[misc]
        for similarity in SIMILARITIES:
            measures[server_name(order, similarity)] = lambda order=order, similarity=similarity: _decoupled(  # type: ignore[misc]
                selected(), order, own, similarity, seed
            )
    measures[CODEC_NAME] = lambda: _coded(selected(), own)
    settings = {"plan": own, "nodes": nodes, "seed": seed, "data": context.data.name}
    found = {}
    with needs_torch("LGC", ""), one_thread():
        for name, measure in measures.items():
            context.progress(f"lgc fig14: {TITLES[model]}, {name}")
            found[name] = context.kept.once(f"{TITLES[model]}, {name}", settings, measure, Learned)
    return found


def _learned_of(errors: Sequence[float], error: float, given: Layout) -> Learned:
    at, means = smoothed(errors, _POINTS)
    return Learned(error, 4 * code_words(given.covered), at, means)


def _aggregate(selected: Selected, order: str, own: LessonPlan, seed: int) -> Learned:
    """Train the ring's autoencoder, whose decoder makes the mean of all nodes."""
    values = selected.ring[order]
    coder = Autoencoder(innovation=False, seed=seed)
    lessons = values[: own.learn]
    errors = [coder.learn_aggregate(each) / float(np.mean(np.mean(each, axis=0) ** 2)) for each in lessons]
    pairs = []
    for vectors in values[own.learn :]:
        code = np.mean([coder.encode(each) for each in vectors], axis=0)
        pairs.append((coder.decode(code, vectors[0].size), np.mean(vectors, axis=0)))
    return _learned_of(errors, relative_error(pairs), selected.layout)


def _decoupled(selected: Selected, order: str, own: LessonPlan, similarity: float, seed: int) -> Learned:
    """Train the server's autoencoder, with a decoder for each node that also gets the node's innovation."""
    given, values = selected.layout, selected.server[order]
    nodes = len(values[0])
    coder = Autoencoder(nodes, innovation=True, seed=seed)
    rng = np.random.default_rng(seed)

    def innovations(vectors: Vectors) -> Vectors:
        return [np.where(largest(each, given, INNOVATION), each, np.float32(0)) for each in vectors]

    errors = []
    for vectors in values[: own.learn]:
        loss, _ = coder.learn_decoupled(vectors, innovations(vectors), int(rng.integers(nodes)), similarity)
        errors.append(loss / float(np.mean(np.square(vectors))))
    pairs = []
    for vectors in values[own.learn :]:
        code = coder.encode(vectors[-1])
        for node, innovation in enumerate(innovations(vectors)):
            pairs.append((coder.decode(code, innovation.size, innovation, node), vectors[node]))
    return _learned_of(errors, relative_error(pairs), given)


def _coded(selected: Selected, own: LessonPlan) -> Learned:
    """Round the ring's values by a codec, without learning."""
    values = np.ascontiguousarray(selected.ring["value"][0][0], np.float32)
    return Learned(selected.codec_error(CODEC, own.learn), len(codecs.get(CODEC).encode(values)))


def _findings(title: str, found: Mapping[str, Learned]) -> list[str]:
    def server(order: str, similarity: float) -> float:
        return found[server_name(order, similarity)].error

    by_value, by_index = (found[ring_name(order)].error for order in ("value", "index"))
    return [
        f"{title}: in order of value a ring's autoencoder leaves an error of {by_value:.3f}, in order of index "
        f"{by_index:.3f}; a server's {server('value', 0.5):.3f} and {server('index', 0.5):.3f}.",
        f"{title}: the paper finds that the similarity loss helps. Here a server's error is {server('value', 0.0):.3f} "
        f"without it and {server('value', 0.5):.3f} with it.",
        f"{title}: {CODEC}, about as many bytes as the code and no training, leaves {found[CODEC_NAME].error:.5f} in a "
        "ring.",
    ]
