"""What a member tells its NIC, for `softnic top` and `softnic stat`: its epoch, the members, and what it does."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from softnic.checkpoint import ReceiptPhase, ReceiptProgress
from softnic.checkpoint.progress import ReceiptLines
from softnic.ipc.client import Client
from softnic.ipc.membership import MOST_CHARACTERS, MOST_NAMES, MembershipInfo, NoteMembership

POLL_S = 0.02
"""Between two looks for members that have not come yet."""
TRAINING, HEALING = "training", "healing"


def member_key(rank: int) -> str:
    """Return where a member writes its name in the store of a quorum."""
    return f"softnic/member/{rank}"


def roll_call(store: Any, size: int, most_s: float, patience_s: float) -> list[int]:
    """Wait for all members of a quorum, who come at once, to write their names in its store.

    Parameters
    ----------
    store
        Of the quorum.
    size
        Members.
    most_s
        How long this may take.
    patience_s
        How long to wait for those that are missing after another one has come.

    Returns
    -------
    list of int
        The ranks that have not come: they have died since they asked for the quorum.
    """
    missing = list(range(size))
    began = came = time.monotonic()
    while not store.check([member_key(rank) for rank in missing]):
        now = time.monotonic()
        left = [rank for rank in missing if not store.check([member_key(rank)])]
        came = now if len(left) < len(missing) else came
        missing = left
        if missing and now > min(began + most_s, came + patience_s):
            return missing
        time.sleep(POLL_S)
    return []


def read_names(store: Any, size: int) -> list[str]:
    """Return the names of all members, each of which had written its own before the ranks were connected. They are
    called by their ranks if some have none, or the store has ended meanwhile."""
    keys = [member_key(rank) for rank in range(size)]
    with suppress(RuntimeError):
        if store.check(keys):
            return [bytes(each).decode(errors="replace") for each in store.multi_get(keys)]
    return [f"rank {rank}" for rank in range(size)]


class MembershipNotes:
    """Notes about one member. A NIC that does not answer gets none: they are for people alone.

    Parameters
    ----------
    job : str
        Name of the job.
    """

    def __init__(self, job: str) -> None:
        self._note = MembershipInfo(job[:MOST_CHARACTERS], "0", 0, 0)
        self._client: Client | None = None
        self._lines = ReceiptLines()

    def begin(self, epoch: str, rank: int, names: Sequence[str]) -> None:
        """Tell of a new epoch, which all its members call by the same name."""
        members = [name.partition(":")[0][:MOST_CHARACTERS] for name in names[:MOST_NAMES]]
        self._tell(
            replace(
                self._note,
                epoch=epoch[:MOST_CHARACTERS],
                rank=rank,
                size=len(names),
                members=members,
                phase=TRAINING,
                sources=[],
                done=0,
                total=0,
            )
        )

    def on_receipt(self, progress: ReceiptProgress) -> None:
        """Tell how far the receipt of the others' state is, and print a line a second: `report` of SoftnicTransport."""
        self._lines(progress)
        if progress.phase is ReceiptPhase.DONE:
            self._tell(replace(self._note, phase=TRAINING, sources=[], done=0, total=0))
            return
        names = [name[:MOST_CHARACTERS] for name in list(progress.sources)[:MOST_NAMES]]
        done = progress.held + progress.received
        self._tell(replace(self._note, phase=HEALING, sources=names, done=done, total=progress.total))

    def close(self) -> None:
        """Tell nothing any more."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _tell(self, note: MembershipInfo) -> None:
        self._note = note
        path = os.environ.get("SOFTNIC_NIC")
        with suppress(OSError):
            if self._client is None and path:
                self._client = Client(path)
            if self._client is not None:
                self._client.call(NoteMembership(note))
