"""The thread of a process group: it makes all calls of the group's communicator, as many at a time as were asked for.

Calls begin in the order in which they were made, and each is over when all its parts are. An error of any ends the
group: what is in progress, and whatever comes later, fails with it.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from softnic.comm import Communicator
from softnic.comm.progress_loop import Driver
from softnic.comm.scratch import Scratch
from softnic.torch.parts import Means, Part
from softnic.torch.work import Work

_CLOSE_S = 5.0
"""How long the end of a group waits for its thread."""


class _Call:
    """A Work and its parts."""

    def __init__(self, work: Work, parts: Sequence[Part]) -> None:
        self.work = work
        self.parts = parts

    @property
    def over(self) -> bool:
        return all([part.over for part in self.parts])

    def finish(self) -> None:
        for part in self.parts:
            part.finish()
        self.work.complete(max(part.source for part in self.parts))


class Engine:
    """Takes a communicator over: nobody else makes calls of it from now on. It is freed in the end."""

    def __init__(self, comm: Communicator, name: str) -> None:
        self._comm = comm
        self._name = name
        self._driver = Driver(comm)
        self._means = Means(comm, self._driver, Scratch())
        self._lock = threading.Lock()
        self._new: deque[_Call] = deque()
        self._calls: list[_Call] = []
        """In progress; the thread's own."""
        self._reason = ""
        """Why nothing can be asked of it any more."""
        self._closing = False
        self._aborted = False
        self._thread = threading.Thread(target=self._serve, name=f"softnic-{name}", daemon=True)
        self._thread.start()
        _open.add(self)

    def submit(self, call: str, parts: Sequence[Part], outputs: Sequence[Any], timeout_s: float) -> Work:
        """Begins a call, which `call` names in errors."""
        work = Work(call, outputs, timeout_s, self.abort)
        with self._lock:
            reason = self._reason
            if not reason:
                self._new.append(_Call(work, parts))
        if reason:
            work.fail(f"{work.call}: {reason}")
        else:
            self._driver.ring()
        return work

    def abort(self, reason: str) -> None:
        """Ends the group on all ranks, now."""
        self._aborted = True
        self._end(reason)
        self._driver.ring()

    def close(self) -> None:
        """Ends the group here, once what is in progress is over; other ranks may go on with what needs this one not."""
        with self._lock:
            self._closing = True
        self._driver.ring()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_S)
        _open.discard(self)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        with torch.inference_mode():  # a tensor that is written to here was handed over: autograd has no say in it
            try:
                while self._rest():
                    self._driver.run(self._name, self._turn)
            except Exception as error:
                self._end(str(error))
            finally:
                self._fail_all()
                if self._aborted:
                    self._driver.abort(self._reason)
                self._comm.Free()
                self._means.pool.clear()
                self._driver.close()

    def _rest(self) -> bool:
        """Waits for a call. False: there will be none."""
        while True:
            with self._lock:
                if self._new:
                    return True
                if self._closing or self._reason:
                    self._reason = self._reason or "it was destroyed"
                    return False
            self._driver.rest()

    def _turn(self) -> bool:
        if self._reason:
            raise RuntimeError(self._reason)
        while self._new:
            call = self._new.popleft()
            self._calls.append(call)
            for part in call.parts:
                part.begin(self._means)
        for call in [call for call in self._calls if call.over]:
            call.finish()
            self._calls.remove(call)
        return not self._calls and not self._new

    def _end(self, reason: str) -> None:
        with self._lock:
            self._reason = self._reason or reason

    def _fail_all(self) -> None:
        with self._lock:
            left = [*self._calls, *self._new]
            self._calls.clear()
            self._new.clear()
        for call in left:
            call.work.fail(f"{call.work.call}: {self._reason}")


_open: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for engine in list(_open):
        engine.close()
