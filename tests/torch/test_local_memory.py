"""Memory of a process that the others of its host map."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from softnic.comm.errors import CommError
from softnic.comm.scratch import ARENA_BYTES, Scratch
from softnic.torch import local_memory
from softnic.torch.hosts import RankPlace, own_place
from softnic.torch.local_memory import MemoryShares, connect, mapped
from tests.torch.stand_in import on_stand_in

CPU = torch.device("cpu")


def _place(pool: Scratch) -> RankPlace:
    return own_place(CPU, pool.allocate(64))


def test_what_one_writes_the_other_reads() -> None:
    memory = Scratch().allocate(64)
    seen = mapped(os.getpid(), memory.region.fd, os.fstat(memory.region.fd).st_ino)
    memory.bytes[:] = 7
    assert seen[memory.offset : memory.end].tolist() == [7] * 64
    seen[memory.offset] = 8
    assert memory.bytes[0] == 8


@pytest.mark.parametrize("change", [{"inode": 1}, {"file": 1 << 20}, {"process": 0}, {"token": "another"}])
def test_memory_of_no_rank_is_refused(change: dict[str, int | str]) -> None:
    pools = Scratch(), Scratch()
    own, other = map(_place, pools)
    with on_stand_in():
        connect([4, 7], 0, [own, other], CPU)
        with pytest.raises(CommError):
            connect([4, 7], 0, [own, replace(other, **change)], CPU)  # type: ignore[arg-type]


def test_mappings_are_kept_up_to_a_limit_and_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_memory, "IDLE_BYTES", 2 * ARENA_BYTES)
    with on_stand_in() as kind:
        shares = MemoryShares([4, 7], 0, [os.getpid()] * 2, CPU)
        pools = [Scratch() for _ in range(4)]
        files = [pool.allocate(ARENA_BYTES).region.fd for pool in pools]

        def mapping(file: int) -> int:
            return int(shares._mapping(1, file, os.fstat(file).st_ino).ctypes.data)

        first = mapping(files[0])
        mapping(files[1])
        assert mapping(files[0]) == first
        mapping(files[2])
        assert len(kind.locked) == 2
        assert mapping(files[0]) == first
        shares.close()
        assert not kind.locked
