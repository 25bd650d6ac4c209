"""Networks in PyTorch and their data: seeds, shapes, errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import needs

torch = needs.module("torch")

from softnic.experiments import torch_models  # noqa: E402
from softnic.experiments.data import DataError  # noqa: E402

SIZES = {"hdc": 1149010, "convnet": 395386, "resnet": 308074, "transformer": 437888}


@pytest.mark.parametrize("name", torch_models.NAMES)
def test_a_seed_fixes_the_weights_and_leaves_other_randomness_alone(name: str) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, again, other = (list(torch_models.build(name, seed).parameters()) for seed in (7, 7, 8))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert sum(parameter.numel() for parameter in first) == SIZES[name]


@pytest.mark.parametrize("name", torch_models.NAMES)
def test_every_parameter_gets_a_gradient_from_the_models_data(name: str, tmp_path: Path) -> None:
    path = None
    if torch_models.reads_text(name):
        path = tmp_path / "text"
        path.write_text("the quick brown fox; " * 200)
    else:
        needs.module("sklearn")
    data = torch_models.data(name, path)
    model = torch_models.build(name)
    outputs = model(data.train_inputs[:4])
    assert outputs.shape[:-1] == data.train_labels[:4].shape
    torch.nn.functional.cross_entropy(outputs.flatten(0, -2), data.train_labels[:4].flatten()).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


def test_a_character_is_predicted_from_earlier_ones_only() -> None:
    model = torch_models.build("transformer").eval()
    given = torch.randint(
        torch_models.VOCABULARY, (1, torch_models.CONTEXT), generator=torch.Generator().manual_seed(0)
    )
    changed = given.clone()
    changed[0, 40] = (changed[0, 40] + 1) % torch_models.VOCABULARY
    with torch.no_grad():
        before, after = model(given), model(changed)
    torch.testing.assert_close(before[:, :40], after[:, :40])
    assert not torch.allclose(before[:, 40:], after[:, 40:])


def test_text_is_cut_into_windows_and_labels_are_the_next_characters(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("0123456789" * 200 + "\u00e9")
    data = torch_models.text(path)
    assert data.train_inputs.shape == data.train_labels.shape == (1800 // torch_models.CONTEXT, torch_models.CONTEXT)
    assert bytes(data.train_inputs.flatten()[:12].tolist()) == b"012345678901"
    assert torch.equal(data.train_inputs.flatten()[1:], data.train_labels.flatten()[:-1])
    assert bytes(data.test_inputs[0, :3].tolist()) == b"012"
    assert len(data.test_inputs) == 201 // torch_models.CONTEXT


def test_pythons_language_reference_is_long_enough() -> None:
    data = torch_models.text(None)
    assert len(data.train_inputs) > 5000
    assert int(data.train_inputs.max()) < torch_models.VOCABULARY


def test_small_images_are_enlarged_and_in_the_same_order() -> None:
    needs.module("sklearn")
    data = torch_models.images(None)
    assert data.train_inputs.shape == (1437, 1, torch_models.SIDE, torch_models.SIDE)
    assert data.train_inputs.dtype == torch.float32
    assert 0 <= float(data.train_inputs.min()) < float(data.train_inputs.max()) <= 1
    assert len(data.train_labels) == 1437


def test_networks_follow_the_photographs_colours_and_classes() -> None:
    needs.module("sklearn")
    needs.module("skimage")
    data = torch_models.photographs()
    assert (data.name, data.channels, data.classes) == ("photos", 3, 10)
    assert data.train_inputs.shape == (20_000, 3, 32, 32)
    assert data.test_inputs.shape == (4_000, 3, 32, 32)
    assert sorted(set(data.train_labels.tolist())) == sorted(set(data.test_labels.tolist())) == list(range(10))
    for name in ("convnet", "resnet"):
        outputs = torch_models.build(name, channels=data.channels, classes=data.classes)(data.train_inputs[:4])
        assert outputs.shape == (4, data.classes)
    first = SIZES["resnet"] + 2 * 9 * 32
    assert torch_models.parameters("resnet", data.channels, data.classes) == first
    assert torch_models.parameters("resnet", data.channels, 12) == first + 2 * 129


def test_too_little_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_text("too short")
    with pytest.raises(DataError, match="9 characters are too few"):
        torch_models.text(path)


def test_an_unknown_model_is_an_error() -> None:
    with pytest.raises(ValueError, match="'vgg' is not a model: hdc, convnet, resnet, transformer"):
        torch_models.build("vgg")
