"""`softnic run --churn`: what happens when, and that a job goes on."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softnic.commands.churn import CUT_S, Churn, ChurnEvent

Softnic = Callable[..., tuple[int, str, str]]


def events(ranks: int, period_s: float, seed: int, until: float, running: set[int] | None = None) -> list[ChurnEvent]:
    churn, now, found = Churn(ranks, period_s, seed), 0.0, []
    assert churn.next_time() == float("inf")
    churn.start(0.0)
    while (now := churn.next_time()) < until:
        found += churn.due(now, set(range(ranks)) if running is None else running)
    return found


@given(st.integers(1, 9), st.floats(0.5, 60), st.integers(0, 1000))
def test_less_than_half_of_the_nodes_is_hit_at_a_time(ranks: int, period_s: float, seed: int) -> None:
    hit: set[int] = set()
    for event in events(ranks, period_s, seed, 40 * period_s):
        if event.kind in ("kill", "cut"):
            assert event.rank not in hit
            hit.add(event.rank)
            assert 2 * len(hit) < ranks or (ranks == 2 and len(hit) == 1)
        else:
            hit.remove(event.rank)


@given(st.integers(3, 9), st.integers(0, 1000))
def test_what_is_killed_starts_again_and_what_is_cut_off_comes_back(ranks: int, seed: int) -> None:
    after = {"kill": "start", "cut": "mend"}
    pending: dict[int, ChurnEvent] = {}
    for event in events(ranks, 10.0, seed, 1000.0):
        if event.kind in after:
            pending[event.rank] = event
        else:
            begun = pending.pop(event.rank)
            assert event.kind == after[begun.kind]
            assert 0.0 < event.at - begun.at <= CUT_S + 1e-6


def test_a_seed_fixes_the_events_and_they_come_as_often_as_asked() -> None:
    found = events(8, 30.0, 7, 30_000.0)
    assert found == events(8, 30.0, 7, 30_000.0)
    assert found != events(8, 30.0, 8, 30_000.0)
    hits = [event for event in found if event.kind in ("kill", "cut")]
    assert 900 <= len(hits) <= 1100
    assert 0.15 <= sum(event.kind == "cut" for event in hits) / len(hits) <= 0.35


def test_ranks_that_have_ended_are_left_alone() -> None:
    assert {event.rank for event in events(4, 1.0, 3, 500.0, running={2})} == {2}


def test_a_job_goes_on_while_its_ranks_are_killed(softnic: Softnic) -> None:
    program = "sleep 5; echo restarts $SOFTNIC_RESTARTS"
    code, out, err = softnic("run", "-n", "3", "--churn", "0.7s", "--seed", "3", "--", "sh", "-c", program)
    assert code == 0, err
    killed = re.findall(r"\[(\d)\] softnic run: rank \1 is killed", err)
    assert killed
    ends = dict(re.findall(r"\[(\d)\] restarts (\d)", out))
    assert len(ends) >= 2  # one may have been killed just before the others ended
    assert all(killed.count(rank) == int(count) for rank, count in ends.items())


def test_no_rank_is_hit_before_all_have_met(softnic: Softnic) -> None:
    program = (
        "import os, time; from softnic import MPI; time.sleep(int(os.environ['SOFTNIC_RANK']));"
        "MPI.COMM_WORLD.Barrier(); print('met', flush=True); time.sleep(4)"
    )
    _, out, err = softnic("run", "-n", "3", "--churn", "1s", "--seed", "3", "--", "python", "-c", program)
    assert "is killed" in err
    assert "joining" not in err
    assert out.count("met") >= 3


def test_a_rank_that_fails_by_itself_ends_the_job(softnic: Softnic) -> None:
    code, _, err = softnic(
        "run", "-n", "3", "--churn", "60s", "--", "sh", "-c", "test $SOFTNIC_RANK != 1 || exit 7; sleep 60"
    )
    assert code == 7
    assert "rank 1 ended with exit code 7" in err


@pytest.mark.parametrize("period", ["0s", "often"])
def test_a_period_is_a_time(softnic: Softnic, period: str) -> None:
    code, _, err = softnic("run", "--churn", period, "--", "true")
    assert code != 0
    assert "--churn" in err
