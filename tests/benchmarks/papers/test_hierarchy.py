"""INCEPTIONN's Fig. 1: every organisation sums, and takes the time of the bytes on its busiest links."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.inceptionn import fig1
from softnic.sim.cluster import SimCluster
from softnic.sim.spec import ClusterSpec

WORKERS, GROUP, WORDS = 6, 3, 2400


@pytest.mark.parametrize("name", fig1.ORGANISATIONS)
@pytest.mark.parametrize("codec", ["", "bfp:15"])
def test_every_worker_has_the_sum(name: str, codec: str) -> None:
    program, more = fig1.ORGANISATIONS[name]
    nodes = WORKERS + more(WORKERS, GROUP)
    vectors = np.random.default_rng(3).standard_normal((nodes, WORDS), np.float32)
    total = vectors[:WORKERS].sum(axis=0)
    cluster = SimCluster(ClusterSpec(nodes=nodes))
    cluster.run(lambda rank: program(rank, vectors[rank.index], WORKERS, GROUP, 0.0, codec))
    for own in vectors[:WORKERS]:
        np.testing.assert_allclose(own, total, atol=1e-4 if not codec else 0.02)


def test_times_are_those_of_the_bytes_on_the_busiest_links() -> None:
    words, by_link = 1 << 17, (1 << 22) / 10e9
    for name in fig1.ORGANISATIONS:
        taken = fig1.seconds(name, 8, 4, words, "")
        alone = fig1.vectors_by_bytes(name, 8, 4) * by_link
        assert alone < taken < 1.5 * alone, name
