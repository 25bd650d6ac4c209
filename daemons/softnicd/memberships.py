"""What members of elastic jobs say of themselves: kept for those who look at the NIC, and used for nothing else."""

from __future__ import annotations

import errno

from softnic.ipc.control import Done
from softnic.ipc.membership import MOST_CHARACTERS, MOST_NAMES, MembershipInfo, NoteMembership
from softnicd.handlers import Handler


class Memberships:
    """The last note of each client, until it disconnects."""

    def __init__(self) -> None:
        self._notes: dict[object, MembershipInfo] = {}
        self.by_request: dict[type, Handler] = {NoteMembership: self._note}

    def infos(self) -> list[MembershipInfo]:
        """Return the notes, in the order of the jobs' names."""
        return sorted(self._notes.values(), key=lambda note: (note.job, note.rank))

    def leave(self, client: object) -> None:
        """Forget the note of a client."""
        self._notes.pop(client, None)

    def _note(self, request: NoteMembership, _fd: int | None, client: object) -> Done:
        note = request.membership
        if note is None:
            self.leave(client)
            return Done()
        names = (note.job, note.epoch, note.phase, *note.members, *note.sources)
        if len(note.members) > MOST_NAMES or len(note.sources) > MOST_NAMES:
            raise OSError(errno.EINVAL, f"a note of a membership has at most {MOST_NAMES} members and sources")
        if any(len(name) > MOST_CHARACTERS for name in names):
            raise OSError(errno.EINVAL, f"a name in a note of a membership has at most {MOST_CHARACTERS} characters")
        self._notes[client] = note
        return Done()
