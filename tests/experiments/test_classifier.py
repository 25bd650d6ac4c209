"""The classifier: gradients compared with finite differences, the optimizer with its formula."""

from __future__ import annotations

import numpy as np
import pytest

from softnic.experiments.numpy_models import HIDDEN, Classifier
from softnic.experiments.numpy_replica import MomentumSgd


def small(seed: int = 0) -> Classifier:
    return Classifier(6, np.random.default_rng(seed), hidden=(5, 4))


def test_hdc_has_the_papers_shape() -> None:
    assert HIDDEN == (500, 500, 500, 500)
    weights = 784 * 500 + 3 * 500 * 500 + 500 * 10
    biases = 4 * 500 + 10
    assert len(Classifier(784, np.random.default_rng(0)).parameters) == weights + biases


def test_gradients_match_finite_differences() -> None:
    rng = np.random.default_rng(8)
    model = small()
    model.parameters += rng.normal(0, 0.1, len(model.parameters)).astype(np.float32)
    inputs = rng.normal(size=(7, 6)).astype(np.float32)
    labels = rng.integers(0, 10, 7)
    model.forward_backward(inputs, labels)
    gradients = model.gradients.copy()
    step = np.float32(1e-3)  # small, to cross no kink of ReLU
    for index in range(len(gradients)):
        kept = model.parameters[index]
        model.parameters[index] = kept + step
        above = model.forward_backward(inputs, labels)
        model.parameters[index] = kept - step
        below = model.forward_backward(inputs, labels)
        model.parameters[index] = kept
        assert (above - below) / (2 * step) == pytest.approx(gradients[index], abs=1e-3)


def test_zero_weights_have_the_loss_of_guessing() -> None:
    model = small()
    model.parameters[:] = 0
    assert model.forward_backward(np.ones((3, 6), dtype=np.float32), np.array([0, 4, 9])) == pytest.approx(np.log(10))


def test_large_logits_do_not_overflow() -> None:
    model = small()
    model.parameters *= 1e4
    loss = model.forward_backward(np.full((2, 6), 1e4, dtype=np.float32), np.array([0, 1]))
    assert np.isfinite(loss)
    assert np.isfinite(model.gradients).all()


def test_equal_parameters_make_equal_models() -> None:
    """One flat vector is all there is: two models with equal vectors are equal."""
    inputs = np.random.default_rng(2).normal(size=(50, 6)).astype(np.float32)
    one, other = small(1), small(2)
    assert not np.array_equal(one.predict(inputs), other.predict(inputs))
    other.parameters[:] = one.parameters
    assert np.array_equal(one.predict(inputs), other.predict(inputs))


def test_accuracy_counts_correct_rows() -> None:
    model = small()
    inputs = np.random.default_rng(3).normal(size=(8, 6)).astype(np.float32)
    labels = model.predict(inputs)
    assert model.accuracy(inputs, labels) == 1
    labels[:2] = (labels[:2] + 1) % 10
    assert model.accuracy(inputs, labels) == 0.75


def test_momentum_follows_the_formula() -> None:
    optimizer = MomentumSgd(1, rate=0.5, momentum=0.9)
    parameters = np.zeros(1, dtype=np.float32)
    seen = []
    for _ in range(3):
        optimizer.step(parameters, np.ones(1, dtype=np.float32))
        seen.append(float(parameters[0]))
    # v: -0.5, -0.95, -1.355
    assert seen == pytest.approx([-0.5, -1.45, -2.805])
