"""Small data, a cache per test, and one thread of BLAS, which is fastest for these trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.papers import gradients
from benchmarks.papers.context import Context
from benchmarks.papers.item import Item
from benchmarks.papers.items import ITEMS, make
from softnic.experiments.data import DataSet, digits


@pytest.fixture(autouse=True)
def _one_thread(one_blas_thread: None) -> None:
    """Limit BLAS to one thread in all tests of this package."""


@pytest.fixture(scope="session")
def data() -> DataSet:
    return digits()


@pytest.fixture(scope="session")
def everything(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Item]:
    """Make every item as --quick --model hdc does, over real NICs where it needs them."""
    directory = tmp_path_factory.mktemp("reproduce")
    data.save(directory / "digits")
    context = Context(data, directory / "digits", quick=True, models=("hdc",), settings=gradients.QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(directory / "cache"))
        return {f"{name} {item}": make(name, item, context) for name, items in ITEMS.items() for item in items}


@pytest.fixture
def context(data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Return the context of --quick --model hdc."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "digits"
    data.save(path)
    return Context(data, path, quick=True, models=("hdc",), settings=gradients.QUICK)
