"""What members of elastic jobs tell their NICs, for those who look at these."""

from __future__ import annotations

import msgspec

MOST_NAMES, MOST_CHARACTERS = 64, 128
"""Members or sources that a note names; characters of a name."""


class MembershipInfo(msgspec.Struct, frozen=True):
    """What a member of a job whose members come and go says of itself."""

    job: str
    epoch: str
    """Names the present members' group, the same for all of them: another one after each change."""
    rank: int
    size: int
    """Number of members."""
    members: list[str] = []
    """Names of the first 64, by rank; empty: they have none."""
    phase: str = ""
    """What it does: training, healing, waiting."""
    sources: list[str] = []
    """Members that it heals from, or that heal from it."""
    done: int = 0
    total: int = 0
    """Bytes of state that it has received, and all; 0: it is not healing."""


class NoteMembership(msgspec.Struct, frozen=True, tag=True):
    """Tells what a member of an elastic job does, for NicStats. Reply: Done.

    Kept until the next note of this control connection, or its end. None: there is nothing to tell any more.
    """

    membership: MembershipInfo | None
