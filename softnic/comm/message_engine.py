"""What makes progress on the messages of one communicator that are in progress.

Progress is made in calls: in those of the communicator, and by every thread that waits for anything (waiting.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from softnic.comm.errors import CommError
from softnic.comm.matching import Matcher
from softnic.comm.progress import Progress
from softnic.comm.waiting import Waiter, background


class Attended(Protocol):
    """A message in progress, to which a MessageEngine attends."""

    @property
    def call(self) -> str: ...


class MessageEngine:
    """The messages in progress of one communicator. It is waited for by the Waiter of its Progress."""

    def __init__(
        self, progress: Progress, matcher: Matcher, call: Callable[[str], AbstractContextManager[Any]]
    ) -> None:
        self.progress = progress
        self.matcher = matcher
        self.call = call
        """The context of a call of the communicator."""
        self._operations: dict[Attended, None] = {}
        """Those that are not settled, the oldest first."""

    # What waiters need

    @property
    def failure(self) -> object:
        return self.progress.over or None

    @property
    def waiter(self) -> Waiter:
        return self.progress.waiter

    def advance(self) -> None:
        """Make the progress that is possible without waiting. Errors are kept for the operations."""
        try:
            with self.call(self._name()):
                self.progress.turn()
        except CommError:
            self._operations.clear()
            self._update_background()

    def run(self, done: Callable[[], bool]) -> None:
        """Make progress until `done()`. Raises CommError; an interrupt does not end the communicator."""
        interrupt: BaseException | None = None
        with self.call(self._name()):
            try:
                self.progress.run(done)
            except Exception:
                raise
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _name(self) -> str:
        return next(iter(self._operations)).call if self._operations else "Wait"

    # Operations

    def enter(self, operation: Attended) -> None:
        """Attend to an operation until it is settled."""
        self._operations[operation] = None
        if len(self._operations) == 1:
            self._update_background()

    def leave(self, operation: Attended) -> None:
        """Attend to an operation no longer."""
        self._operations.pop(operation, None)
        if not self._operations:
            self._update_background()

    def _update_background(self) -> None:
        if self._operations and self not in background:
            background.append(self)
        elif not self._operations:
            with suppress(ValueError):
                background.remove(self)
