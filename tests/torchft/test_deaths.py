"""A rank dies, by its process, its host or in silence: the others learn it, and go on without it. Over real NICs."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from softnic import Cluster
from tests import needs
from tests.daemon.nics import TOLD_S

dist: Any = needs.module("torch.distributed")
needs.module("torchft")

from tests.torchft.mortal import DEAD

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SIZE = 3


class Rank:
    """A process of mortal.py, and the lines that it prints."""

    def __init__(self, cluster: Cluster, store: str, rank: int, how: str) -> None:
        command = [sys.executable, "-m", "tests.torchft.mortal", store, str(rank), str(SIZE), how]
        environment = {**os.environ, **cluster.env(rank)}
        self.process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self._lines.put(line.strip())

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self._reader.join(60)

    def line(self) -> str:
        return self._lines.get(timeout=120)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=SIZE) as started:
        yield started


@pytest.mark.parametrize("how", ["call", "idle"])
@pytest.mark.parametrize("death", ["process killed", "host gone", "host silent"])
def test_a_death_is_known_and_the_others_go_on(cluster: Cluster, death: str, how: str) -> None:
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    ranks = [Rank(cluster, f"localhost:{store.port}", rank, how) for rank in range(SIZE)]
    nic = cluster.stats(DEAD).info.pid
    sign = signal.SIGSTOP if death == "host silent" else signal.SIGKILL
    try:
        assert [rank.line() for rank in ranks] == ["ready"] * SIZE
        died_at = time.monotonic()
        for pid in [ranks[DEAD].process.pid] + [nic] * (death != "process killed"):
            os.kill(pid, sign)
        survivors = [rank for number, rank in enumerate(ranks) if number != DEAD]
        errors = [rank.line() for rank in survivors]
        seconds = time.monotonic() - died_at
        print(f"{death}, {how}: {seconds:.2f} s: {errors[0]}")
        assert all(f"rank {DEAD}" in error for error in errors), errors
        assert seconds < TOLD_S
        assert [rank.line() for rank in survivors] == [f"{SIZE - 1}.0"] * (SIZE - 1)
        assert [rank.process.wait(60) for rank in survivors] == [0] * (SIZE - 1)
    finally:
        for rank in ranks:
            rank.kill()
        with suppress(ProcessLookupError):
            os.kill(nic, signal.SIGKILL)
