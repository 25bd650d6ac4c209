"""Emulated exchanges give the bits that ranks get over a network."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.inceptionn import digits
from benchmarks.papers.inceptionn.emulate import EmulatedAggregator, EmulatedRing, exact_sum
from softnic import Cluster, codecs
from softnic.experiments.data import DataSet, Floats

RANK = """
import sys
import numpy as np
from softnic import MPI
own = np.load(sys.argv[1])[MPI.COMM_WORLD.Get_rank()]
MPI.COMM_WORLD.Allreduce_comp(MPI.IN_PLACE, own, codec=sys.argv[2], algorithm="ring")
np.save(f"{sys.argv[1]}.{MPI.COMM_WORLD.Get_rank()}.npy", own)
"""


def gradients(size: int, count: int) -> list[Floats]:
    rng = np.random.default_rng(5)
    return list(rng.standard_normal((size, count), dtype=np.float32) * np.float32(0.01))


def test_the_ring_gives_the_bits_of_real_ranks(tmp_path: Path) -> None:
    given, codec = gradients(3, 1001), "inceptionn:10"
    stored = tmp_path / "given.npy"
    np.save(stored, given)
    with Cluster(nodes=3) as cluster:
        command = [sys.executable, "-c", RANK, str(stored), codec]
        ranks = [subprocess.Popen(command, env={**os.environ, **cluster.env(rank)}) for rank in range(3)]
        assert [rank.wait(60) for rank in ranks] == [0, 0, 0]
    expected = np.empty(1001, np.float32)
    EmulatedRing(codecs.get(codec))(given, expected)
    for rank in range(3):
        np.testing.assert_array_equal(np.load(f"{stored}.{rank}.npy").view(np.uint32), expected.view(np.uint32))


def test_the_inputs_are_not_modified() -> None:
    given = gradients(4, 100)
    before = [each.copy() for each in given]
    for exchange in (exact_sum, EmulatedRing(codecs.get("truncate:8")), EmulatedAggregator(codecs.get("truncate:8"))):
        exchange(given, np.empty(100, np.float32))
    np.testing.assert_array_equal(given, before)


def test_an_aggregator_rounds_once() -> None:
    given, out = gradients(4, 64), np.empty(64, np.float32)
    codec = codecs.get("bounded:8")
    EmulatedAggregator(codec)(given, out)
    exact = np.sum(given, axis=0, dtype=np.float64)
    assert 0 < np.abs(out - exact).max() <= 4 * 2.0**-8
    single = np.empty(64, np.float32)
    EmulatedAggregator(codec)(given[:1], single)
    np.testing.assert_array_equal(single, codec.roundtrip(given[0]))


def test_the_ratio_counts_every_hop() -> None:
    """truncate:16 halves all data, so all hops of all blocks must be in both sums."""
    assert EmulatedRing(codecs.get("truncate:16")).ratio(gradients(4, 4096)) == pytest.approx(2.0)
    small = [each * np.float32(1e-9) for each in gradients(4, 4096)]
    assert EmulatedRing(codecs.get("inceptionn:10")).ratio(small) == pytest.approx(16.0)


def test_training_is_the_same_with_exact_rounding(data: DataSet) -> None:
    plan = replace(digits.plan(steps=10), rate=0.02)
    exact, ring = digits.HdcWorkers(data, plan), digits.HdcWorkers(data, plan, EmulatedRing(codecs.get("truncate:32")))
    losses, rounded = ([workers.loss for _ in workers.steps(plan.steps)] for workers in (exact, ring))
    np.testing.assert_allclose(losses, rounded, rtol=1e-3)
    assert losses[-1] < losses[0]
    assert exact.accuracy == pytest.approx(ring.accuracy, abs=0.01)


def test_the_rate_falls_as_in_table_1() -> None:
    factors = [digits.rate_factor(10_000, step) for step in (0, 1_999, 2_000, 9_999)]
    assert factors == pytest.approx([1, 1, 0.2, 0.2**4])
    assert digits.rate_factor(1000, 200) == pytest.approx(0.2)
