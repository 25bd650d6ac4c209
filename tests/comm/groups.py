"""NICs that execute collectives, played by one thread of the test: it waits for all ranks' posts and then does them
with numpy. What a NIC may leave in memory that has no result to hold, it fills with GARBAGE. And what ranks have for
them."""

from __future__ import annotations

import itertools
import mmap
import os
import select
import socket as stdlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from softnic import codecs
from tests.comm.ranks import MODULE
from tests.facades.collectives import offsets
from tests.facades.comm import AVG, MAX, MIN, PROD, SUM, Array, Nic, Transport, named
from tests.facades.ipc import CancelRequest, Region, WorkCompletion, WorkFailed, WorkRequest, work_queue

OPS = {op.name: op for op in (SUM, PROD, MAX, MIN, AVG)}
GARBAGE = 0xAB
COUNT = 1003
"""Elements of a contribution: not a multiple of 16, nor of ranks."""


def values(rank: int, dtype: Any = np.float32, count: int = COUNT) -> Any:
    """What a rank contributes."""
    return (np.arange(count) % 7 + rank + 1).astype(dtype)


def total(size: int, dtype: Any = np.float32, count: int = COUNT) -> Any:
    """The sum of what all ranks do."""
    return sum(values(rank, dtype, count) for rank in range(size))


class FakeNics(Transport):
    """Those of all ranks. `held`: requests by number that are not done before `release`."""

    def __init__(self, *, held: bool = False) -> None:
        super().__init__(MODULE)
        self.posts: dict[int, dict[int, WorkRequest]] = {}
        """By number and rank."""
        self.order: list[int] = []
        """Numbers, in the order in which they were done."""
        self._regions: dict[int, mmap.mmap] = {}
        self._numbers = itertools.count(1)
        self.ends: dict[int, stdlib.socket] = {}
        self._held = held
        self._released: set[int] = set()
        self._deaf: set[int] = set()
        self._lock = threading.RLock()
        self._closed = False
        self._wake = os.eventfd(0)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)

    def join(self, rank: int, words: Mapping[int, stdlib.socket], data: Mapping[int, stdlib.socket]) -> Nic | None:
        assert sorted(words) == sorted(data)
        assert rank not in words
        ours, theirs = stdlib.socketpair(stdlib.AF_UNIX, stdlib.SOCK_SEQPACKET)
        ours.setblocking(False)
        with self._lock:
            self.ends[rank] = theirs
        os.eventfd_write(self._wake, 1)
        return Nic(ours, self._number)

    def _number(self, region: Region) -> int:
        with self._lock:
            number = next(self._numbers)
            self._regions[number] = mmap.mmap(region.descriptor, region.size)
            return number

    def release(self, *numbers: int) -> None:
        """Lets these requests be done, in this order; none: all, from now on."""
        with self._lock:
            self._held = self._held and bool(numbers)
            for number in numbers or sorted(self.posts):
                self._released.add(number)
                self._work(number)

    @contextmanager
    def deaf(self, rank: int) -> Iterator[None]:
        """One of them does not read what its process posts."""
        with self._lock:
            self._deaf.add(rank)
        os.eventfd_write(self._wake, 1)
        yield
        with self._lock:
            self._deaf.remove(rank)
        os.eventfd_write(self._wake, 1)

    def say(self, rank: int, message: work_queue.FromNic) -> None:
        self.ends[rank].send(work_queue.encode(message))

    def say_bytes(self, rank: int, packet: bytes) -> None:
        self.ends[rank].send(packet)

    def fail(self, rank: int, text: str) -> None:
        """The group is over on all ranks."""
        with self._lock:
            for end in self.ends.values():
                with suppress(OSError):
                    end.send(work_queue.encode(WorkFailed(rank, text)))

    def die(self, rank: int) -> None:
        """One of them."""
        self.ends[rank].shutdown(stdlib.SHUT_RDWR)

    def _serve(self) -> None:
        while not self._closed:
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            with self._lock:
                ends = {
                    end.fileno(): rank
                    for rank, end in self.ends.items()
                    if end.fileno() >= 0 and rank not in self._deaf
                }
            for descriptor in ends:
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll():
                if descriptor == self._wake:
                    os.eventfd_read(self._wake)
                else:
                    with self._lock:
                        if ends[descriptor] not in self._deaf:
                            self._hear(ends[descriptor])
        with self._lock:
            for end in self.ends.values():
                end.close()

    def _hear(self, rank: int) -> None:
        try:
            packet = self.ends[rank].recv(work_queue.MAX_PACKET)
        except OSError:
            packet = b""
        if not packet:
            self.ends[rank].close()
            self.fail(rank, f"rank {rank} is gone")
            return
        match work_queue.decode_from_process(packet):
            case WorkRequest() as post:
                self.posts.setdefault(post.number, {})[rank] = post
                if not self._held or post.number in self._released:
                    self._work(post.number)
            case CancelRequest(number):
                call = self.posts[number][rank].call
                self.fail(rank, f"rank {rank} cancelled {call}")

    def _memory(self, place: tuple[int, int], post: WorkRequest) -> Array:
        dtype = named(post.dtype)
        count = sum(post.counts)
        assert place[1] + count * dtype.itemsize <= len(self._regions[place[0]])
        return np.frombuffer(self._regions[place[0]], dtype, count, place[1])

    def _work(self, number: int) -> None:
        posts = self.posts.get(number, {})
        if len(posts) < len(self.ends) or number in self.order:
            return
        first = posts[0]
        for rank, post in posts.items():
            if (post.call, post.counts, post.dtype, post.op, post.root, post.codec) != (
                first.call, first.counts, first.dtype, first.op, first.root, first.codec,
            ):  # fmt: skip
                self.fail(rank, f"rank {rank} called {post.call}, rank 0 {first.call}")
                return
        self.order.append(number)
        results = self._results(posts)
        for rank, post in posts.items():
            self._memory(post.result, post).view(np.uint8)[:] = GARBAGE
            for part, values in results[rank]:
                self._memory(post.result, post)[part] = values
            with suppress(OSError):
                self.say(rank, WorkCompletion(number))

    def _results(self, posts: Mapping[int, WorkRequest]) -> dict[int, list[tuple[slice, Any]]]:
        """By rank, what it gets and where."""
        first, size = posts[0], len(posts)
        sources = [self._memory(posts[rank].source, posts[rank]).copy() for rank in range(size)]
        blocks = offsets(first.counts)
        whole = slice(0, blocks[-1].stop)
        if first.collective == "allgather":
            result = np.concatenate([source[block] for source, block in zip(sources, blocks, strict=True)])
        elif first.collective == "bcast":
            result = sources[first.root]
        else:
            result = sources[0]
            for source in sources[1:]:
                OPS[first.op].combine(result, source, result)
            OPS[first.op].finish(result, size)
        if first.codec:
            result = codecs.get(first.codec).roundtrip(result)
        if first.collective == "reduce":
            return {rank: [(whole, result)] if rank == first.root else [] for rank in range(size)}
        if first.collective == "reduce_scatter":
            return {rank: [(blocks[rank], result[blocks[rank]])] for rank in range(size)}
        return {rank: [(whole, result)] for rank in range(size)}
