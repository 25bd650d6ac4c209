"""What must hold in every world: at each step, and when all applications have ended."""

from __future__ import annotations

import gc
import types
from collections import Counter
from collections.abc import Iterator

from softnic.nic.node import Node
from softnic.tcp.connection import Connection
from softnic.tcp.state import HANDSHAKE, State

OVER_S = 1.0
"""Tolerance of a deadline: a timer that expires does not always end at once what it limits."""
OVER_BYTES = 1 << 20
"""Tolerance of a buffer: a segment that starts within the window is accepted whole, and decodes to this at the most."""

_SHARED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)
"""Objects of the process, which belong to no node."""


class Violation(AssertionError):
    """A property that must always hold does not."""


def check_node(node: Node, now: float, disturbed_at: float) -> None:
    """Check that nothing waits for ever and that every queue keeps its limit.

    Parameters
    ----------
    now : float
        The node's own time.
    disturbed_at : float
        When the node last continued after it had stood still: it cannot have heard a peer before.

    Raises
    ------
    Violation
    """
    tcp = node.host.tcp
    for connection in tcp.connections:
        _check_waiting(connection, now, disturbed_at)
        _check_memory(connection)


def _check_waiting(c: Connection, now: float, disturbed_at: float) -> None:
    """A connection that waits for a silent peer ends within its timeouts."""
    config, state = c.tcp.config, c.state
    if state is State.TIME_WAIT:
        heard = max(c.last_heard, disturbed_at)
        if now > heard + config.time_wait_s + config.orphan_timeout_s + OVER_S:
            raise Violation(f"{_name(c)} is kept though nothing was heard for {now - heard:.1f} s")
        return
    if state in HANDSHAKE:
        limit = min(c.user_timeout_s, (2 ** (config.syn_retries + 1)) * config.initial_rto_s)
        if now > c.unacked_since + limit + OVER_S:
            raise Violation(f"{_name(c)} has waited for {now - c.unacked_since:.1f} s")
        return
    heard = max(c.last_heard, c.unacked_since, disturbed_at)
    waits = bool(c.snd.scoreboard) or c.persisting
    if waits and now > heard + c.user_timeout_s + OVER_S:
        limits = f"and its user timeout is {c.user_timeout_s:g} s"
        raise Violation(f"{_name(c)} has waited for {now - heard:.1f} s, {limits}")
    if c.keepalive is not None:
        idle, interval, count = c.keepalive
        if now > heard + idle + interval * count + c.user_timeout_s + OVER_S:
            raise Violation(f"{_name(c)} was silent for {now - heard:.1f} s in spite of keepalive {c.keepalive}")


def _name(c: Connection) -> str:
    return f"a {c.state.value} connection {c.local[1]} to {c.peer_name}"


def _check_memory(c: Connection) -> None:
    """Buffers keep their limits, and their growth is accounted for in the stack's budget (softnic/tcp/autotune.py)."""
    rcv, buffer, config = c.rcv, c.snd.buffer, c.tcp.config
    if rcv.unread > rcv.capacity + OVER_BYTES:
        raise Violation(f"{rcv.unread} bytes wait to be read, and the buffer has {rcv.capacity}")
    kept = buffer.end - buffer.start - buffer.zerocopy.outstanding
    if kept > buffer.capacity + OVER_BYTES:
        raise Violation(f"{kept} bytes wait to be sent, and the buffer has {buffer.capacity}")
    grown = max(0, rcv.capacity - config.receive_buffer) + max(0, buffer.capacity - config.send_buffer)
    if grown > config.buffer_memory - c.tcp.budget.free and c.state not in (State.CLOSED, State.TIME_WAIT):
        raise Violation(f"buffers have grown by {grown} bytes that are not in the budget")


def check_idle(node: Node) -> None:
    """Check that a node keeps nothing of connections that have ended, when none is left. Raises Violation."""
    left = [f"{each.state.value} to {each.peer_name}" for each in node.host.tcp.connections]
    if left:
        raise Violation(f"connections are left: {', '.join(left)}")
    kinds = Counter(type(each).__name__ for each in reachable(node, beyond=node.link))
    if kinds["Connection"]:
        raise Violation(f"references to {kinds['Connection']} ended connections are left")


def reachable(root: object, beyond: object) -> Iterator[object]:
    """Yield all objects that one keeps alive other than through `beyond`, without classes, modules and functions."""
    seen = {id(beyond)}
    waiting: list[object] = [root]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen and not isinstance(each, _SHARED):
            seen.add(id(each))
            yield each
            waiting += gc.get_referents(each)
