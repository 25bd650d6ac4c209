"""What the operations of an engine wait for, read from its queues: for `softnic stat --why`. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from softnic._native import ffi, lib
from softnic.collectives import schedule
from softnic.collectives.collective_op import CollectiveOp
from softnic.collectives.engine import CollectiveEngine, EnginePeer
from softnic.collectives.peer_queue import Step
from softnic.collectives.steps import EngineOp
from softnic.ipc.collectives_info import MAX_OPERATIONS, OperationInfo, RankLinkInfo
from softnic.packet import ipv4
from softnic.tcp.info import ConnectionInfo


def operations_of(engine: CollectiveEngine, posted_at: Mapping[int, float], now: float) -> list[OperationInfo]:
    """Return the operations in progress, oldest first; `posted_at` has the time of each."""
    operations = sorted(engine.operations, key=lambda op: posted_at.get(op.number, now))[:MAX_OPERATIONS]
    return [
        OperationInfo(
            op.number, _call(op), max(0.0, now - posted_at.get(op.number, now)), int(op.c.pending), _total(op)
        )
        for op in operations
    ]


def paths_of(engine: CollectiveEngine) -> str:
    """Return how the last large all-reduce was cut for links that differ; empty: evenly, or not at all."""
    header = engine.large_sum
    if header is None:
        return ""
    name, _, sites = header.algorithm.partition(":")
    parts = [f"sites {sites}"] if name == "sites" else []
    counts, total = header.counts, sum(header.counts)
    if len(counts) == engine.size and max(counts) - min(counts) > max(2 * schedule.UNIT, total // 1000):
        parts.append("shares " + " ".join(f"{100 * count / total:.3g}%" for count in counts))
    return ", ".join(parts)


def _total(op: EngineOp) -> int:
    """Return the number of steps and headers that an operation begins with."""
    if not isinstance(op, CollectiveOp):
        return 1
    return len(op.peers) + sum(op.header.counts[step.block] > 0 for step in op.steps)


def _call(op: EngineOp) -> str:
    return op.header.describe() if isinstance(op, CollectiveOp) else op.call


def links_of(engine: CollectiveEngine, connections: Mapping[int, Sequence[ConnectionInfo]]) -> list[RankLinkInfo]:
    """Return what this rank exchanges with each other one.

    `connections` has, by rank, the states of the connections below the streams of blocks and of messages.
    """
    ranks = {_address(queue.c): peer.rank for peer in engine.peers for queue in peer.queues}
    return [_link(engine.rank, peer, ranks, connections[peer.rank]) for peer in engine.peers]


def _link(own: int, peer: EnginePeer, ranks: Mapping[int, int], streams: Sequence[ConnectionInfo]) -> RankLinkInfo:
    busiest = max(streams, key=lambda each: (each.send_queue, each.bytes_sent))
    incoming = _first(queue.c.incoming for queue in peer.queues)
    outgoing = _first(queue.c.outgoing for queue in peer.queues)
    return RankLinkInfo(
        peer.rank,
        ipv4.endpoint(streams[0].local),
        ipv4.endpoint(streams[0].peer),
        peer.headers.expected,
        int(incoming.op.number) if incoming else 0,
        int(incoming.size - incoming.done) if incoming else 0,
        int(outgoing.op.number) if outgoing else 0,
        int(outgoing.size - outgoing.done) if outgoing else 0,
        _held_by(outgoing, own, ranks) if outgoing else -1,
        sum(each.send_queue for each in streams),
        sum(each.bytes_sent for each in streams),
        sum(each.bytes_received for each in streams),
        sum(each.frames_sent for each in streams),
        sum(each.retransmits for each in streams),
        busiest.srtt,
        busiest.min_rtt,
        busiest.cwnd,
        min(each.silent_s for each in streams),
    )


def _first(steps: Iterable[Step]) -> Step | None:
    return next((step for step in steps if step), None)


def _held_by(send: Step, own: int, ranks: Mapping[int, int]) -> int:
    """Return the rank whose block has to come before more is sent; `own`: this rank's process copies it; -1: none."""
    step = send.source
    if not step or step.ready > send.done:
        return -1
    while step.before and step.before.ready <= step.done:
        step = step.before
    if step.kind == lib.SN_STEP_STAGED:
        return own
    return ranks.get(_address(step.queue), -1) if step.queue else -1


def _address(struct: Any) -> int:
    return int(ffi.cast("uintptr_t", struct))
