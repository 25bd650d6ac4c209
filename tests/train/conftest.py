"""Ranks are threads here: each gets one core's worth of BLAS, or they would only wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits  # comes with scikit-learn


@pytest.fixture(autouse=True)
def one_blas_thread() -> Iterator[None]:
    with threadpool_limits(limits=1):
        yield
