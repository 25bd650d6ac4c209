"""Strategies with scripted reductions: order of starts, waits and updates; names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from softnic.experiments import numpy_models
from softnic.experiments.data import Floats, synthetic
from softnic.experiments.numpy_models import DenseNetwork
from softnic.experiments.numpy_replica import MomentumSgd, NumpyReplica
from softnic.experiments.strategies import (
    Aggregator,
    BulkAllreduce,
    CommunicatorLegs,
    Overlapped,
    Pending,
    Strategy,
    StrategyName,
    Worker,
)
from softnic.experiments.timeline import Timeline


class Journal(NumpyReplica):
    """A replica that records its updates."""

    def __init__(self, model: DenseNetwork, optimizer: MomentumSgd) -> None:
        super().__init__(model, optimizer, Timeline())
        self.notes: list[str] = []

    def update(self, layer: int = -1) -> None:
        self.notes.append(f"update {layer}")
        super().update(layer)


def journal(name: str = "mlp:4x8", rate: float = 0.1, momentum: float = 0.5) -> Journal:
    model = numpy_models.build(name, 64, np.random.default_rng(1))
    return Journal(model, MomentumSgd(model.parameters.size, rate, momentum))


@dataclass
class Doubling:
    """Reduction over two equal ranks: the result appears when it is awaited."""

    gradients: Floats
    notes: list[str]
    layer: int

    def Wait(self) -> None:
        self.notes.append(f"wait {self.layer}")
        self.gradients *= 2


def overlapped(replica: Journal, in_flight: int) -> Overlapped:
    def begin(gradients: Floats) -> Pending:
        address = gradients.__array_interface__["data"][0]
        layers = [replica.model.gradients[part].__array_interface__["data"][0] for part in replica.model.layers]
        layer = layers.index(address)
        replica.notes.append(f"begin {layer}")
        return Doubling(gradients, replica.notes, layer)

    return Overlapped(replica, begin, in_flight)


def step(replica: NumpyReplica, strategy: Strategy, seed: int = 0) -> None:
    data = synthetic(seed, train=16, test=1)
    replica.timeline.start()
    replica.model.forward(data.train_inputs, data.train_labels)
    for layer in replica.model.backward():
        strategy.ready(layer)
    strategy.finish()
    replica.timeline.stop()


def test_one_reduction_in_flight_follows_the_papers_trace() -> None:
    """Fig. 3b of Ma et al.: a reduction is awaited before the next one starts; its update follows."""
    replica = journal()
    step(replica, overlapped(replica, 1))
    assert replica.notes == [
        *("begin 3",),
        *("wait 3", "begin 2", "update 3"),
        *("wait 2", "begin 1", "update 2"),
        *("wait 1", "begin 0", "update 1"),
        *("wait 0", "update 0"),
    ]


def test_without_a_limit_no_reduction_is_awaited_during_back_propagation() -> None:
    replica = journal()
    step(replica, overlapped(replica, 0))
    begun, rest = replica.notes[:4], replica.notes[4:]
    assert begun == [f"begin {layer}" for layer in (3, 2, 1, 0)]
    assert rest == [note for layer in (3, 2, 1, 0) for note in (f"wait {layer}", f"update {layer}")]


def doubled(replica: NumpyReplica) -> BulkAllreduce:
    return BulkAllreduce(replica, lambda: np.multiply(replica.gradients, 2, out=replica.gradients))


@pytest.mark.parametrize("model", ["hdc", "mlp:3x16"])
@pytest.mark.parametrize("in_flight", [0, 1, 2])
def test_overlapped_steps_equal_bulk_steps(model: str, in_flight: int) -> None:
    """Bit for bit: a layer's update does not affect the layers below, which are still computed."""
    whole, layered = journal(model), journal(model)
    for seed in range(3):
        step(whole, doubled(whole), seed)
        step(layered, overlapped(layered, in_flight), seed)
    assert np.array_equal(whole.model.parameters, layered.model.parameters)


class FakeCommunicator:
    """Messages of two workers and their aggregator in one thread: a sent message waits to be received."""

    size = 3

    def __init__(self) -> None:
        self.sent: list[Floats] = []
        self.broadcast: list[Floats] = []

    def Send(self, gradients: Floats, dest: int) -> None:
        assert dest == 2
        self.sent.append(gradients.copy())

    def Recv(self, gradients: Floats, source: int) -> None:
        gradients[:] = self.sent[source]

    def Bcast(self, weights: Floats, root: int) -> None:
        assert root == 2
        self.broadcast.append(weights.copy())


def test_an_aggregator_takes_the_step_of_all_workers() -> None:
    comm = FakeCommunicator()
    legs = CommunicatorLegs(comm, None, None)  # type: ignore[arg-type]
    workers, server, alone = [journal(), journal()], journal(), journal()
    for seed, replica in enumerate(workers):
        step(replica, Worker(replica, legs), seed)
        assert replica.notes == []
    server.timeline.start()
    Aggregator(server, legs, 2).finish()
    step(alone, BulkAllreduce(alone, lambda: np.copyto(alone.gradients, comm.sent[0] + comm.sent[1])))
    assert np.array_equal(server.parameters, alone.parameters)
    assert len(comm.broadcast) == 3
    assert np.array_equal(comm.broadcast[-1], alone.parameters)
    assert legs.traffic.sent == 3 * alone.parameters.nbytes


def test_steps_update_the_master_weights() -> None:
    """The model keeps the workers' weights until the next ones are published."""
    model = numpy_models.build("mlp:4x8", 64, np.random.default_rng(1))
    before, master = model.parameters.copy(), model.parameters + np.float32(1)
    model.gradients[:] = 2
    replica = NumpyReplica(model, MomentumSgd(model.parameters.size, 0.25, 0), Timeline(), master)
    replica.timeline.start()
    replica.update()
    assert np.array_equal(model.parameters, before)
    assert np.array_equal(master, before + np.float32(1) - np.float32(0.5))


def test_arrays_of_a_network_are_named() -> None:
    for name, expected in (
        ("hdc", [f"{layer}.{what}" for layer in range(5) for what in ("weights", "biases")]),
        ("mlp:2x8", ["0.weights", "1.weights"]),
    ):
        model = numpy_models.build(name, 64, np.random.default_rng(1))
        arrays = model.named(model.parameters)
        assert list(arrays) == expected
        assert sum(array.size for array in arrays.values()) == model.parameters.size
        arrays["1.weights"][:] = 7
        assert np.count_nonzero(model.parameters == 7) == arrays["1.weights"].size


def test_backward_no_longer_needs_the_weights_of_a_yielded_layer() -> None:
    """Spoiling a layer's weights after it was yielded does not affect the layers below."""
    data = synthetic(3, train=16, test=1)

    def gradients(spoil: bool) -> DenseNetwork:
        model = numpy_models.build("mlp:4x8", 64, np.random.default_rng(1))
        model.forward(data.train_inputs, data.train_labels)
        for layer in model.backward():
            if spoil:
                model.parameters[model.layers[layer]] = np.nan
        return model

    assert np.array_equal(gradients(False).gradients, gradients(True).gradients)


@pytest.mark.parametrize(
    ("text", "parts", "aggregators"),
    [
        ("wa", ("wa", None, None), 1),
        ("inc+bounded:10", ("inc", "bounded:10", None), 0),
        ("host-overlapped+bfp:7", ("host-overlapped", "bfp:7", None), 0),
        ("wa+adt:16", ("wa", None, "adt:16"), 1),
        ("wa+bounded:10+awp:-0.002,4000", ("wa", "bounded:10", "awp:-0.002,4000,8"), 1),
    ],
)
def test_strategy_names_are_parsed(text: str, parts: tuple[str | None, ...], aggregators: int) -> None:
    choice = StrategyName.parse(text)
    assert (choice.kind, choice.codec, choice.precision) == parts
    assert choice.aggregators == aggregators
    assert StrategyName.parse(str(choice)) == choice


@pytest.mark.parametrize(
    "text",
    [
        *("", "ring", "inc+", "inc+zip:9", "inc:bounded:10", "+bounded:10"),
        *("inc+adt:16", "wa+adt:16+bounded:10", "wa+adt:12", "wa+awp:1", "wa+bounded:10+bfp:7"),
    ],
)
def test_unknown_strategy_names_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match=r"is (no|not a) (strategy|codec|precision of weights)|unknown codec"):
        StrategyName.parse(text)
