"""Collectives that NICs execute, posted by hand to real daemons."""

from __future__ import annotations

import contextlib
import socket as plain
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import softnic
from softnic import _streams, codecs, control, descriptors, memory, socket
from softnic.comm.schedule import partition
from softnic.descriptors import Completed, Failed, Post
from tests.daemon.nics import WAIT_S, Nic, running, until

Array = npt.NDArray[Any]


def stream(connection: socket.socket) -> int:
    return _streams.stream_of(connection.fileno()).stream


def mesh(nics: Sequence[Nic]) -> list[dict[int, socket.socket]]:
    """A connection between each two of the nodes; by rank, those of this rank."""
    ends: list[dict[int, socket.socket]] = [{} for _ in nics]
    for low, nic in enumerate(nics):
        with nic.server() as listening:
            for high in range(low + 1, len(nics)):
                ends[high][low] = nics[high].connect(listening.getsockname())
                ends[low][high], _ = listening.accept()
    return ends


class Rank:
    """One process's end of a group."""

    def __init__(self, nic: Nic, rank: int, words: dict[int, socket.socket], data: dict[int, socket.socket]) -> None:
        self.nic, self.rank, self.words, self.data = nic, rank, words, data
        self.number = 0
        self.socket, nics = plain.socketpair(plain.AF_UNIX, plain.SOCK_SEQPACKET)
        self.socket.settimeout(WAIT_S)
        numbers = [
            [0 if other == rank else stream(side[other]) for other in range(len(words) + 1)] for side in (words, data)
        ]
        with nics, nic.client() as client:
            client.call(control.Join(rank, *numbers), nics.fileno())

    def post(self, source: Array, result: Array, collective: str = "allreduce", **fields: Any) -> int:
        self.number += 1
        size = len(self.words) + 1
        counts = tuple(block.stop - block.start for block in partition(source.size, size))
        fields = {"op": "SUM", "call": "Iallreduce", **fields}
        call = fields.pop("call")
        places = self.place(source), self.place(result)
        post = Post(self.number, call, collective, "ring", source.dtype.name, counts, *places, **fields)
        self.socket.send(descriptors.encode(post))
        return self.number

    def place(self, array: Array) -> tuple[int, int]:
        place = memory.find(array.view(np.uint8).data)
        assert place is not None
        return memory.number(place.region, self.nic.path), place.offset

    def told(self) -> Completed | Failed:
        reply: Completed | Failed = descriptors.decode_from_nic(self.socket.recv(1 << 16))
        return reply

    def close(self) -> None:
        self.socket.close()
        for connection in (*self.words.values(), *self.data.values()):
            connection.close()


@contextlib.contextmanager
def group(nics: Sequence[Nic]) -> Iterator[list[Rank]]:
    words, data = mesh(nics), mesh(nics)
    ranks = [Rank(nic, rank, words[rank], data[rank]) for rank, nic in enumerate(nics)]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.close()
        until(lambda: not any(nic.alive and nic.counters()["groups"] for nic in nics))


@pytest.fixture(scope="module")
def three() -> Iterator[list[Nic]]:
    with running(3) as nics:
        yield nics


def registered(data: Array) -> Array:
    array = softnic.empty(data.shape, data.dtype)
    array[:] = data
    return array


def contributions(size: int, count: int) -> list[Array]:
    rng = np.random.default_rng(count)
    return [registered((rng.standard_normal(count) * 0.1).astype(np.float32)) for _ in range(size)]


def grown(nic: Nic, before: dict[str, int], name: str) -> int:
    return nic.counters()[name] - before[name]


def test_allreduce_from_region_to_region(three: list[Nic]) -> None:
    before = three[1].counters()
    sources = contributions(3, 500_001)
    results = [softnic.zeros(500_001) for _ in range(3)]
    with group(three) as ranks:
        for rank, source, result in zip(ranks, sources, results, strict=True):
            assert rank.post(source, result) == 1
        assert [rank.told() for rank in ranks] == [Completed(1)] * 3
    for result in results:
        np.testing.assert_allclose(result, sum(sources), atol=1e-6)
        assert result.tobytes() == results[0].tobytes()
    assert grown(three[1], before, "collectives_posted") == grown(three[1], before, "collectives_completed") == 1
    assert grown(three[1], before, "collectives_failed") == 0


@pytest.mark.parametrize("codec", ["bounded:10", "bfp:7"])
def test_compressed_and_in_place_many_at_a_time(three: list[Nic], codec: str) -> None:
    rounded = codecs.get(codec).roundtrip
    with group(three) as ranks:
        for count in (100_000, 33):
            buffers = [contributions(3, count + index) for index in range(20)]
            copies = [[array.copy() for array in arrays] for arrays in buffers]
            for arrays in buffers:
                for rank, array in zip(ranks, arrays, strict=True):
                    rank.post(array, array, codec=codec, call="Iallreduce_comp")
            for rank in ranks:
                assert sorted(str(rank.told()) for _ in buffers) == sorted(
                    str(Completed(rank.number - index)) for index in range(20)
                )
            for arrays, before in zip(buffers, copies, strict=True):
                for index, block in enumerate(partition(arrays[0].size, 3)):
                    partial = before[index][block]
                    for step in (1, 2):
                        partial = rounded(partial) + before[(index + step) % 3][block]
                    assert all(array[block].tobytes() == rounded(partial).tobytes() for array in arrays)
