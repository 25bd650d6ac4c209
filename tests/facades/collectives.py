"""The collective engine and its schedules."""

from __future__ import annotations

from softnic.collectives import CollectiveEngine, nbytes, schedule
from softnic.collectives import messages as messages
from softnic.collectives.header_queue import HeaderQueue
from softnic.collectives.messages import (
    CollectiveHeader,
    EngineAbort,
    EngineMessage,
    EngineMessageReader,
    header_of,
    pack,
)
from softnic.collectives.progress import links_of, operations_of
from softnic.collectives.schedule import (
    ALGORITHMS,
    COLLECTIVES,
    EXCHANGES,
    SCANS,
    RecvBlock,
    Schedule,
    SendBlock,
    blocks,
    choose,
    offsets,
    partition,
    plan,
    ring,
    tree,
)
from softnic.collectives.schedule.hierarchical import groups
from softnic.collectives.step_engine import StepEngine
from softnic.collectives.steps import EngineOp

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "EXCHANGES",
    "SCANS",
    "CollectiveEngine",
    "CollectiveHeader",
    "EngineAbort",
    "EngineMessage",
    "EngineMessageReader",
    "EngineOp",
    "HeaderQueue",
    "RecvBlock",
    "Schedule",
    "SendBlock",
    "StepEngine",
    "blocks",
    "choose",
    "groups",
    "header_of",
    "links_of",
    "messages",
    "nbytes",
    "offsets",
    "operations_of",
    "pack",
    "partition",
    "plan",
    "report_local_stall",
    "ring",
    "schedule",
    "tree",
]


def report_local_stall(executor: CollectiveEngine, text: str) -> None:
    """Report to a rank's executor that its own NIC was suspended, with this text."""
    executor.local_fault = text
