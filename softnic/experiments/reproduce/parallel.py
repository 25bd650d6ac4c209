"""The same function over many tasks, in as many processes as there are cores, each with one thread.

Trainings of a small network are many short matrix products, which several threads of one process only wait for.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from softnic.experiments.report import Progress

T = TypeVar("T")

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "SOFTNIC_THREADS": "1"}


def each(function: Callable[..., T], tasks: Mapping[str, tuple[object, ...]], progress: Progress) -> dict[str, T]:
    """What the function returns for the arguments of each task, by the task's name and in the tasks' order. It has to
    be one that another process can import. Raises what the first that fails raises."""
    cores = len(os.sched_getaffinity(0))
    with _environment(ONE_THREAD), ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(function, *arguments): name for name, arguments in tasks.items()}
        done: dict[str, T] = {}
        try:
            for future in as_completed(running):
                done[running[future]] = future.result()
                progress(f"{len(done)} of {len(tasks)} are done: {running[future]}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {name: done[name] for name in tasks}


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """What processes that are started meanwhile find in theirs."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
