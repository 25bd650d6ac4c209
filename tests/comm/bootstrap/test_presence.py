"""Presence: time limits for ranks that have not joined."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from softnic.comm.bootstrap.presence import Presence
from tests.mpi.test_cluster import ROOT


class Job:
    """A clock and the ranks that have a process."""

    def __init__(self) -> None:
        self.now = 100.0
        self.living: set[int] = set()
        self.scans = 0

    def presence(self, *, seen: bool = True) -> Presence:
        return Presence(60.0, self.scan if seen else None, lambda: self.now)

    def scan(self) -> set[int]:
        self.scans += 1
        return set(self.living)


def test_a_rank_whose_process_runs_has_no_timeout() -> None:
    job = Job()
    job.living = {0, 1}
    presence = job.presence()
    for _ in range(2000):
        job.now += presence.wait_s()
        assert not presence.exited([1])
        assert not presence.overdue([1])
    assert job.now > 1000
    assert job.scans < 2100  # no more often than `wait_s` says


def test_a_rank_whose_process_has_ended_has_exited() -> None:
    job = Job()
    job.living = {0, 1, 2}
    presence = job.presence()
    assert not presence.exited([1, 2])
    job.living = {0, 2}
    ended_at = job.now
    while not (found := presence.exited([1, 2])):
        job.now += presence.wait_s()
        assert job.now - ended_at < 5
    assert list(found) == [1]
    assert "rank 1 exited without joining" in found[1]
    assert not presence.overdue([1, 2])


def test_a_rank_that_was_never_seen_has_the_timeout() -> None:
    for seen in (True, False):
        job = Job()
        presence = job.presence(seen=seen)
        while not presence.overdue([1]):
            assert not presence.exited([1])
            job.now += presence.wait_s()
        assert 160 <= job.now < 165


def test_each_step_restarts_the_timeout() -> None:
    job = Job()
    presence = job.presence(seen=False)
    job.now += 61
    assert presence.overdue([1, 3]) == [1, 3]
    presence.begin()
    assert presence.overdue([1, 3]) == []
    assert presence.wait_s() == 60


SCAN = """
import json, sys
from softnic.comm.bootstrap.presence import local_ranks
processes = local_ranks("SOFTNIC_RANK", ["MASTER_PORT", "NO_SUCH_VARIABLE"])
for line in sys.stdin:
    print(json.dumps([processes is not None, sorted(processes() if processes else [])]), flush=True)
"""
WAIT = "import sys; print(flush=True); sys.stdin.read()"


def started(program: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, **variables}, cwd=ROOT, stdin=-1, stdout=-1, text=True
    )


def test_ranks_are_identified_by_the_variables_of_their_launcher() -> None:
    job = {"MASTER_PORT": f"test-{os.getpid()}"}
    with (
        started(SCAN, SOFTNIC_RANK="0", **job) as scans,
        started(WAIT, SOFTNIC_RANK="1", **job) as second,
        started(WAIT, SOFTNIC_RANK="2", MASTER_PORT="another") as other,
    ):
        assert scans.stdin
        assert scans.stdout
        assert second.stdin
        assert second.stdout
        assert other.stdin
        assert other.stdout
        second.stdout.readline()
        other.stdout.readline()
        for expected in ([0, 1], [0]):
            scans.stdin.write("\n")
            scans.stdin.flush()
            assert json.loads(scans.stdout.readline()) == [True, expected]
            second.stdin.close()
            second.wait()
        scans.stdin.close()
        other.stdin.close()


def test_processes_of_a_launcher_without_a_job_name_are_not_identified() -> None:
    with started(SCAN, SOFTNIC_RANK="0", MASTER_PORT="") as scans:
        out, _ = scans.communicate("\n")
    assert json.loads(out)[0] is False
