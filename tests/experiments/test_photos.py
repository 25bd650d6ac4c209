"""Patches of photographs: training and test regions, classes, seeds, colours, missing files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from softnic.experiments import photos
from softnic.experiments.data import DataError
from tests import needs

SHAPE = (photos.CHANNELS, photos.SIDE, photos.SIDE)


@pytest.fixture
def _installed() -> None:
    needs.module("sklearn")
    needs.module("skimage")


@pytest.mark.usefixtures("_installed")
def test_a_seed_fixes_every_bit() -> None:
    first, again, other = (photos.load(200, 50, seed) for seed in (7, 7, 8))
    for name in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
        assert getattr(first, name).tobytes() != getattr(other, name).tobytes()


@pytest.mark.usefixtures("_installed")
def test_classes_are_balanced_and_mixed() -> None:
    data = photos.load(400, 100)
    assert data.name == "photos"
    assert data.train_inputs.shape == (400, np.prod(SHAPE))
    assert data.train_inputs.dtype == np.float32
    assert 0 == data.train_inputs.min() < data.train_inputs.max() == 1
    assert np.bincount(data.train_labels).tolist() == [40] * photos.CLASSES
    assert np.bincount(data.test_labels).tolist() == [10] * photos.CLASSES
    order = np.random.default_rng(7).permutation(400)  # as a training may draw it
    for start in range(0, 400, 40):
        assert len(set(data.train_labels[order[start : start + 40]])) >= 6
    for rank in range(4):
        assert len(set(data.train_labels[rank::4])) == photos.CLASSES


@pytest.mark.usefixtures("_installed")
def test_no_pixel_is_in_both_sets() -> None:
    rng = np.random.default_rng(1)
    for file in photos.find():
        photograph = photos.read(file)
        seen = {test: np.zeros(photograph.shape[:2], dtype=bool) for test in (False, True)}
        for test, mask in seen.items():
            drawn = 20 * len(photos.blocks(photograph, test=test))
            for row, column in photos.places(photograph, drawn, rng, test=test):
                assert 0 <= row <= photograph.shape[0] - photos.SIDE
                assert 0 <= column <= photograph.shape[1] - photos.SIDE
                mask[row : row + photos.SIDE, column : column + photos.SIDE] = True
        assert not (seen[False] & seen[True]).any(), file.name
        # Nearly all of the photograph is used, a fifth of it for the test.
        assert seen[False].mean() > 0.6, file.name
        assert 0.17 < seen[True].sum() / (seen[True].sum() + seen[False].sum()) < 0.23, file.name


def test_patches_are_cut_where_their_set_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Photographs in which the blocks of the test set are white and all else is black."""
    rows, columns = np.indices((300, 451)) // 48
    white = (columns + 2 * rows) % 5 == 0
    white[6 * 48 :], white[:, 9 * 48 :] = 1, 1  # the edges, which belong to no whole block
    photograph = np.repeat(np.where(white, 255, 0).astype(np.uint8)[..., None], 3, axis=2)
    monkeypatch.setattr(photos, "find", lambda: [tmp_path] * photos.CLASSES)
    monkeypatch.setattr(photos, "read", lambda _file: photograph)
    monkeypatch.setattr(photos, "recoloured", lambda patches, _rng: patches.astype(np.float32) / 255)
    data = photos.load(1000, 1000)
    assert data.train_inputs.max() == 0
    assert data.test_inputs.min() == 1


def test_patches_are_pixels_of_the_photograph_some_of_them_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A photograph whose red rises to the right and whose green rises downwards."""
    rows, columns = np.indices((96, 240))
    photograph = np.stack([columns, rows, np.full_like(rows, 9)], axis=2).astype(np.uint8)
    monkeypatch.setattr(photos, "find", lambda: [Path()] * photos.CLASSES)
    monkeypatch.setattr(photos, "read", lambda _file: photograph)
    monkeypatch.setattr(photos, "recoloured", lambda patches, _rng: patches.astype(np.float32))
    red, green, blue = np.moveaxis(photos.load(400, 50).train_inputs.reshape(-1, *SHAPE), 1, 0)
    steps = red[:, 0, 1] - red[:, 0, 0]
    assert 120 < (steps == 1).sum() < 280
    assert (np.diff(red, axis=2) == steps[:, None, None]).all()
    assert (np.abs(steps) == 1).all()
    assert (np.diff(green, axis=1) == 1).all()
    assert (blue == 9).all()


def test_of_four_patches_the_one_with_more_contrast_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A photograph of which the upper half is empty: 15 of 16 patches show the lower half."""
    photograph = np.zeros((480, 480, 3), dtype=np.uint8)
    photograph[240:] = np.random.default_rng(1).integers(1, 256, (240, 480, 3), dtype=np.uint8)
    monkeypatch.setattr(photos, "find", lambda: [Path()] * photos.CLASSES)
    monkeypatch.setattr(photos, "read", lambda _file: photograph)
    monkeypatch.setattr(photos, "recoloured", lambda patches, _rng: patches.astype(np.float32))
    shown = photos.load(2000, 10).train_inputs.max(axis=1) > 0
    assert 0.92 < shown.mean() < 0.955


def test_colours_change_within_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    patches = rng.integers(0, 256, (500, 3, 64), dtype=np.uint8)
    changed = photos.recoloured(patches, rng)
    assert (changed.min(), changed.max()) == (0, 1)
    assert 0.3 < changed.mean() < 0.7
    # With all changes but the first switched off, a colour moves towards the mean of the three and keeps it.
    for name in ("_COLOUR_STRENGTH", "_CONTRAST", "_BRIGHTNESS"):
        monkeypatch.setattr(photos, name, 0.0)
    faded, given = photos.recoloured(patches, rng), patches / 255
    np.testing.assert_allclose(faded.mean(axis=1), given.mean(axis=1), atol=1e-5)
    kept = faded.std(axis=1).mean(axis=1) / given.std(axis=1).mean(axis=1)
    assert 0.499 < kept.min() < 0.55
    assert 0.9 < kept.max() <= 1.00001


def test_a_photograph_that_is_not_installed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "files", lambda package: tmp_path / package)
    with pytest.raises(DataError, match=r"sklearn/datasets/images/china.jpg: the installed package lacks this"):
        photos.find()
    monkeypatch.undo()
    monkeypatch.setattr(photos, "FILES", ("softnic_without_pictures/cat.png",))
    with pytest.raises(ModuleNotFoundError) as caught:
        photos.load()
    assert caught.value.name == "softnic_without_pictures"
