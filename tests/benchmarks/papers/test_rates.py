"""LGC's bytes on networks of full size, and the work of its autoencoder."""

from __future__ import annotations

from math import prod

import pytest

from benchmarks.papers.lgc import paper as lgc_paper
from benchmarks.papers.lgc import rates, shapes

PARAMETERS = {"ResNet50, 1,000 classes": 25_557_032, "ResNet101, 10 classes": 42_520_650}
"""He et al.'s networks, as PyTorch's torchvision counts them."""


def test_networks_have_the_published_sizes() -> None:
    words = {network.title: network.words for network in shapes.NETWORKS}
    assert {title: words[title] for title in PARAMETERS} == PARAMETERS
    assert prod(shapes.pspnet(32)["head.conv.weight"]) == 4096 * 512 * 9
    for name in ("ResNet50", "ResNet101"):
        [network] = [each for each in shapes.NETWORKS if each.published == name]
        assert 4 * network.words / 1e6 == pytest.approx(lgc_paper.SIZES[name][lgc_paper.BASELINE][0], rel=1e-3)


def test_bytes_of_a_step_by_hand() -> None:
    network = shapes.NetworkShapes(
        "small", {"a.weight": (10,), "b.weight": (3200,), "b.bias": (16,), "c.weight": (200,)}, 2, "ResNet50"
    )
    step = rates.step_bytes(network, 1, share=0.1)
    assert (step.whole, step.first, step.last) == (4 * 3426, 40, 80)
    assert step.covered == 320 + 2
    assert step.selected == 4 * (320 + 2 + 20)
    assert step.code == 4 * 4 * 21  # 322 values, filled up to 336, 4 float32 for 16
    assert step.scales == 8
    assert step.innovation == 4 * (32 + 1) + 41
    values, everything = rates.sent(lgc_paper.RING, step, 2)
    assert values == 336 + 80
    assert everything == values + 40 + (step.ordered_indices + 8) // 2
    assert rates.sent(lgc_paper.DGC, step, 2) == (step.selected, step.selected + step.indices)
    server, others = (rates.sent(method, step, 2) for method in (lgc_paper.SERVER, lgc_paper.SERVER_OTHERS))
    assert [a - b for a, b in zip(server, others, strict=True)] == [step.code, step.code]


def test_work_of_the_autoencoder_by_hand() -> None:
    encoder = 8 * 3 * 1 * 64 + 4 * 3 * 64 * 128 + 2 * 3 * 128 * 256 + 1 * 3 * 256 * 64 + 1 * 1 * 64 * 4
    decoder = 1 * 3 * 4 * 4 + 1 * 3 * 4 * 32 + 2 * 3 * 32 * 64 + 4 * 3 * 64 * 128 + 8 * 3 * 128 * 32 + 16 * 32
    assert rates.gflop(16) == pytest.approx((2e-9 * encoder, 2e-9 * decoder))
    assert rates.gflop(33)[0] == pytest.approx(3 * rates.gflop(1)[0])
