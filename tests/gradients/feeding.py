"""Gradients for tests: different on each rank and in each step, for parameters of many sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from softnic.gradients import Floats, Method, get
from softnic.mpi.communicator import Communicator
from tests.mpi.ranks import run

SIZES = {"first": 300, "second": 7, "third": 1, "fourth": 64}
SCALE = {"first": 1e-2, "second": 1e-6, "third": 1.0, "fourth": 1e-3}


def given(rank: int, step: int = 0) -> dict[str, Floats]:
    draw = np.random.default_rng([rank, step])
    return {name: (draw.standard_normal(size) * SCALE[name]).astype(np.float32) for name, size in SIZES.items()}


def mean(size: int, step: int = 0) -> dict[str, Floats]:
    """Return the mean of all ranks' gradients, rounded once to float32."""
    sums = {name: np.sum([given(rank, step)[name] for rank in range(size)], axis=0, dtype=np.float64) for name in SIZES}
    return {name: np.asarray(total / size, np.float32) for name, total in sums.items()}


def steps(size: int, method: Callable[[], Method] | str, count: int) -> list[tuple[list[dict[str, Floats]], Method]]:
    """Return for each rank the means of `count` steps and the method with its final state."""

    def program(comm: Communicator) -> tuple[list[dict[str, Floats]], Method]:
        made = get(method) if isinstance(method, str) else method()
        results = []
        for step in range(count):
            gradients = given(comm.rank, step)
            made.average(comm, gradients)
            results.append(gradients)
        return results, made

    return run(size, program)


def bits(results: list[dict[str, Floats]]) -> bytes:
    return b"".join(result[name].tobytes() for result in results for name in result)


def kept(method: Method, what: str) -> dict[str, Any]:
    found: dict[str, Any] = method.state_dict()["kept"][what]
    return found
