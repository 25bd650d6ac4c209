"""Both legs compressed, over real processes and NICs: the same bits as the algorithms without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from softnic import Cluster, codecs
from softnic.experiments import numpy_models
from softnic.experiments.data import DataSet, Floats, batches, synthetic
from softnic.experiments.numpy_replica import MomentumSgd
from softnic.experiments.traffic import NicTraffic
from softnic.gradients.adt import packed
from softnic.gradients.awp import precision

WORKERS, STEPS, BATCH, SEED = 2, 6, 32, 5
MODEL, RATE, MOMENTUM = "hdc", 0.01, 0.9
CODEC = "bounded:10"
POLICY = "awp:0.0001,2"


def reference(data: DataSet) -> tuple[Floats, int]:
    """Return worker 0's final weights and the bytes of weights that it receives, computed without a network."""
    model = numpy_models.build(MODEL, data.features, np.random.default_rng(SEED))
    master, policy = model.parameters.copy(), precision(POLICY)
    optimizer = MomentumSgd(master.size, RATE / WORKERS, MOMENTUM)
    parts = [(data.train_inputs[w::WORKERS], data.train_labels[w::WORKERS]) for w in range(WORKERS)]
    draws = [batches(len(own[1]), BATCH, np.random.default_rng([SEED, w])) for w, own in enumerate(parts)]
    sent = 0
    for _ in range(STEPS):
        total = np.zeros_like(master)
        for (inputs, labels), draw in zip(parts, draws, strict=True):
            drawn = next(draw)
            model.forward_backward(inputs[drawn], labels[drawn])
            total += codecs.get(CODEC).roundtrip(model.gradients)
        optimizer.step(master, total)
        weights, held = model.named(master), model.named(model.parameters)
        policy.observe(packed(weights))
        for name, array in weights.items():
            bits = policy.bits(name) if array.ndim > 1 else 32
            held[name][...] = codecs.get(f"truncate:{bits}").roundtrip(array)
            sent += 1 + array.size * bits // 8
    return model.parameters, sent


@dataclass(frozen=True)
class Run:
    reported: list[dict[str, Any]]
    """Outcomes by rank, the aggregator last."""
    weights: Floats
    """Worker 0's final weights."""
    sent_bytes: int
    """Payload of all NICs, by their counters."""


@pytest.fixture(scope="module")
def data() -> DataSet:
    return synthetic(1, train=256, test=64)


@pytest.fixture(scope="module")
def run(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("weights")
    data.save(directory / "data")
    command = [
        *(
            sys.executable,
            "-m",
            "softnic.experiments.train",
            "--strategy",
            f"wa+{CODEC}+{POLICY}",
            "--model",
            MODEL,
            "--events",
        ),
        *("--steps", str(STEPS), "--batch", str(BATCH), "--seed", str(SEED), "--learning-rate", str(RATE)),
        *("--momentum", str(MOMENTUM), "--data", str(directory / "data"), "--weights", str(directory / "weights.npy")),
    ]
    with Cluster(nodes=WORKERS + 1) as cluster:
        one = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        ranks = [
            subprocess.Popen(command, env={**one, **cluster.env(rank)}, stdout=subprocess.PIPE, text=True)
            for rank in range(cluster.nodes)
        ]
        reported = [json.loads(rank.communicate(timeout=300)[0].splitlines()[-1]) for rank in ranks]
        sent = NicTraffic.of(cluster).payload
    return Run(reported, np.load(directory / "weights.npy"), sent)


def test_ranks_end_with_the_bits_of_the_reference(data: DataSet, run: Run) -> None:
    expected, _ = reference(data)
    np.testing.assert_array_equal(run.weights.view(np.uint32), expected.view(np.uint32))
    assert len({each["weights"] for each in run.reported}) == 1


def test_precision_grows_during_training(data: DataSet, run: Run) -> None:
    _, sent = reference(data)
    assert [each["weights_bytes"] for each in run.reported] == [sent] * (WORKERS + 1)
    whole = run.reported[0]["exchanged_bytes"]
    assert 0.3 * whole < sent < 0.9 * whole, "between 8 bits and 32, and neither all the time"


def test_both_legs_are_small_on_the_wire(run: Run) -> None:
    """Each leg crosses the network once per worker, besides the ranks' bootstrap and traces."""
    whole, weights = run.reported[0]["exchanged_bytes"], run.reported[0]["weights_bytes"]
    gradients = run.sent_bytes / WORKERS - weights
    assert whole / 16 < gradients < whole / 2
