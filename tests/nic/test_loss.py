"""The seeded loss lab: 10 MB, half of it tagged, over a link that loses, doubles and reorders, 200 times.

Every seed draws its own tags, cuts and codecs; whatever is lost or re-cut, untagged bytes arrive equal and tagged
floats equal to the codec's round trip.
"""

from __future__ import annotations

import os
import random
from dataclasses import asdict

import numpy as np
import pytest

from softnic.model.programs import nic
from softnic.packet.segment import PLAIN, Tag
from softnic.sim.cluster import SimCluster
from softnic.sim.spec import ClusterSpec
from tests.slow import slow_after, some

from .harness import TOS
from .nodes import TxPart, expected, introduced, transfer, two_nodes

SEEDS = 200 if "SOFTNIC_SANITIZED" not in os.environ else 5
GROUP = 5
HALF = 5_000_000
LINK = {"rate_bps": 1e9, "delay_s": 50e-6, "loss": 0.03, "duplicate": 0.01, "reorder": 0.05}
COALESCE_S = [100e-6, 300e-6]
"""How often frames leave the link at most: less than a round trip apart, or several round trips' worth at once."""
CODECS = [None, None, "bounded:4", "inceptionn:10", "raw"]


def parts_of(seed: int) -> list[TxPart]:
    """Half plain, half tagged bytes, in turns, each tagged range of any length: whole words or not."""
    rng, generator = random.Random(seed), np.random.default_rng(seed)
    plain = generator.bytes(HALF)
    sigma = 10 ** rng.uniform(-3, 0)
    floats = (generator.standard_normal(HALF // 4, np.float32) * np.float32(sigma)).tobytes()
    ranges = rng.randrange(1, 12)
    plain_cuts = [0, *sorted(rng.randrange(HALF) for _ in range(ranges - 1)), HALF]
    float_cuts = [0, *sorted(4 * rng.randrange(HALF // 4) for _ in range(ranges - 1)), HALF]
    parts: list[TxPart] = []
    for index in range(ranges):
        tail = bytes(range(rng.randrange(4)))
        parts.append((PLAIN, plain[plain_cuts[index] : plain_cuts[index + 1]]))
        parts.append((Tag(TOS, rng.choice(CODECS)), floats[float_cuts[index] : float_cuts[index + 1]] + tail))
    return [part for part in parts if part[1]]


@pytest.mark.parametrize("group", slow_after(6, some(20, range(SEEDS // GROUP))))
def test_nothing_is_lost_or_altered(group: int) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        parts = parts_of(seed)
        mode = "packet" if seed % 5 == 4 else "fill"
        link = {**LINK, "coalesce_s": COALESCE_S[seed % 2]}
        a, b = two_nodes(seed, link=link, mode=mode, equal_sizes=seed // 2 % 2 == 1)
        program, _ = transfer(a, b, parts, clock=introduced(a, b))
        assert program.got == expected(parts), f"seed {seed}"
        emulated = a.link.counters()
        assert min(emulated[f"emulated_{fate}"] for fate in ("lost", "duplicated", "reordered")) > 0
        tagged = sum(len(data) for tag, data in parts if tag.tos == TOS)
        assert a.nic.counters.tx_offload_original_bytes >= tagged
        flow = program.connection.nic
        assert flow.offload_original_bytes_sent == tagged  # what was sent again is not counted again
        assert flow.offload_encoded_bytes_sent <= a.nic.counters.tx_offload_encoded_bytes
        assert all(value == 0 for name, value in asdict(b.nic.counters).items() if "drop" in name)


@pytest.mark.parametrize("seed", range(3))
def test_what_arrived_is_not_sent_again(seed: int) -> None:
    """Data flows both ways and several flows share the links, so that reports of gaps wait, and are lost, too."""
    nodes, calls = 3, 2
    cluster = SimCluster(ClusterSpec(nodes=nodes, rate_bps=100e6, delay_s=0.025, loss=0.005, seed=seed))
    vectors = [np.zeros(750_000, np.float32) for _ in range(nodes)]
    for _ in range(calls):
        cluster.run(lambda rank: nic(rank, vectors[rank.index], "", "direct"))
    needed = calls * 2 * (nodes - 1) * vectors[0].nbytes
    arrived = sum(rank.node.nic.counters.rx_bytes for rank in cluster.ranks)
    assert sum(rank.node.link.counters()["emulated_lost"] for rank in cluster.ranks) > 50
    assert needed < arrived < 1.001 * needed
