"""Rank processes: collected events, and the one line that a failed run ends with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from softnic.experiments.runner import RankPool
from softnic.measure.child_process import ChildProcess
from softnic.measure.report import MeasurementError

REPORT = "import json, sys; report = lambda **values: print(json.dumps(values), flush=True)\n"
DONE = "report(done=1)"
BY_PEER = "report(failed='rank 0: the connection is lost', by_peer=True)"
OWN_FAULT = "report(failed='rank 1: it broke', by_peer=False)"


class Handle:
    """Handle of a local process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def wait(self, timeout_s: float | None = None) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)


class LocalCluster:
    """Nodes that run a script each instead of the command."""

    def __init__(self, *scripts: str) -> None:
        self._scripts = scripts
        self.nodes = len(scripts)

    def spawn(
        self, node: int, _argv: Sequence[str], descriptors: Sequence[int], env: Mapping[str, str] | None = None
    ) -> Handle:
        stdin, stdout, stderr = descriptors
        command = [sys.executable, "-c", REPORT + self._scripts[node]]
        return Handle(subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=env))


def pool(*scripts: str) -> RankPool:
    return RankPool(LocalCluster(*scripts), "module")  # type: ignore[arg-type]


def test_last_events_are_returned_by_rank_and_rank_0s_others_are_passed_on() -> None:
    steps: list[int] = []
    with pool("report(step=1); report(step=2); report(done=7)", "report(step=3); report(done=8)") as ranks:
        events = ranks.collect("done", lambda event: steps.append(event["step"]))
    assert events == [{"done": 7}, {"done": 8}]
    assert steps == [1, 2]


def test_lines_reach_the_chosen_ranks_only() -> None:
    echo = "report(done=sys.stdin.readline().strip())"
    with pool(echo, echo, echo) as ranks:
        ranks.send("a", 2)
        assert ranks.collect("done", ranks=2) == [{"done": "a"}, {"done": "a"}]


@pytest.mark.parametrize("scripts", [(BY_PEER, OWN_FAULT), (OWN_FAULT, BY_PEER), (DONE, OWN_FAULT)])
def test_a_run_fails_for_the_rank_that_failed_by_its_own_fault(scripts: tuple[str, ...]) -> None:
    with pool(*scripts) as ranks, pytest.raises(MeasurementError, match=r"^rank 1: it broke$"):
        ranks.collect("done")


def test_a_failure_caused_by_a_peer_is_reported_if_there_is_no_other() -> None:
    with pool(BY_PEER, DONE) as ranks, pytest.raises(MeasurementError, match=r"^rank 0: the connection is lost$"):
        ranks.collect("done")


def test_a_rank_that_ends_early_is_named_with_its_last_error_line() -> None:
    with pool(DONE, "sys.exit('out of luck')") as ranks, pytest.raises(MeasurementError) as raised:
        ranks.collect("done")
    assert str(raised.value) == "rank 1 ended early: out of luck"


def test_silence_is_limited() -> None:
    with pool("sys.stdin.read()") as ranks, pytest.raises(MeasurementError, match="reported nothing for 0 s"):
        ranks.collect("done", limit_s=0.01)


def test_a_process_that_is_closed_is_killed() -> None:
    process = ChildProcess(LocalCluster("report(done=1); sys.stdin.read()").spawn, 0, "module")
    assert process.receive() == {"done": 1}
    process.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        process.send_line("x")
