"""What holds for every method: names, state, counting."""

from __future__ import annotations

import numpy as np
import pytest

from softnic import gradients
from softnic.gradients import Floats, Method, MethodError
from tests.comm.ranks import run
from tests.facades.comm import Communicator
from tests.gradients.feeding import SIZES, given, mean


@pytest.mark.parametrize("size", [1, 2, 3])
def test_exact_is_the_mean_on_every_rank(size: int) -> None:
    def program(comm: Communicator) -> dict[str, Floats]:
        mine = given(comm.rank)
        gradients.get("exact").average(comm, mine)
        return mine

    results = run(size, program)
    for name, expected in mean(size).items():
        np.testing.assert_allclose(results[0][name], expected, rtol=1e-5, atol=1e-9)
        assert len({result[name].tobytes() for result in results}) == 1


def test_stats_count_what_is_given_and_sent() -> None:
    def program(comm: Communicator) -> Method:
        method = gradients.get("exact")
        method.average(comm, given(comm.rank))
        method.average(comm, given(comm.rank))
        return method

    nbytes = 2 * 4 * sum(SIZES.values())
    stats = run(2, program)[0].stats
    assert (stats.calls, stats.given_bytes, stats.sent_bytes, stats.ratio) == (2, nbytes, nbytes, 1.0)


@pytest.mark.parametrize("text", ["nothing", "exact:1", "exact:rate=2", ""])
def test_what_is_no_method_is_refused(text: str) -> None:
    with pytest.raises(MethodError):
        gradients.get(text)


def test_state_of_another_method_is_refused() -> None:
    method = gradients.get("exact")
    with pytest.raises(MethodError, match="not of 'exact'"):
        method.load_state_dict({**method.state_dict(), "method": "other"})


def test_a_parameter_that_has_changed_its_size_is_refused() -> None:
    method = gradients.get("exact")
    method.kept("residual", "first", 10)
    with pytest.raises(MethodError, match="10 elements of first"):
        method.kept("residual", "first", 11)
