"""What commands say of processes that are members of jobs whose members come and go."""

from __future__ import annotations

from collections.abc import Sequence

from softnic.ipc.membership import MembershipInfo
from softnic.units import counted, text_bytes


def membership_lines(memberships: Sequence[MembershipInfo]) -> list[str]:
    """Return a line for each member: epoch, how many there are, and what this one does."""
    return [_line(each) for each in memberships]


def _line(note: MembershipInfo) -> str:
    parts = [f"epoch {note.epoch}", f"rank {note.rank} of {counted(note.size, 'member')}"]
    if note.members:
        more = note.size - len(note.members)
        parts[-1] += f" ({', '.join(note.members)}{f' and {more} more' if more > 0 else ''})"
    doing = note.phase
    if note.sources:
        doing += f" from {', '.join(note.sources)}"
    if note.total:
        doing += f": {text_bytes(note.done)} of {text_bytes(note.total)} ({note.done / note.total:.0%})"
    return f"{note.job}: " + ", ".join([*parts, doing] if doing else parts)
