"""The thread of a process group, which makes the calls of the group's communicator.

Calls start in the order in which they were submitted, run concurrently, and complete when all their work items are
done. An error of any call ends the group: the calls in progress and all later ones fail with it.

A collective that its caller waits for at once is made by the caller's own thread while the group's thread has nothing
to do: waking two threads, one after the other, takes longer than a small collective. The group's thread takes it over
if the caller is interrupted, or does not only wait.
"""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from softnic.mpi.communicator import Communicator
from softnic.mpi.progress_loop import ProgressLoop
from softnic.torch.exec_context import ExecContext
from softnic.torch.flight_recorder import CallRecord, recorder
from softnic.torch.traffic import CallClock, GroupStats
from softnic.torch.work import SoftnicWork
from softnic.torch.work_items import WorkItem

_CLOSE_S = 5.0
"""Time limit of `close` for the thread to end."""
_IDLE_S = 1.0
"""How often an idle thread looks whether another rank has ended the group."""


class _PendingCall:
    """A call in progress: its Work and its work items."""

    def __init__(self, work: SoftnicWork, items: Sequence[WorkItem]) -> None:
        self.work = work
        self.items = items
        self.started = False
        self.taken_over = False
        """By the thread, from the caller."""

    def advance(self) -> bool:
        """Do what can be done without waiting; return whether all is done."""
        return all([item.advance() for item in self.items])

    def start(self, context: ExecContext) -> None:
        self.started = True
        self.work.record.start()
        for item in self.items:
            item.start(context)

    def finish(self) -> None:
        for item in self.items:
            item.finish()
        self.work.complete(max(item.source for item in self.items))


class GroupThread:
    """Takes over a communicator and frees it at the end. No other thread may make calls of it."""

    def __init__(self, comm: Communicator, name: str) -> None:
        self._comm = comm
        self._name = name
        self._loop = ProgressLoop(comm)
        self._clock = CallClock()
        self._context = ExecContext(comm, self._loop)
        self._lock = threading.Lock()
        self._new: deque[_PendingCall] = deque()
        self._calls: list[_PendingCall] = []
        """In progress; used by the thread only."""
        self._of_callers: set[_PendingCall] = set()
        """In progress in their callers' threads."""
        self._serving = False
        """Whether the thread has calls in progress."""
        self._reason = ""
        """Why no further call is accepted."""
        self.failure = ""
        """The first error that ended the group, on this rank or another; empty: there was none."""
        self._written = ""
        """Where the last calls are, after an error (flight_recorder.py)."""
        self._closing = False
        self._aborted = False
        self._ended = False
        self._at_end: list[Callable[[], object]] = []
        self._thread = threading.Thread(target=self._serve, name=f"softnic-{name}", daemon=True)
        self._thread.start()
        _open.add(self)

    def submit(
        self, record: CallRecord, items: Sequence[WorkItem], outputs: Sequence[Any], *, waits: bool = False
    ) -> SoftnicWork:
        """Start a call and return its Work. `waits`: the caller waits for it at once."""
        self._clock.begin()
        work = SoftnicWork(record, outputs, self.expire, self._clock.end)
        pending = _PendingCall(work, items)
        with self._lock:
            if not self._reason and waits and self._is_idle and all([item.can_wait for item in items]):
                self._start_in_caller(pending)
            elif not self._reason:
                self._new.append(pending)
            ended = bool(self._reason)
        if ended:
            self._fail(work)
        if ended or not pending.started:
            self._loop.wake()
        return work

    def stats(self) -> GroupStats:
        """Return what was exchanged so far. Raises OSError if the NIC does not answer."""
        return self._clock.stats(self._loop.traffic(), self._context.spared_bytes)

    def look(self) -> str:
        """Return the first error that ended the group, on this rank or another, as far as it has arrived here."""
        if not self.failure and not self._ended and self._is_idle and (failure := self._loop.failure(self._name)):
            self.failure = failure
            self._written = recorder.write()  # others may wait for this rank: before its next call
        return self.failure

    def nic_addresses(self) -> list[str]:
        """Return the address of each rank's NIC."""
        return self._loop.nic_addresses()

    def at_end(self, free: Callable[[], object]) -> None:
        """Have the thread call `free` when the group ends."""
        with self._lock:
            if not self._ended:
                self._at_end.append(free)
                return
        free()

    @property
    def _is_idle(self) -> bool:
        return not self._serving and not self._new and not self._closing

    def abort(self, reason: str, *, writes: bool = True) -> None:
        """End the group on all ranks at once. `writes`: the last calls are written to a file."""
        self._aborted = True
        with self._lock:
            self._end_locked(reason, writes=writes)
        self._loop.wake()

    def quit(self, reason: str) -> None:
        """End the group on this rank at once: calls in progress fail, and on other ranks those that wait for it."""
        if self._clock.is_running:
            self.abort(reason, writes=False)
        self.close()

    def expire(self, work: SoftnicWork, limit_s: float) -> None:
        """End the group on all ranks because a call took too long, for a reason that NICs are asked for."""
        reason = self._too_long(work, limit_s)
        if not work.is_settled:
            self.abort(reason)

    def close(self) -> None:
        """End the group on this rank after the calls in progress. Other ranks may continue without this one."""
        with self._lock:
            self._closing = True
            started = list(self._of_callers)
        for call in started:
            self._take_over(call)
        self._loop.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_S)
        _open.discard(self)

    # -- in the caller's thread --------------------------------------------------------------------------------------

    def _start_in_caller(self, call: _PendingCall) -> None:
        """Start a call that its caller waits for. An error ends the group."""
        try:
            with torch.inference_mode():
                call.start(self._context)
        except Exception as error:
            self._end_locked(str(error))
            return
        self._of_callers.add(call)
        call.work.leave_to_caller(lambda limit_s: self._wait_in_caller(call, limit_s), lambda: self._take_over(call))

    def _wait_in_caller(self, call: _PendingCall, limit_s: float) -> None:
        """Complete a call of this thread, unless the group's thread takes it over. It does so after `limit_s`."""
        try:
            with torch.inference_mode():
                if all([item.wait(limit_s) for item in call.items]) and self._withdraw(call):
                    call.finish()
        except Exception as error:
            self._end(str(error))
            self._fail(call.work)
            self._loop.wake()
        finally:
            if not call.work.is_settled:
                self._take_over(call)

    def _withdraw(self, call: _PendingCall) -> bool:
        """Return whether a call is left to its caller, which finishes it now."""
        with self._lock:
            self._of_callers.discard(call)
            return not call.taken_over

    def _take_over(self, call: _PendingCall) -> None:
        """Have the thread complete a call."""
        with self._lock:
            if call.taken_over:
                return
            call.taken_over = True
            self._of_callers.discard(call)
            self._new.append(call)
        self._loop.wake()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        with torch.inference_mode():  # the tensors written to here were handed over: autograd must not track them
            try:
                while self._wait_for_call():
                    self._loop.run(self._name, self._turn)
            except Exception as error:
                self._end(str(error))
            finally:
                self._fail_all()
                if self._aborted:
                    self._loop.abort(self._reason)
                self._comm.Free()
                self._free_all()
                self._context.close()
                self._loop.close()

    def _free_all(self) -> None:
        with self._lock:
            self._ended = True
        for free in self._at_end:
            free()

    def _wait_for_call(self) -> bool:
        """Return True when there is a call, False if there will be none."""
        while True:
            with self._lock:
                self._serving = bool(self._new)
                if self._serving:
                    return True
                if self._closing or self._reason:
                    self._reason = self._reason or "it was destroyed"
                    return False
            self._loop.wait_for_wake(_IDLE_S)
            self.look()

    def _turn(self) -> bool:
        """Start new calls and complete those that are done. Returns whether none is left."""
        if self._reason:
            raise RuntimeError(self._reason)
        while self._new:
            call = self._new.popleft()
            self._calls.append(call)
            if not call.started:
                call.start(self._context)
        self._context.post_loaded()
        for call in [call for call in self._calls if call.advance()]:
            call.finish()
            self._calls.remove(call)
        self._check_timeouts()
        return not self._calls and not self._new

    def _check_timeouts(self) -> None:
        """Raise an error for a call whose Future has waited too long. Called at least twice a second."""
        late = [call.work for call in self._calls if call.work.expires_at < math.inf]
        if late and time.monotonic() > (work := min(late, key=lambda each: each.expires_at)).expires_at:
            self._aborted = True
            raise RuntimeError(self._too_long(work, work.timeout_s))

    def _too_long(self, work: SoftnicWork, limit_s: float) -> str:
        """Return the reason of a timeout: what the call waits for, as its items and the NICs know."""
        items = [item for call in list(self._calls) if call.work is work for item in call.items]
        known = [*dict.fromkeys(item.waits_for for item in items), self._loop.why_stuck()]
        return ": ".join([f"{work.call} took longer than the timeout of {limit_s:g} s", *filter(None, known)])

    def _end(self, reason: str) -> None:
        with self._lock:
            self._end_locked(reason)

    def _end_locked(self, reason: str, *, writes: bool = True) -> None:
        """End the group by an error: no further call is accepted, and the calls so far are written to a file."""
        if not self._reason:
            self._reason = reason
            self.failure = self.failure or reason
            self._written = self._written or (recorder.write() if writes else "")

    def _fail(self, work: SoftnicWork) -> None:
        more = f" (torchfrtrace reads {self._written})" if self._written else ""
        work.fail(f"{work.call}: {self._reason}{more}")

    def _fail_all(self) -> None:
        with self._lock:
            calls = [*self._calls, *self._new]
            self._calls.clear()
            self._new.clear()
        for call in calls:
            self._fail(call.work)


_open: weakref.WeakSet[GroupThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for thread in list(_open):
        thread.close()
