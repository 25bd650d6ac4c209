"""HSDP: FSDP2 shards weights over the ranks of a group, and torchft averages shards over groups that may die."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from softnic import Cluster
from tests import needs

torch: Any = needs.module("torch")
needs.module("torchft")

from torchft.coordination import LighthouseServer

from tests.torchft.hsdp import RANKS, built, loss_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
GROUPS = 2
LIMIT_S = 120.0
LAST = 400
"""More steps than any test waits for."""


class Step(NamedTuple):
    number: int
    groups: int
    digest: str
    squares: float


class Rank:
    """A process of hsdp.py, and its steps."""

    def __init__(self, cluster: Cluster, group: int, rank: int, given: list[str]) -> None:
        command = [sys.executable, "-m", "tests.torchft.hsdp", given[0], str(group), str(rank), *given[1:]]
        environment = {**os.environ, **cluster.env(RANKS * group + rank)}
        self.process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.steps: dict[int, Step] = {}
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self._lines.put(line)

    def until(self, groups: int, steps: int) -> list[int]:
        """Wait until `groups` groups have taken part in `steps` more steps. Return the numbers of these."""
        found: list[int] = []
        while len(found) < steps:
            number, taking_part, digest, squares = self._lines.get(timeout=LIMIT_S).split()
            self.steps[int(number)] = Step(int(number), int(taking_part), digest, float(squares))
            if int(taking_part) == groups:
                found.append(int(number))
        return found

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self._reader.join(60)


class Groups:
    """Two groups of two ranks, each with a NIC, and a lighthouse whose quorums have at least `least` groups."""

    def __init__(self, cluster: Cluster, codec: str = "", least: int = 1) -> None:
        self._cluster, self._codec = cluster, codec
        self._server: Any = LighthouseServer(
            bind="0.0.0.0:0", min_replicas=least, join_timeout_ms=5000, heartbeat_timeout_ms=1500
        )
        self._lighthouse = "http://127.0.0.1:" + self._server.address().rpartition(":")[2]
        self.ranks: dict[int, list[Rank]] = {}

    def start(self, group: int) -> list[Rank]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        given = [self._lighthouse, str(port), str(LAST), *([self._codec] if self._codec else [])]
        self.ranks[group] = [Rank(self._cluster, group, rank, given) for rank in range(RANKS)]
        return self.ranks[group]

    def kill(self, group: int) -> None:
        for rank in self.ranks.pop(group):
            rank.kill()

    def close(self) -> None:
        for group in list(self.ranks):
            self.kill(group)
        self._server.shutdown()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=GROUPS * RANKS) as started:
        yield started


def agree(one: list[Rank], other: list[Rank]) -> int:
    """Compare the weights after all steps that both groups took part in. Return their number."""
    count = 0
    for first, second in zip(one, other, strict=True):
        for number in first.steps.keys() & second.steps.keys():
            mine, theirs = first.steps[number], second.steps[number]
            if mine.groups == GROUPS:
                assert mine.digest == theirs.digest, (mine, theirs)
                count += 1
    return count


def test_steps_are_those_of_all_inputs(cluster: Cluster) -> None:
    groups = Groups(cluster, least=GROUPS)
    try:
        ranks = [*groups.start(0), *groups.start(1)]
        assert [rank.until(GROUPS, 5) for rank in ranks] == [[1, 2, 3, 4, 5]] * GROUPS * RANKS
        assert agree(ranks[:RANKS], ranks[RANKS:]) == 5 * RANKS
        assert sum(rank.steps[5].squares for rank in ranks[:RANKS]) == pytest.approx(by_hand(5), rel=1e-6)
    finally:
        groups.close()


@pytest.mark.parametrize("codec", ["", "rht:4"])
def test_a_group_dies_and_comes_back(cluster: Cluster, codec: str) -> None:
    groups = Groups(cluster, codec)
    try:
        stays, dies = groups.start(0), groups.start(1)
        for rank in (*stays, *dies):
            rank.until(GROUPS, 5)
        assert agree(stays, dies) >= 5 * RANKS
        groups.kill(1)
        for rank in stays:
            rank.until(1, 3)
        comes = groups.start(1)
        for rank in (*stays, *comes):
            rank.until(GROUPS, 5)
        assert agree(stays, comes) >= 5 * RANKS
    finally:
        groups.close()


def by_hand(steps: int) -> float:
    """The sum of squares of all weights after steps in which all groups took part."""
    model = built()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        for group in range(GROUPS):
            for rank in range(RANKS):
                (loss_of(model, step, group, rank) / (GROUPS * RANKS)).backward()
        optimizer.step()
    return sum(float(each.detach().double().square().sum()) for each in model.parameters())
