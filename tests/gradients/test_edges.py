"""Edge cases: no parameter, parameters without elements, a single rank."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import gradients
from tests.comm.ranks import run
from tests.facades.comm import Communicator
from tests.gradients.test_checkpoints import METHODS


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
