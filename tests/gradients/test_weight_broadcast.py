"""The broadcast of weights, between ranks that are threads, over sockets that round as NICs do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from softnic import codecs
from softnic.gradients.adt import WeightBroadcast, WeightTraffic, packed
from softnic.gradients.awp import AWP, Array, FixedPrecision
from softnic.gradients.worker_aggregator import WorkerAggregator
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run

SHAPES = {"conv.weight": (5, 3, 3, 3), "conv.bias": (5,), "fc.weight": (7, 9), "fc.bias": (7,)}


def arrays(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in SHAPES.items()}


def rounded(given: dict[str, Array], bits: dict[str, int]) -> dict[str, Array]:
    return {name: codecs.get(f"truncate:{bits.get(name, 32)}").roundtrip(array) for name, array in given.items()}


def equal(found: dict[str, Array], expected: dict[str, Array]) -> None:
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name].view(np.uint32), array.view(np.uint32), name)


@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize("width", [8, 16, 24, 32])
def test_matrices_lose_their_lowest_bytes_and_biases_nothing(root: int, width: int) -> None:
    def program(comm: Communicator) -> Any:
        leg = WeightBroadcast(comm, root, FixedPrecision(width))
        own, held = arrays(1 if comm.rank == root else 2), arrays(3)
        if comm.rank == root:
            leg.publish(own, held)
            equal(own, arrays(1))
        else:
            leg.receive(own)
            held = own
        return held, leg.traffic, leg.widths

    expected = rounded(arrays(1), {"conv.weight": width, "fc.weight": width})
    matrices, biases = 5 * 27 + 63, 12
    traffic = WeightTraffic(4 * (matrices + biases), 4 + matrices * width // 8 + 4 * biases)
    for held, counted, widths in run(3, program):
        equal(held, expected)
        assert counted == traffic
        assert widths == {"conv.weight": width, "conv.bias": 32, "fc.weight": width, "fc.bias": 32}


def test_each_layer_is_sent_with_the_bits_of_awp() -> None:
    """The first layer does not change and gets 8 bits more after every update; the second doubles."""

    def program(comm: Communicator) -> list[dict[str, int]]:
        leg, widths = WeightBroadcast(comm, 0, AWP(0.5, 1)), []
        weights = arrays(1)
        for _ in range(3):
            if comm.rank == 0:
                leg.publish(weights)
                weights["fc.weight"] *= 2
            else:
                leg.receive(weights)
            widths.append(leg.widths)
        return widths

    for widths in run(2, program):
        assert [each["conv.weight"] for each in widths] == [8, 16, 24]
        assert [each["fc.weight"] for each in widths] == [8, 8, 8]


def test_arrays_of_any_strides_are_sent_and_filled() -> None:
    def program(comm: Communicator) -> Array:
        weights = {"w": np.full((6, 4), comm.rank + 1.5, np.float32).T[::2]}
        leg = WeightBroadcast(comm, 1)
        if comm.rank:
            weights["w"][...] = np.arange(12).reshape(2, 6)
            leg.publish(weights)
        else:
            leg.receive(weights)
        return weights["w"]

    for found in run(2, program):
        np.testing.assert_array_equal(found, np.arange(12).reshape(2, 6))


def test_arrays_of_one_dimension_are_not_packed() -> None:
    assert list(packed(arrays(1))) == ["conv.weight", "fc.weight"]


@pytest.mark.parametrize("aggregator", [0, 2])
def test_workers_send_gradients_and_receive_weights(aggregator: int) -> None:
    codec = "truncate:16"

    def program(comm: Communicator) -> Any:
        exchange = WorkerAggregator(comm, precision=FixedPrecision(8), codec=codec, aggregator=aggregator)
        gradients, weights = arrays(10 + comm.rank), arrays(20 + comm.rank)
        exchange.collect(gradients)
        if exchange.aggregates:
            for name, array in weights.items():
                array -= gradients[name]
        exchange.publish(weights)
        return exchange.aggregates, gradients, weights

    results = run(3, program)
    assert [aggregates for aggregates, _, _ in results] == [rank == aggregator for rank in range(3)]
    workers = [rank for rank in range(3) if rank != aggregator]
    sent = [rounded(arrays(10 + rank), dict.fromkeys(SHAPES, 16)) for rank in workers]
    mean = {name: (sent[0][name] + sent[1][name]) / np.float32(2) for name in SHAPES}
    stepped = {name: array - mean[name] for name, array in arrays(20 + aggregator).items()}
    equal(results[aggregator][1], mean)
    equal(results[aggregator][2], stepped)
    for rank in workers:
        equal(results[rank][1], arrays(10 + rank))
        equal(results[rank][2], rounded(stepped, {"conv.weight": 8, "fc.weight": 8}))


def test_an_aggregator_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        run(1, WorkerAggregator)
