"""The smart NIC's perceptron: shape, gradients compared with finite differences, learning."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import is_registered
from softnic.experiments import numpy_models
from softnic.experiments.data import synthetic
from softnic.experiments.numpy_models import LAYERS, WIDTH, Perceptron
from softnic.experiments.numpy_replica import MomentumSgd


def test_layers_are_square_and_without_biases() -> None:
    assert (LAYERS, WIDTH) == (20, 2048)
    model = Perceptron(5, np.random.default_rng(0), layers=3, width=16)
    assert model.layers == [slice(0, 256), slice(256, 512), slice(512, 768)]
    assert model.parameters.shape == model.gradients.shape == (768,)
    assert is_registered(model.parameters)
    assert is_registered(model.gradients)


def test_gradients_match_finite_differences() -> None:
    rng = np.random.default_rng(3)
    model = Perceptron(4, rng, layers=3, width=6)
    model.parameters += rng.normal(0, 0.3, len(model.parameters)).astype(np.float32)
    inputs = rng.normal(size=(7, 4)).astype(np.float32)
    labels = rng.integers(0, 10, 7)
    model.forward_backward(inputs, labels)
    gradients = model.gradients.copy()
    step = np.float32(1e-3)  # small, and with this seed it crosses no kink of ReLU
    for index in range(len(gradients)):
        kept = model.parameters[index]
        model.parameters[index] = kept + step
        above = model.forward(inputs, labels)
        model.parameters[index] = kept - step
        below = model.forward(inputs, labels)
        model.parameters[index] = kept
        assert (above - below) / (2 * step) == pytest.approx(gradients[index], abs=1e-3)


def test_twenty_layers_learn() -> None:
    data = synthetic(1, train=512, test=128)
    name = "mlp:20x64"
    model = numpy_models.build(name, data.features, np.random.default_rng(7))
    optimizer = MomentumSgd(model.parameters.size, *numpy_models.rates(name))
    losses = []
    for _ in range(30):
        losses.append(model.forward_backward(data.train_inputs, data.train_labels))
        optimizer.step(model.parameters, model.gradients)
    assert losses[-1] < 0.95 * losses[0]
    assert model.accuracy(data.test_inputs, data.test_labels) > 0.6


def test_all_ranks_have_the_same_projection() -> None:
    """Whatever the weights are drawn from."""
    data = synthetic(2, train=8, test=1)
    one, other = (Perceptron(64, np.random.default_rng(seed), 2, 16) for seed in (1, 2))
    other.parameters[:] = one.parameters
    assert one.forward_backward(data.train_inputs, data.train_labels) == other.forward_backward(
        data.train_inputs, data.train_labels
    )


@pytest.mark.parametrize(("name", "count"), [("mlp:2x8", 128), ("mlp:1x1", 1), ("hdc", 65 * 500 + 3 * 250500 + 5010)])
def test_models_by_name(name: str, count: int) -> None:
    assert numpy_models.build(numpy_models.check(name), 64, np.random.default_rng(0)).parameters.size == count


@pytest.mark.parametrize("name", ["", "resnet", "mlp:", "mlp:20", "mlp:0x8", "mlp:2x", "mlp:20x512x2", "HDC"])
def test_an_unknown_model_name_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="is not a model: hdc, or mlp:LAYERSxWIDTH"):
        numpy_models.check(name)
