"""What a collective call of torch gives back: a Work, and the Future that DDP and FSDP wait for.

A Work is over when the thread of its process group says so. Futures are completed by threads of their own, as what is
chained to them may wait for further collectives (PowerSGD's hook does): were that done in the group's thread, it would
wait for itself.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.futures import Future

from softnic.torch.untraced import Untraced

Expire = Callable[[str], None]
"""Ends the process group, for the reason given."""


class Work(Untraced, dist.Work):
    """One call in progress. `call` names it in errors; `outputs` are the tensors that it fills."""

    def __init__(self, call: str, outputs: Sequence[Any], timeout_s: float, expire: Expire) -> None:
        super().__init__()
        self.call = call
        self._outputs = list(outputs)
        self._timeout_s = timeout_s
        self._expire = expire
        self._over = threading.Event()
        self._error: dist.DistBackendError | None = None
        self._source = -1
        self._lock = threading.Lock()
        self._future: Future[Any] | None = None
        self._visible: Future[Any] | None = None

    # -- the group's side ------------------------------------------------------------------------------------------

    def complete(self, source: int = -1) -> None:
        """The outputs are there. `source`: the rank that sent them, if they are a message."""
        self._source = source
        self._settle()

    def fail(self, text: str) -> None:
        self._error = dist.DistBackendError(text)
        self._settle()

    def _settle(self) -> None:
        with self._lock:
            self._over.set()
            future = self._future
        if future is not None:
            completers.run(lambda: future.set_result(None))

    # -- torch's side ----------------------------------------------------------------------------------------------

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Returns when the outputs are there. Raises DistBackendError: what failed, with the rank, or that the timeout
        has passed (of this call, or the group's), after which the group is of no further use."""
        limit_s = timeout.total_seconds() or self._timeout_s
        if not self._over.wait(limit_s):
            self._expire(f"{self.call} took longer than the timeout of {limit_s:g} s")
            self._over.wait()
        self._raise()
        return True

    def get_future(self) -> Future[Any]:
        """Of the list of outputs."""
        with self._lock:
            if self._visible is None:
                self._future = Future()
                # An error that `then` meets is one to C++ as well, which set_exception's is not.
                self._visible = self._future.then(self._outcome)
                if self._over.is_set():
                    self._future.set_result(None)
            return self._visible

    def is_completed(self) -> bool:
        return self._over.is_set()

    def is_success(self) -> bool:
        return self._over.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[Any]:
        self.wait()
        return self._outputs

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        """Of a message that may have come from any rank: who sent it."""
        return self._source

    _source_rank = source_rank

    def _outcome(self, _: Future[Any]) -> list[Any]:
        self._raise()
        return self._outputs

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


class Completers:
    """Threads that run what may block: always one that is free, for whatever waits may wait for the next."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def run(self, task: Callable[[], object]) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._serve, name="softnic-futures", daemon=True).start()
            self._queue.put(task)

    def _serve(self) -> None:
        while True:
            self._queue.get()()
            with self._lock:
                self._idle += 1


completers = Completers()
"""Of this process."""
