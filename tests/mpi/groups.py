"""NICs that execute collectives, played by one thread of the test: it waits for all ranks' posts and then does them
with numpy. What a NIC may leave in memory that has no result to hold, it fills with GARBAGE. And what ranks have for
them."""

from __future__ import annotations

import os
import socket as stdlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from softnic import codecs
from softnic.collectives.elements import Array, named
from softnic.collectives.operations import AVG, MAX, MIN, PROD, SUM
from softnic.collectives.schedule import offsets
from softnic.ipc import work_queue
from softnic.ipc.work_queue import CancelRequest, WorkCompletion, WorkFailed, WorkRequest
from tests.comm.engine_nics import EngineEnd, EngineNics

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


class FakeNics(EngineNics):
    """NICs whose collectives this thread computes. `held`: requests by number that are not done before `release`."""

    def __init__(self, *, held: bool = False) -> None:
        self.posts: dict[int, dict[int, WorkRequest]] = {}
        """By number and rank."""
        self.order: list[int] = []
        """Numbers, in the order in which they were done."""
        self.ends: dict[int, stdlib.socket] = {}
        self._held = held
        self._released: set[int] = set()
        self._deaf: set[int] = set()
        super().__init__()

    def on_join(self, end: EngineEnd) -> None:
        self.ends[end.rank] = end.end

    def is_read(self, end: EngineEnd) -> bool:
        return end.rank not in self._deaf

    def release(self, *numbers: int) -> None:
        """Lets these requests be done, in this order; none: all, from now on."""
        with self.lock:
            self._held = self._held and bool(numbers)
            for number in numbers or sorted(self.posts):
                self._released.add(number)
                self._work(number)

    @contextmanager
    def deaf(self, rank: int) -> Iterator[None]:
        """One of them does not read what its process posts."""
        with self.lock:
            self._deaf.add(rank)
        os.eventfd_write(self.wake, 1)
        yield
        with self.lock:
            self._deaf.remove(rank)
        os.eventfd_write(self.wake, 1)

    def say(self, rank: int, message: work_queue.FromNic) -> None:
        self.ends[rank].send(work_queue.encode(message))

    def say_bytes(self, rank: int, packet: bytes) -> None:
        self.ends[rank].send(packet)

    def fail(self, rank: int, text: str) -> None:
        """The group is over on all ranks."""
        with self.lock:
            for end in self.ends.values():
                with suppress(OSError):
                    end.send(work_queue.encode(WorkFailed(rank, text)))

    def die(self, rank: int) -> None:
        """One of them."""
        self.ends[rank].shutdown(stdlib.SHUT_RDWR)

    def on_leave(self, end: EngineEnd) -> None:
        self.fail(end.rank, f"rank {end.rank} is gone")

    def on_request(self, end: EngineEnd, request: work_queue.FromProcess) -> None:
        match request:
            case WorkRequest():
                self.posts.setdefault(request.number, {})[end.rank] = request
                waited = not request.call.startswith("I") or "without" in request.call
                if not self._held or waited or request.number in self._released:
                    self._work(request.number)
            case CancelRequest(number) if number > 0:
                call = self.posts[number][end.rank].call
                self.fail(end.rank, f"rank {end.rank} cancelled {call}")
            case _:
                super().on_request(end, request)

    def _memory(self, place: tuple[int, int], post: WorkRequest) -> Array:
        dtype = named(post.dtype)
        count = sum(post.counts)
        return np.frombuffer(self.memory(place, count * dtype.itemsize), dtype)

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
