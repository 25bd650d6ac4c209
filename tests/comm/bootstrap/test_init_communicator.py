"""init_communicator: ranks connect through a store."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from softnic import Cluster
from softnic.comm.errors import CommError, LaunchError
from softnic.comm.transport import Transport
from softnic.mpi.communicator import Communicator, init_communicator
from tests.comm.engine_nics import EngineNics
from tests.mpi.test_cluster import Job


class LocalStore:
    """A store in one process, as torch.distributed.HashStore."""

    def __init__(self, timeout_s: float = 20.0) -> None:
        self._timeout_s = timeout_s
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str | bytes, /) -> None:
        with self._changed:
            self._values[key] = value.encode() if isinstance(value, str) else value
            self._changed.notify_all()

    def get(self, key: str, /) -> bytes:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, self._timeout_s):
                raise LookupError(f"nobody has set {key}")
            return self._values[key]


def run_ranks(size: int, program: Callable[[int], Any]) -> list[Any]:
    """Run a function in a thread for each rank. Returns its results or errors."""
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


def loopback() -> Transport:
    return EngineNics()


def total(comm: Communicator, value: int) -> int:
    result = np.zeros(1, np.int64)
    comm.Allreduce(np.array([value]), result)
    return int(result[0])


def test_ranks_connect_at_any_addresses() -> None:
    store = LocalStore()

    def program(rank: int) -> tuple[int, int, int]:
        comm = init_communicator(store, rank, 4, transport=loopback())
        try:
            return comm.rank, comm.size, total(comm, 10**rank)
        finally:
            comm.Free()

    assert run_ranks(4, program) == [(rank, 4, 1111) for rank in range(4)]


def test_each_name_makes_a_separate_communicator() -> None:
    """Of the same processes or of some; messages of one are not received in another."""
    store = LocalStore()

    def program(rank: int) -> list[int]:
        world = init_communicator(store, rank, 3, transport=loopback())
        again = init_communicator(store, rank, 3, name="again", transport=loopback())
        parts = [init_communicator(store, rank, 2, name="low", transport=loopback())] if rank < 2 else []
        sums = [total(comm, rank + 1) for comm in [again, *parts, world]]
        for comm in [world, again, *parts]:
            comm.Free()
        return sums

    assert run_ranks(3, program) == [[6, 3, 6], [6, 3, 6], [6, 6]]


def test_a_single_rank_needs_no_other() -> None:
    comm = init_communicator(LocalStore(), 0, 1, transport=loopback())
    assert total(comm, 7) == 7
    comm.Free()


def test_a_missing_rank_is_named() -> None:
    store = LocalStore(timeout_s=0.2)
    (error,) = run_ranks(1, lambda rank: init_communicator(store, rank, 2, transport=loopback()))
    assert isinstance(error, CommError)
    assert error.rank == 1
    assert "the store has no valid entry of rank 1: nobody has set softnic/world/rank/1" in str(error)


def test_a_malformed_value_in_the_store_is_an_error() -> None:
    store = LocalStore()
    store.set("softnic/world/rank/1", b"\xff\xfe")
    with pytest.raises(CommError, match="no valid entry of rank 1"):
        init_communicator(store, 0, 2, transport=loopback())


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_out_of_range_is_an_error(rank: int, size: int) -> None:
    with pytest.raises(LaunchError, match="a rank is 0 or more and less than the size"):
        init_communicator(LocalStore(), rank, size)


def test_processes_with_nics_connect_through_a_store_of_files(tmp_path: Any) -> None:
    """Two NICs, a store that is a directory, and a compressed reduction that the NICs execute."""
    program = f"""
import pathlib, time
from softnic.mpi.communicator import init_communicator
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
        results = [job.line(rank) for rank in range(2)]
    assert results[0]["crc"] == results[1]["crc"]
    assert [each["where"] for each in results] == ["10.77.0.1", "10.77.0.2"]


@pytest.mark.parametrize(
    "address",
    [["127.0.0.1", 10**9], ["127.0.0.1", 0], ["127.0.0.1", "5"], [[], 5], ["\0", 5], ["127.0.0.1"], [None, 5]],
)
def test_an_address_that_is_none_is_an_error_of_the_rank_that_wrote_it(address: list[Any]) -> None:
    store = LocalStore()
    store.set("softnic/world/rank/0", json.dumps({"address": address}))
    with pytest.raises(CommError, match="the store has no valid address of rank 0") as caught:
        init_communicator(store, 1, 2, name="world", transport=loopback())
    assert caught.value.rank == 0
