"""What the errors of stuck calls say, and what torch's analyzer says of their records: processes over real NICs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch import jobs
from tests.torch.stuck import LIMIT_S
from tests.torch.test_flight_recorder import analyzed

pytestmark = pytest.mark.slow
SLACK_S = 3.0
"""For the diagnosis, and a busy machine."""
CALL = "Iallreduce(1000 x float32, op=SUM)"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stuck")


@pytest.fixture(scope="module")
def errors(directory: Path) -> dict[str, list[tuple[str, float]]]:
    """Return the error and its time of each rank, by case."""
    ranks = jobs.results("stuck", 3, directory, rate="1gbit", seed=3)
    return {each["name"]: [(own[n]["text"], own[n]["seconds"]) for own in ranks] for n, each in enumerate(ranks[0])}


@pytest.mark.parametrize("case", ["late", "future"])
def test_a_timeout_names_the_rank_that_is_late(errors: dict[str, list[tuple[str, float]]], case: str) -> None:
    for rank in (0, 2):
        text, seconds = errors[case][rank]
        assert (
            f"all_reduce took longer than the timeout of {LIMIT_S:g} s: late rank: rank 1 (10.77.0.2) in {CALL}" in text
        )
        assert "softnic stat --why says more" in text
        assert LIMIT_S <= seconds < LIMIT_S + SLACK_S
    assert "late rank: rank 1" in errors[case][1][0]


def test_a_timeout_of_a_message_names_its_sender(errors: dict[str, list[tuple[str, float]]]) -> None:
    text, _ = errors["message"][0]
    assert "no message from rank 1" in text
    assert "late rank: rank 0" not in text


def test_a_call_that_one_rank_makes_otherwise_is_named(errors: dict[str, list[tuple[str, float]]]) -> None:
    for text, seconds in errors["call"]:
        assert f"mismatched call: ranks 0, 2 called {CALL}, rank 1 Ibcast(4000 x uint8, root=0)" in text
        assert text.count("mismatched call") == 1
        assert seconds < SLACK_S


@pytest.mark.usefixtures("errors")
def test_torchs_analyzer_names_the_rank_as_well(directory: Path) -> None:
    late = analyzed(directory / "late")
    assert "Not all ranks joining collective" in late
    assert "missing ranks: {1}" in late
    assert "Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH" in analyzed(directory / "call")
