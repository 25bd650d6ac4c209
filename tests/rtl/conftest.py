"""Engines are compiled for a minute and simulated for longer: all tests here are slow ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def builds(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The folder in which b_engine.py builds. A worker's own folder for the session is in the one that all have."""
    own = tmp_path_factory.getbasetemp()
    os.environ["SOFTNIC_RTL_BUILDS"] = str((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "rtl")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.slow)
