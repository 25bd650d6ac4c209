"""Ranks that find each other through a store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from softnic import Cluster
from tests.comm.ranks import MODULE
from tests.comm.test_cluster import Job
from tests.facades.bootstrap import init_communicator
from tests.facades.comm import CommError, Communicator, LaunchError, Transport


class Shelf:
    """A store of one process: what torch.distributed.HashStore does."""

    def __init__(self, patience_s: float = 20.0) -> None:
        self._patience_s = patience_s
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str | bytes, /) -> None:
        with self._changed:
            self._values[key] = value.encode() if isinstance(value, str) else value
            self._changed.notify_all()

    def get(self, key: str, /) -> bytes:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, self._patience_s):
                raise LookupError(f"nobody has set {key}")
            return self._values[key]


def together(size: int, program: Callable[[int], Any]) -> list[Any]:
    """The results, or errors, of a program that runs in a thread for each rank."""
    results: list[Any] = [None] * size

    def body(rank: int) -> None:
        try:
            results[rank] = program(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def stand_in() -> Transport:
    return Transport(MODULE)


def total(comm: Communicator, value: int) -> int:
    result = np.zeros(1, np.int64)
    comm.Allreduce(np.array([value]), result)
    return int(result[0])


def test_all_meet_wherever_they_listen() -> None:
    store = Shelf()

    def program(rank: int) -> tuple[int, int, int]:
        comm = init_communicator(store, rank, 4, transport=stand_in())
        try:
            return comm.rank, comm.size, total(comm, 10**rank)
        finally:
            comm.Free()

    assert together(4, program) == [(rank, 4, 1111) for rank in range(4)]


def test_each_name_is_a_meeting_of_its_own() -> None:
    """Of the same processes and of some of them: what is sent in one is not received in another."""
    store = Shelf()

    def program(rank: int) -> list[int]:
        world = init_communicator(store, rank, 3, transport=stand_in())
        again = init_communicator(store, rank, 3, name="again", transport=stand_in())
        parts = [init_communicator(store, rank, 2, name="low", transport=stand_in())] if rank < 2 else []
        sums = [total(comm, rank + 1) for comm in [again, *parts, world]]
        for comm in [world, again, *parts]:
            comm.Free()
        return sums

    assert together(3, program) == [[6, 3, 6], [6, 3, 6], [6, 6]]


def test_one_alone_needs_nobody() -> None:
    comm = init_communicator(Shelf(), 0, 1, transport=stand_in())
    assert total(comm, 7) == 7
    comm.Free()


def test_who_never_comes_is_named() -> None:
    store = Shelf(patience_s=0.2)
    (error,) = together(1, lambda rank: init_communicator(store, rank, 2, transport=stand_in()))
    assert isinstance(error, CommError)
    assert error.rank == 1
    assert "the store does not tell where rank 1 is: nobody has set softnic/world/rank/1" in str(error)


def test_nonsense_in_the_store_is_an_error() -> None:
    store = Shelf()
    store.set("softnic/world/rank/1", b"\xff\xfe")
    with pytest.raises(CommError, match="where rank 1 is"):
        init_communicator(store, 0, 2, transport=stand_in())


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_is_less_than_the_size(rank: int, size: int) -> None:
    with pytest.raises(LaunchError, match="a rank is 0 or more and less than the size"):
        init_communicator(Shelf(), rank, size)


def test_processes_with_nics_meet_through_files(tmp_path: Any) -> None:
    """Two NICs, a store that is a directory, and a compressed reduction that the NICs execute."""
    program = f"""
import pathlib, time
from tests.facades.bootstrap import init_communicator
class Files:
    def set(self, key, value):
        path = pathlib.Path({str(tmp_path)!r}) / key.replace("/", "-")
        path.with_suffix(".new").write_text(value)
        path.with_suffix(".new").rename(path)
    def get(self, key):
        path = pathlib.Path({str(tmp_path)!r}) / key.replace("/", "-")
        while not path.exists():
            time.sleep(0.01)
        return path.read_bytes()
comm = init_communicator(Files(), rank, size, name="files")
data = gradient(rank, 40_000)
comm.Iallreduce_comp(MPI.IN_PLACE, data).Wait()
tell(crc=zlib.crc32(data.tobytes()), where=comm.launch.addresses[rank][0])
"""
    with Cluster(nodes=2, codec="bounded:10") as cluster, Job(cluster, program) as job:
        told = [job.line(rank) for rank in range(2)]
    assert told[0]["crc"] == told[1]["crc"]
    assert [each["where"] for each in told] == ["10.77.0.1", "10.77.0.2"]
