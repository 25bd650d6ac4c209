"""Networks have the published shapes; gradients are those of real steps, and are cached."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.papers import networks
from benchmarks.papers.cache import cache_directory
from benchmarks.papers.context import Context
from benchmarks.papers.learner import enlarged
from softnic.experiments.data import DataSet
from softnic.experiments.torch_replica import TorchReplica
from tests import needs

torch = needs.module("torch")


@pytest.mark.parametrize(
    ("name", "parameters"), [("alexnet", 60_965_224), ("resnet50", 25_557_032), ("vgg16", 138_357_544)]
)
def test_networks_have_as_many_weights_as_published(name: str, parameters: int) -> None:
    assert networks.parameter_bytes(name) == 4 * parameters


@pytest.mark.parametrize("name", networks.NAMES)
def test_networks_take_images_and_give_logits(name: str) -> None:
    with torch.device("meta"):
        shape = networks.NETWORKS[name](10)(torch.empty(2, 3, 224, 224)).shape
    assert tuple(shape) == (2, 10)


def test_a_network_learns(data: DataSet) -> None:
    training = TorchReplica(networks.build("resnet50", classes=10), lambda _step: 0.001, momentum=0.9)
    training.timeline.start()
    batch = enlarged(data.train_inputs[:4], data.train_labels[:4], side=32)
    assert batch[0].shape == (4, 3, 32, 32)
    losses = []
    for _ in range(4):
        losses.append(training.accumulate([batch]))
        training.update()
    assert losses[-1] < losses[0]


def test_gradients_of_parts_are_those_of_the_whole(data: DataSet) -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 10))
    training = TorchReplica(model, lambda _step: 0.1, momentum=0.9)
    images, labels = enlarged(data.train_inputs[:8], data.train_labels[:8], side=8)
    whole = training.accumulate([(images, labels)]), training.gradients.copy()
    parts = training.accumulate([(images[:4], labels[:4]), (images[4:], labels[4:])]), training.gradients.copy()
    assert whole[0] == pytest.approx(parts[0], rel=1e-5)
    np.testing.assert_allclose(whole[1], parts[1], atol=1e-6)
    assert whole[1].size == 3 * 8 * 8 * 10 + 10


def test_stages_are_made_once(context: Context) -> None:
    said: list[str] = []
    context = replace(context, progress=said.append)
    first = context.stages("hdc")
    assert [stage.step for stage in first] == [10, 30]
    assert not np.array_equal(first[0].floats, first[1].floats)
    assert said
    said.clear()
    again = context.stages("hdc")
    assert not said
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.floats, other.floats)
        assert (one.loss, one.batch) == (other.loss, other.batch)


def test_stages_are_made_again_where_settings_differ_or_files_are_missing(context: Context) -> None:
    said: list[str] = []
    context = replace(context, progress=said.append)
    first = context.stages("hdc")
    for half_made in cache_directory().glob("hdc-*/30.json"):
        half_made.unlink()
    said.clear()
    np.testing.assert_array_equal(context.stages("hdc")[1].floats, first[1].floats)
    assert said
    other = replace(context, settings=replace(context.settings, seed=8))
    assert not np.array_equal(other.stages("hdc")[1].floats, first[1].floats)


def test_a_networks_stages(context: Context) -> None:
    settings = replace(context.settings, side=32)
    stages = replace(context, models=("resnet50",), settings=settings).stages("resnet50")
    [stage] = stages
    assert (stage.model, stage.step, stage.batch) == ("resnet50", 1, 2)
    assert stage.floats.size == networks.parameter_bytes("resnet50", classes=10) // 4
    assert np.isfinite(stage.floats).all()
    assert np.abs(stage.floats).max() > 0
