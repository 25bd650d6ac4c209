"""What the collectives in progress wait for, in words: `softnic stat` and `softnic top` show it."""

from __future__ import annotations

from collections.abc import Sequence

from softnic.ipc.collectives_info import CommunicatorInfo, OperationInfo, RankLinkInfo
from softnic.terminal import printable
from softnic.units import text_bytes, text_time

MAX_RANKS = 8
"""Ranks that are named for one operation."""


def collective_lines(communicators: Sequence[CommunicatorInfo]) -> list[str]:
    """Return a line for each operation in progress of these ranks, and for each that cuts large sums unevenly."""
    cut = [
        f"rank {communicator.rank} of {communicator.size}  large sums by {printable(communicator.paths)}"
        for communicator in communicators
        if communicator.paths and not communicator.lane
    ]
    return cut + [
        f"rank {communicator.rank} of {communicator.size}{_lane(communicator)}  {printable(op.call)}  "
        f"{text_time(op.age_s)}  "
        f"waits for {waits_of(communicator, op)}"
        for communicator in communicators
        for op in communicator.operations
    ]


def _lane(communicator: CommunicatorInfo) -> str:
    return f", lane {communicator.lane}" if communicator.lane else ""


def waits_of(communicator: CommunicatorInfo, op: OperationInfo) -> str:
    """Return what an operation waits for, by rank."""
    found = [text for link in communicator.links if (text := _wait(communicator.rank, link, op))]
    more = [f"{len(found) - MAX_RANKS} more ranks"] if len(found) > MAX_RANKS else []
    if found:
        return "; ".join(found[:MAX_RANKS] + more)
    return "its turn" if op.left else "acknowledgements"


def _wait(own: int, link: RankLinkInfo, op: OperationInfo) -> str:
    if 0 < link.expected <= op.number:
        return f"rank {link.rank}: its call"
    waits = []
    if link.receiving == op.number:
        waits.append(f"{text_bytes(link.receive_left)} from it")
    if link.sending == op.number and link.held_by == own:
        waits.append("this rank's process, which still copies what it needs")
    elif link.sending == op.number and link.held_by == -1:
        waits.append(f"space to send {text_bytes(link.send_left)}")
    return f"rank {link.rank}: {', '.join(waits)}" if waits else ""
