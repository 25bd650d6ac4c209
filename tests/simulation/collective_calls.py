"""The collectives that a job calls: what each rank contributes, and what it must have in the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from softnic.collectives import schedule
from softnic.ipc.work_queue import WorkRequest
from tests.simulation.invariants import Violation

Array = npt.NDArray[Any]
CODECS = ("inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "auto:bounded:8")
_ROOTED = ("reduce", "bcast")
_OWNED = ("allgather", "bcast")
"""Collectives to which ranks contribute whole blocks, not terms of a sum."""
_OPS: dict[str, Callable[..., Any]] = {"SUM": np.sum, "MAX": np.max, "MIN": np.min}


class CollectiveCall:
    """One collective of a job of `size` ranks. Results are compared as ranks complete it."""

    def __init__(self, number: int, size: int, rng: random.Random) -> None:
        self.number = number
        self._size = size
        self.collective = rng.choice(schedule.COLLECTIVES)
        self.algorithm = rng.choice((*schedule.ALGORITHMS, "hierarchical:2"))
        self._codec = rng.choice(("", "", *CODECS))
        self._dtype = "float32" if self._codec else rng.choice(("float32", "int64", "int16"))
        self._op = "" if self.collective in _OWNED else rng.choice(tuple(_OPS))
        self._root = rng.randrange(size) if self.collective in _ROOTED else -1
        count = int(10 ** rng.uniform(0, 4.3))
        arrays = np.random.default_rng(rng.getrandbits(64))
        self._sources = [self._contribution(arrays, count) for _ in range(size)]
        self._blocks = schedule.blocks(self.collective, self.algorithm, count, size)
        self._in_place = rng.random() < 0.5 or self.collective in _OWNED
        self._first: tuple[int, bytes] | None = None
        """The first rank that completed it, and its result."""

    def _contribution(self, arrays: np.random.Generator, count: int) -> Array:
        if self._dtype == "float32":
            return (arrays.standard_normal(count) * 0.1).astype(np.float32)
        return arrays.integers(-1000, 1000, count).astype(self._dtype)

    def __str__(self) -> str:
        return f"call {self.number} ({self.collective} {self.algorithm} {self._codec or self._dtype})"

    def post(self, rank: int, *, wrong: bool = False) -> tuple[WorkRequest, Array, Array]:
        """Return a rank's work request with its source and result buffers. `wrong`: of another collective than the
        other ranks'."""
        source = self._sources[rank].copy()
        result = source if self._in_place else np.zeros_like(source)
        counts = tuple(block.stop - block.start for block in self._blocks)
        call = "Iother" if wrong else f"I{self.collective}"
        fields = (self.number, call, self.collective, self.algorithm, self._dtype, counts, (0, 0), (0, 0))
        return WorkRequest(*fields, op=self._op, root=self._root, codec=self._codec), source, result

    def check(self, rank: int, result: Array) -> None:
        """Check the result with which a rank completed it. Raises Violation."""
        if self.collective == "reduce" and rank != self._root:
            return
        own = self._blocks[rank] if self.collective == "reduce_scatter" else slice(None)
        found = result[own]
        self._check_numbers(rank, found, self._expected()[own])
        if self.collective == "reduce_scatter":
            return
        if self._first is None:
            self._first = rank, found.tobytes()
        elif self._first[1] != found.tobytes():
            raise Violation(f"ranks {self._first[0]} and {rank} end {self} with different bits")

    def _expected(self) -> Array:
        """Compute the result with numpy, floats in float64."""
        if self.collective == "bcast":
            return self._sources[self._root]
        if self.collective == "allgather":
            return np.concatenate([self._sources[rank][block] for rank, block in enumerate(self._blocks)])
        exact = np.float64 if self._dtype == "float32" else np.dtype(self._dtype)
        expected: Array = _OPS[self._op](np.stack(self._sources).astype(exact), axis=0)
        return expected.astype(exact)

    def _check_numbers(self, rank: int, found: Array, expected: Array) -> None:
        if self._dtype != "float32":
            good = np.array_equal(found, expected.astype(self._dtype))
        else:
            # Every rank's contribution is rounded at most once by each rank, and the sum once more.
            once = {"": 1e-6, "bounded:10": 2**-10, "auto:bounded:8": 2**-8, "inceptionn:10": 2**-7}.get(self._codec)
            bound = (once or 2**-5) * self._size * (self._size + 1)
            good = bool(np.all(np.abs(found.astype(np.float64) - expected) <= bound))
        if not good:
            raise Violation(f"rank {rank} ends {self} with wrong numbers")
