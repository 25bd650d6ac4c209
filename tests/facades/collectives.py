"""The collective engine and its schedules."""

from __future__ import annotations

from softnic.comm import schedule
from softnic.comm.executor import Executor
from softnic.comm.executor import words as messages
from softnic.comm.executor.words import Abort, Frame, Reader, pack
from softnic.comm.executor.words import Head as CollectiveHeader
from softnic.comm.executor.words import head_of as header_of
from softnic.comm.schedule import (
    ALGORITHMS,
    COLLECTIVES,
    Receive,
    Schedule,
    Send,
    blocks,
    choose,
    offsets,
    partition,
    plan,
    ring,
    tree,
)
from softnic.comm.schedule.hierarchical import groups

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "Abort",
    "CollectiveHeader",
    "Executor",
    "Frame",
    "Reader",
    "Receive",
    "Schedule",
    "Send",
    "blocks",
    "choose",
    "groups",
    "header_of",
    "messages",
    "offsets",
    "pack",
    "partition",
    "plan",
    "report_local_stall",
    "ring",
    "schedule",
    "tree",
]


def report_local_stall(executor: Executor, text: str) -> None:
    """Tell a rank's executor that its own NIC stood still, in these words."""
    executor.excuse = text
