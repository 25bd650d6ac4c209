"""The Work that a collective call of torch returns, and the Future that DDP and FSDP wait for.

The thread of the process group completes a Work, or the one that waits for it (group_thread.py). Futures are completed
in threads of their own: callbacks that are chained to them may wait for further collectives, as PowerSGD's hook does,
and would block the group's thread.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.futures import Future

from softnic.torch.flight_recorder import CallRecord
from softnic.torch.untraced import Untraced


class SoftnicWork(Untraced, dist.Work):
    """One call of a process group, whose progress goes to its record; `outputs` are the tensors that it fills.

    `settled` is called when it is complete or has failed.
    """

    def __init__(
        self, record: CallRecord, outputs: Sequence[Any], expire: Expire, settled: Callable[[], object]
    ) -> None:
        super().__init__()
        self.record = record
        self.call = record.call
        self.timeout_s = record.timeout_s
        self.expires_at = math.inf
        """When the group's thread ends the group, if this is not complete. Only a Future has that: `wait` has its own
        limit."""
        self._began_at = time.monotonic()
        self._outputs = list(outputs)
        self._expire = expire
        self._settled = settled
        self._done = threading.Event()
        self._error: dist.DistBackendError | None = None
        self._source = -1
        self._lock = threading.Lock()
        self._future: Future[Any] | None = None
        self._visible: Future[Any] | None = None
        self._wait_in_caller: Callable[[float], object] | None = None
        self._take_over: Callable[[], object] | None = None

    # -- for the thread that makes the call --------------------------------------------------------------------------

    def leave_to_caller(self, wait: Callable[[float], object], take_over: Callable[[], object]) -> None:
        """Have `wait` complete this when it is waited for, within a time limit.

        `take_over` has the group's thread complete it.
        """
        self._wait_in_caller, self._take_over = wait, take_over

    # -- for the group's thread -------------------------------------------------------------------------------------

    def complete(self, source: int = -1) -> None:
        """Report that the outputs are complete. `source` is the rank that sent them, for a message."""
        self._source = source
        self.record.complete()
        self._settle()

    def fail(self, text: str) -> None:
        """Report an error."""
        self._error = dist.DistBackendError(text)
        self._settle()

    def _settle(self) -> None:
        with self._lock:
            if not self._done.is_set():
                self._settled()
            self._done.set()
            future = self._future
        self._wait_in_caller = self._take_over = None  # ends a cycle of references, and with it the memory of the call
        if future is not None:
            future_threads.run(lambda: future.set_result(None))

    # -- for torch ------------------------------------------------------------------------------------------------

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the outputs are complete, for the timeout of the call unless one is given.

        Raises
        ------
        DistBackendError
            If the call failed; the error names the rank. Also if the timeout (of this method, or the group's) expires;
            the group is unusable then.
        """
        limit_s = left_s = (timeout.total_seconds() if timeout else 0.0) or self.timeout_s
        wait, self._wait_in_caller = self._wait_in_caller, None
        if wait is not None:
            until = time.monotonic() + limit_s
            wait(limit_s)
            left_s = max(0.0, until - time.monotonic())
        if not self._done.is_set() and not self._done.wait(left_s):
            self._expire(self, limit_s)
            self._done.wait()
        self._raise()
        return True

    def get_future(self) -> Future[Any]:
        """Return a future of the list of outputs. It fails when the timeout of the call, or the group's, expires."""
        self._have_taken_over()
        self.expires_at = self._began_at + self.timeout_s
        with self._lock:
            if self._visible is None:
                self._future = Future()
                # C++ sees an error that is raised in `then`, but not one of set_exception.
                self._visible = self._future.then(self._outcome)
                if self._done.is_set():
                    self._future.set_result(None)
            return self._visible

    @property
    def is_settled(self) -> bool:
        """Whether it was reported to be complete or to have failed."""
        return self._done.is_set()

    def is_completed(self) -> bool:
        self._have_taken_over()
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[Any]:
        self.wait()
        return self._outputs

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        """Return the rank that sent a message."""
        return self._source

    _source_rank = source_rank

    def _outcome(self, _: Future[Any]) -> list[Any]:
        self._raise()
        return self._outputs

    def _have_taken_over(self) -> None:
        take_over = self._take_over
        if take_over is not None:
            take_over()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


class FutureThreads:
    """Runs tasks that may block, each in an idle thread: a task may wait for a later one."""

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


future_threads = FutureThreads()

Expire = Callable[[SoftnicWork, float], object]
"""Ends the process group because a Work took longer than a time limit in seconds."""
