"""Turns execute collectives with the same results, whichever way frames and segments take, over real sockets, on a
clock of the test."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import random
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

from softnic.collectives import schedule
from softnic.collectives.elements import name_of
from softnic.ipc import control, work_queue
from softnic.ipc.work_queue import WorkCompletion, WorkFailed, WorkRequest
from tests.daemon.wired_nics import PORT, Mode, WiredNics
from tests.nic.asked import count_calls

REGION = 1 << 20
HALF = REGION // 2
RATE = {"rate": "200mbit"}
BAD = {"loss": "1%", "duplicate": "1%", "reorder": "2%", "corrupt": "0.5%"}
KINDS = (
    ("allreduce", "SUM", "float32", "bounded:10"), ("allreduce", "AVG", "float32", "bfp:7"),
    ("allreduce", "SUM", "float32", ""), ("allreduce", "AVG", "float16", ""), ("allreduce", "PROD", "complex64", ""),
    ("allreduce", "MAX", "int8", ""), ("allreduce", "AVG", "float64", ""), ("reduce_scatter", "SUM", "float32", ""),
    ("allgather", "", "float32", "truncate:16"), ("bcast", "", "float32", "bounded:8"), ("bcast", "", "uint8", ""),
)  # fmt: skip


class JoinedNics(WiredNics):
    """Two NICs that execute collectives for a process each."""

    def __init__(
        self, directory: Path, mode: Mode, emulation: Mapping[str, str] | None = None, *, loopback: bool = False
    ) -> None:
        self.replies: list[list[WorkCompletion | WorkFailed]] = [[], []]
        self.queues: list[socket.socket] = []
        super().__init__(directory, mode, emulation, loopback=loopback)
        streams = [self.connect(PORT + 1 + index) for index in range(2)]
        self.regions: list[mmap.mmap] = []
        self.numbers: list[int] = []
        for rank in range(2):
            self._register(rank)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            self.queues.append(ours)
            numbers = [[0, 0], [0, 0]]
            for kind in range(2):
                numbers[kind][1 - rank] = streams[kind][rank]
            self.call(rank, control.Join(rank, numbers[0], numbers[1]), theirs.detach())

    def _register(self, rank: int) -> None:
        fd = os.memfd_create("region", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, REGION)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.regions.append(mmap.mmap(fd, REGION))
        reply = self.call(rank, control.Register(), fd)
        assert isinstance(reply, control.Registered)
        self.numbers.append(reply.region)

    def close(self) -> None:
        for queue in self.queues:
            queue.close()
        super().turn(5)  # the communicators end
        super().close()

    def memory(self, rank: int) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.regions[rank], np.uint8)

    def post(self, rank: int, number: int, kind: tuple[str, str, str, str], count: int, algorithm: str) -> None:
        """Post a collective: its contribution lies in the region's first half, its result in the second."""
        collective, op, dtype, codec = kind
        blocks = schedule.blocks(collective, algorithm, count, 2)
        counts = tuple(block.stop - block.start for block in blocks)
        in_place = collective in ("allgather", "bcast")
        memory = (self.numbers[rank], 0), (self.numbers[rank], 0 if in_place else HALF)
        root = 0 if collective == "bcast" else -1
        request = WorkRequest(
            number, f"I{collective}", collective, algorithm, name_of(np.dtype(dtype)), counts, *memory, op, root, codec
        )
        self.queues[rank].send(work_queue.encode(request))

    def turn(self, count: int = 1) -> None:
        super().turn(count)
        for queue, replies in zip(self.queues, self.replies, strict=False):
            with contextlib.suppress(BlockingIOError, OSError):
                while packet := queue.recv(work_queue.MAX_PACKET):
                    reply = work_queue.decode_from_nic(memoryview(packet))
                    replies.append(replace(reply, rate=0.0) if isinstance(reply, WorkCompletion) else reply)


def contribution(rng: random.Random, dtype: str, count: int) -> npt.NDArray[np.uint8]:
    values = np.random.default_rng(rng.getrandbits(32)).normal(0, 0.01 if dtype == "float32" else 20, count)
    return values.astype(dtype).view(np.uint8)


def execute(nics: JoinedNics, seed: int) -> list[bytes]:
    """Execute random collectives. Return what is in the memory of both ranks after each of them."""
    rng, found = random.Random(seed), []
    for number in range(1, 13):
        kind = rng.choice(KINDS)
        count = 2 * rng.choice((1, 33, 4_000, 30_000))
        algorithm = "ring" if kind[0] == "bcast" else rng.choice(("ring", "direct"))
        for rank in range(2):
            data = contribution(rng, kind[2], count)
            nics.memory(rank)[: data.size] = data
        for rank in rng.sample(range(2), 2):
            nics.post(rank, number, kind, count, algorithm)
            nics.turn(rng.choice((0, 1, 5)))
        for _ in range(2000):
            nics.turn(3)
            if all(WorkCompletion(number) in replies for replies in nics.replies):
                break
        assert nics.replies == [[WorkCompletion(done) for done in range(1, number + 1)]] * 2
        found += [nics.memory(rank).tobytes() for rank in range(2)]
    return found


@pytest.mark.parametrize("mode", ["whole", "link"])
@pytest.mark.parametrize("emulation", [{}, RATE, {**RATE, **BAD}], ids=["unlimited", "rate", "bad"])
@pytest.mark.parametrize("seed", range(3))
def test_collectives_give_the_same_results_in_every_mode(
    tmp_path: Path, seed: int, emulation: Mapping[str, str], mode: Mode
) -> None:
    with contextlib.closing(JoinedNics(tmp_path, mode, emulation)) as fast:
        results = execute(fast, seed)
    with contextlib.closing(JoinedNics(tmp_path, "python", emulation)) as slow:
        assert results == execute(slow, seed)


@pytest.mark.parametrize("mode", ["whole", "link"])
@pytest.mark.parametrize("seed", range(3))
def test_ranks_on_one_nic_have_the_same_results(tmp_path: Path, seed: int, mode: Mode) -> None:
    with contextlib.closing(JoinedNics(tmp_path, mode, loopback=True)) as fast:
        results = execute(fast, seed)
    with contextlib.closing(JoinedNics(tmp_path, "python")) as slow:
        assert results == execute(slow, seed)


def test_blocks_are_moved_without_python(tmp_path: Path) -> None:
    """Python takes part in the beginning and in the end of a collective."""
    with contextlib.closing(JoinedNics(tmp_path, "whole", RATE)) as nics:
        before, asked = 0, Counter[str]()
        for daemon in nics.daemons:
            count_calls(daemon.first.turn, asked, "on_run")
        for number in range(1, 5):
            for rank in range(2):
                nics.post(rank, number, ("allreduce", "SUM", "float32", ""), HALF // 4, "ring")
            before = nics.attended
            asked.clear()
            nics.turn(120)
            assert nics.replies == [[WorkCompletion(done) for done in range(1, number + 1)]] * 2
        assert nics.attended - before < 30
        assert not asked
        assert nics.turns > 4 * nics.attended


def test_a_process_that_leaves_amid_a_collective_frees_its_ports(tmp_path: Path) -> None:
    with contextlib.closing(JoinedNics(tmp_path, "whole", RATE)) as nics:
        for rank in range(2):
            nics.post(rank, 1, ("allreduce", "SUM", "float32", ""), HALF // 4, "ring")
        nics.turn(3)
        nics.queues[0].close()
        nics.turn(30)
        assert [type(reply) for reply in nics.replies[1]] == [WorkFailed]
        assert all(not daemon.first.streams.offloaded or daemon is nics.daemons[1] for daemon in nics.daemons)
