from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_blas_thread: None) -> None:
    """For all tests here."""
