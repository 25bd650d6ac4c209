"""Training over several ranks without a network."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import codecs
from softnic.experiments.data import DataSet, Floats, digits
from softnic.experiments.numpy_models import Classifier
from softnic.experiments.numpy_replica import MomentumSgd
from softnic.experiments.trainer import TrainingPlan, train
from tests.experiments.ring import Rank, Ring, train_together


@pytest.fixture(scope="module")
def data() -> DataSet:
    return digits()


def test_one_rank_trains_as_without_softnic(data: DataSet) -> None:
    plan = TrainingPlan(steps=3, batch=10, seed=1)
    [outcome] = train_together(data, plan, 1)
    model = Classifier(data.features, np.random.default_rng(1))
    optimizer = MomentumSgd(len(model.parameters))
    order = np.random.default_rng([1, 0]).permutation(len(data.train_labels))
    losses = []
    for step in range(3):
        drawn = order[10 * step : 10 * step + 10]
        losses.append(model.forward_backward(data.train_inputs[drawn], data.train_labels[drawn]))
        optimizer.step(model.parameters, model.gradients)
    assert outcome.loss == losses[-1]
    assert outcome.accuracy == model.accuracy(data.test_inputs, data.test_labels)
    assert outcome.exchanged_bytes == 3 * model.parameters.nbytes


def test_ranks_end_with_the_same_weights_and_share_the_work(data: DataSet) -> None:
    outcomes = train_together(data, TrainingPlan(steps=4), 4)
    assert [outcome.rank for outcome in outcomes] == [0, 1, 2, 3]
    assert len({outcome.weights for outcome in outcomes}) == 1
    assert len({outcome.accuracy for outcome in outcomes}) == 1
    assert len({outcome.loss for outcome in outcomes}) == 4, "ranks draw samples of their own"
    for outcome in outcomes:
        assert 0 < outcome.exchange_s < outcome.total_s


def test_the_seed_decides_everything_but_time(data: DataSet) -> None:
    def weights(seed: int) -> str:
        return train_together(data, TrainingPlan(steps=2, seed=seed), 2)[0].weights

    assert weights(3) == weights(3)
    assert weights(3) != weights(4)


def test_the_sum_is_divided_by_the_ranks(data: DataSet) -> None:
    """Ranks with equal gradients take the same step as one rank alone."""

    class Same(Rank):
        """Sums as if all ranks had this one's gradients."""

        def sum(self, gradients: Floats) -> None:
            gradients *= np.float32(4)

    ring = Ring(1, lambda sent: sent)
    rank = Same(ring, 0)
    alone = train_together(data, TrainingPlan(steps=3), 1)[0]
    rank.size = 4
    part = DataSet(
        "part",
        np.repeat(data.train_inputs, 4, axis=0),
        np.repeat(data.train_labels, 4),
        data.test_inputs,
        data.test_labels,
    )
    assert train(part, TrainingPlan(steps=3), rank)[0].outcome.weights == alone.weights


def test_progress_is_reported_for_every_step(data: DataSet) -> None:
    reported: list[tuple[int, float]] = []
    train(
        data,
        TrainingPlan(steps=3),
        Rank(Ring(1, lambda sent: sent), 0),
        lambda step, loss: reported.append((step, loss)),
    )
    assert [step for step, _ in reported] == [1, 2, 3]
    assert all(loss > 0 for _, loss in reported)


@pytest.mark.slow
def test_compressed_gradients_train_nearly_as_well(data: DataSet) -> None:
    """The claim of the demo on few steps: a codec's error hardly affects the accuracy."""
    plan = TrainingPlan(steps=60)
    exact = train_together(data, plan, 4)[0].accuracy
    assert exact > 0.93
    for name, points in (("bounded:10", 0.02), ("inceptionn:10", 0.08)):
        outcomes = train_together(data, plan, 4, codecs.get(name).roundtrip)
        assert len({outcome.weights for outcome in outcomes}) == 1
        assert outcomes[0].accuracy > exact - points, name
