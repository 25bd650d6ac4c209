"""Lists of layers: published sizes, and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from softnic.model import layers


@pytest.mark.parametrize(
    ("name", "count", "parameters", "gflop"),
    [
        ("mlp20", 20, 20 * 2048 * 2048, 0.168),
        ("alexnet", 8, 60_965_224, 1.45),
        ("resnet50", 54, 25_557_032, 8.2),
        ("vgg16", 16, 138_357_544, 30.9),
        ("hdc", 5, 1_149_010, 0.0023),
    ],
)
def test_networks_are_as_large_as_published(name: str, count: int, parameters: int, gflop: float) -> None:
    """AlexNet, ResNet-50 and VGG-16 have 233, 97.5 and 528 MiB of gradients, in INCEPTIONN 233, 98 and 525 MB. FLOP are
    those of the forward pass, two for each multiply-add."""
    network = layers.network(name)
    assert len(network) == count
    assert layers.parameters_of(network) == parameters
    assert sum(layer.forward_flop for layer in network) / 1e9 == pytest.approx(gflop, rel=0.02)


def test_backward_takes_twice_the_flop_except_in_the_first_layer() -> None:
    first, *rest = layers.network("vgg16")
    assert first.backward_flop == first.forward_flop
    assert all(layer.backward_flop == 2 * layer.forward_flop for layer in rest)


def test_a_file_of_layers(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps([{"parameters": 10}, {"name": "b", "parameters": 5, "forward_flop": 7}]))
    assert layers.load(path) == (layers.Layer("layer1", 10, 20.0, 40.0), layers.Layer("b", 5, 7.0, 14.0))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '[{"parameters": -1}]', '[{"parameters": 1, "x": 2}]', '[{"name": ""}]']
)
def test_another_kind_of_file_is_an_error_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "layers.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"layers\.json"):
        layers.load(path)


def test_an_unknown_network_is_an_error() -> None:
    with pytest.raises(ValueError, match="no network: mlp20"):
        layers.network("gpt")
