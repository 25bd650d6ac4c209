"""Clusters whose ranks live for many programs, and what is to be said of those that fail."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from softnic import Cluster
from tests.mpi.programs.program import DEFAULT_CODEC, Program, make

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300.0
"""A program that takes longer hangs."""


@dataclass(frozen=True)
class Failure:
    program: Program
    text: str


class Job:
    """As many NICs and ranks as programs want, until a program fails."""

    def __init__(self, size: int, *, loss: str | None = None) -> None:
        self._stack = ExitStack()
        cluster = self._stack.enter_context(Cluster(size, codec=DEFAULT_CODEC, loss=loss, seed=size))
        self._errors = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) / "errors"
        errors = self._stack.enter_context(self._errors.open("ab"))
        path = os.pathsep.join([str(ROOT), str(ROOT / "daemons"), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.mpi.programs.rank"],
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **cluster.env(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
            for rank in range(size)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for rank in self._ranks:
            rank.kill()
            rank.communicate()
        self._stack.close()

    def run(self, program: Program, options: dict[str, Any]) -> str:
        """Why it failed; empty if it did not."""
        line = json.dumps(options) + "\n"
        for rank in self._ranks:
            assert rank.stdin is not None
            try:
                rank.stdin.write(line)
                rank.stdin.flush()
            except BrokenPipeError:
                pass  # it has said why, or will be found silent
        told = self._answers()
        errors = [f"rank {rank}: {answer['error']}" for rank, answer in sorted(told.items()) if "error" in answer]
        missing = [rank for rank in range(len(self._ranks)) if rank not in told]
        if missing:
            errors.append(f"ranks {missing} say nothing within {LIMIT_S:g} s\n{self._said()}")
        if errors:
            return "\n".join(errors)
        return differing(program, [told[rank]["digests"] for rank in range(len(self._ranks))])

    def _answers(self) -> dict[int, Any]:
        """By rank."""
        told: dict[int, Any] = {}
        deadline = time.monotonic() + LIMIT_S
        with selectors.DefaultSelector() as selector:
            for number, rank in enumerate(self._ranks):
                assert rank.stdout is not None
                selector.register(rank.stdout, selectors.EVENT_READ, number)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    line = key.fileobj.readline()  # type: ignore[union-attr]
                    selector.unregister(key.fileobj)
                    if line:
                        told[key.data] = json.loads(line)
        return told

    def _said(self) -> str:
        """The end of what ranks wrote to standard error."""
        return self._errors.read_bytes()[-4000:].decode(errors="replace")


def differing(program: Program, digests: Sequence[Sequence[int]]) -> str:
    """Which calls left ranks with different bits."""
    for call, held in zip(program.calls, zip(*digests, strict=True), strict=True):
        if len(set(held)) > 1:
            return f"ranks hold different bits after {call.name}: {[f'{digest:08x}' for digest in held]}\n  {call}"
    return ""


def run(
    options: Sequence[dict[str, Any]], *, loss: str | None = None, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Failure]:
    """Runs programs, those of equal ranks one after the other on one cluster; a failure costs the cluster."""
    programs = sorted(((make(**each), each) for each in options), key=lambda pair: pair[0].size)
    job: Job | None = None
    job_size, done = 0, 0
    with ExitStack() as stack:
        for program, each in programs:
            if job is None or job_size != program.size:
                stack.close()
                job, job_size = stack.enter_context(Job(program.size, loss=loss)), program.size
            text = job.run(program, each)
            done += 1
            progress(done)
            if text:
                job = None
                yield Failure(program, text)
