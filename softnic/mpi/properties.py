"""What a communicator has besides its connections: processes, topology, attributes, a name, an error handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from softnic.mpi.errhandlers import ERRORS_RETURN, Action
from softnic.mpi.groups import Process


@dataclass(frozen=True)
class InterGroups:
    """Which ranks of the communicator underneath are the groups of one of two groups."""

    first_local: int
    local_size: int
    first_remote: int
    remote_size: int


@dataclass
class CommProperties:
    """The properties of one communicator, as this rank sees them."""

    processes: tuple[Process, ...] | Callable[[], tuple[Process, ...]] | None = None
    """Its ranks' processes; None: they are the job's, in order."""
    permanent: bool = False
    """It cannot be freed: COMM_WORLD and COMM_SELF."""
    name: str = ""
    topology: Any = None
    """Of topology/topologies.py; None: it has none."""
    inter: InterGroups | None = None
    """None: it has one group."""
    on_error: Action = field(default_factory=lambda: _default_action())
    attributes: dict[int, Any] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)
    named: Callable[[Any], Any] | None = None
    """The class of the first name for it; error handlers of the program get one."""

    def inherited(self, processes: tuple[Process, ...]) -> CommProperties:
        """Return those of a communicator of some of these ranks."""
        return CommProperties(processes, on_error=self.on_error)


def _default_action() -> Action:
    action: Action = ERRORS_RETURN._target
    return action
