"""One function over many tasks, in a process for each core, each with one thread.

A training of a small network is many short matrix products, for which several threads only wait.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from softnic.experiments.runner import ONE_THREAD
from softnic.measure.report import Progress

T = TypeVar("T")
Tasks = Mapping[str, tuple[object, ...]]
"""The arguments of each task by its name."""


def _nothing(_name: str, _result: object) -> None:
    pass


def each(
    function: Callable[..., T], tasks: Tasks, progress: Progress, on_done: Callable[[str, T], None] = _nothing
) -> dict[str, T]:
    """Return the function's results for the arguments of each task, by the task's name and in the tasks' order.

    The function must be one that another process can import. `on_done` receives each result as soon as there is one.
    Raises the first exception that the function raises.
    """
    cores = len(os.sched_getaffinity(0))
    with _environment(ONE_THREAD), ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(function, *arguments): name for name, arguments in tasks.items()}
        done: dict[str, T] = {}
        try:
            for future in as_completed(running):
                done[running[future]] = future.result()
                on_done(running[future], done[running[future]])
                progress(f"{len(done)} of {len(tasks)} done: {running[future]}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {name: done[name] for name in tasks}


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes started in the block."""
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
