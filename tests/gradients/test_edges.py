"""Edge cases: no parameter, parameters without elements, a single rank."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import gradients
from softnic.gradients.flat import zero_nonfinite
from softnic.mpi.communicator import Communicator
from tests.gradients.test_checkpoints import METHODS
from tests.mpi.ranks import run


@pytest.mark.parametrize("text", METHODS)
@pytest.mark.parametrize("size", [1, 2])
def test_averaging_nothing(text: str, size: int) -> None:
    def program(comm: Communicator) -> list[float]:
        method = gradients.get(text)
        method.average(comm, {})
        mine = {"none": np.empty(0, np.float32), "one": np.full(1, 0.25 * (comm.rank + 1), np.float32)}
        method.average(comm, mine)
        return [float(each) for gradient in mine.values() for each in gradient]

    ranks = run(size, program)
    assert all(len(found) == 1 and 0 <= found[0] < 0.75 for found in ranks)
    assert ranks == [ranks[0]] * size


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([1.0, -2.0, 0.0], [1.0, -2.0, 0.0]),
        ([np.nan, 3.0, -np.nan], [0.0, 3.0, 0.0]),
        ([np.inf, 3.0, 4.0], [0.0, 3.0, 4.0]),
        ([3.0, 4.0, -np.inf], [3.0, 4.0, 0.0]),
        ([np.inf, np.nan, -np.inf], [0.0, 0.0, 0.0]),
        ([3.4028235e38, -3.4028235e38, 1e-45], [3.4028235e38, -3.4028235e38, 1e-45]),
        ([], []),
    ],
)
def test_what_is_kept_is_finite(given: list[float], kept: list[float]) -> None:
    array = np.array(given, np.float32)
    zero_nonfinite(array)
    assert array.tolist() == np.array(kept, np.float32).tolist()
