"""PyTorch's hooks over sums that the NICs compress."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import numpy.typing as npt
import pytest

from tests import needs

torch = needs.module("torch")

from softnic.experiments import torch_hooks  # noqa: E402
from softnic.experiments.torch_hooks import TorchHook  # noqa: E402
from softnic.experiments.torch_replica import TorchReplica  # noqa: E402
from softnic.mpi.communicator import Communicator  # noqa: E402
from tests.mpi.groups import FakeNics  # noqa: E402
from tests.mpi.ranks import Ranks  # noqa: E402

SIDE = 1024
"""Of a weight matrix, whose factors have at least as many bytes as a compressed sum."""


def distance(steps: int, codec: str | None) -> float:
    """Return how far the mean of what `steps` steps apply is from the mean of the gradients, which stay the same."""

    def program(comm: Communicator) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        replica = TorchReplica(torch.nn.Linear(SIDE, SIDE, bias=False), lambda _step: 0.0, 0.0)
        rng = np.random.default_rng(comm.rank)
        factors = rng.normal(size=(SIDE, 3)), rng.normal(size=(3, SIDE))
        given = (factors[0] @ factors[1]).astype(np.float32).ravel()
        applied = np.zeros_like(given)
        with closing(TorchHook(comm, replica, lambda group: torch_hooks.powersgd(group, 1), codec)) as average:
            for _ in range(steps):
                replica.gradients[:] = given
                average()
                applied += replica.gradients / np.float32(steps)
        return given, applied

    ranks = Ranks(2, program, transport=FakeNics(), free=False)
    (first, applied), (second, other) = ranks.results
    assert applied.tobytes() == other.tobytes()
    mean = (first + second) / 2
    return float(np.linalg.norm(applied - mean) / np.linalg.norm(mean))


@pytest.mark.parametrize("codec", [None, "bfp:3"])
def test_what_low_rank_and_codec_drop_is_fed_back(codec: str | None) -> None:
    """The error that remains is that of the last step, however many there were."""
    assert distance(24, codec) < 0.4 * distance(6, codec)
