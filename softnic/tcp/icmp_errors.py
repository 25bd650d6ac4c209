"""Processing of ICMP errors (RFC 1122, section 4.2.3.9; RFC 5461; RFC 5927).

An error can be forged, and carries no secret but what it quotes. So it counts only if it quotes a segment in flight
(RFC 5927, section 4.1), and never ends an established connection (section 5.2): it is recorded as the reason should the
connection time out. While a connection is being opened, hard errors end it at once, soft ones do not (RFC 1122; RFC
5461 is about hosts with another address to try).

"Fragmentation needed" lowers the path MTU (path_mtu.py).
"""

from __future__ import annotations

import errno

from softnic.packet import icmp
from softnic.packet.icmp import Problem
from softnic.tcp.counters import StackCounters
from softnic.tcp.flow import Flow
from softnic.tcp.path_mtu import on_frag_needed
from softnic.tcp.state import State
from softnic.tcp.transitions import note_soft_error, time_out

_REASONS = {
    (icmp.UNREACHABLE, 0): (errno.ENETUNREACH, "its network is unreachable", False),
    (icmp.UNREACHABLE, 1): (errno.EHOSTUNREACH, "it is unreachable", False),
    (icmp.UNREACHABLE, 2): (errno.ECONNREFUSED, "it has no TCP", True),
    (icmp.UNREACHABLE, 3): (errno.ECONNREFUSED, "nothing is at that port", True),
    (icmp.UNREACHABLE, 5): (errno.EHOSTUNREACH, "the source route failed", False),
    (icmp.UNREACHABLE, 6): (errno.ENETUNREACH, "its network is unknown", True),
    (icmp.UNREACHABLE, 7): (errno.EHOSTUNREACH, "it is unknown", True),
    (icmp.UNREACHABLE, 9): (errno.ENETUNREACH, "its network may not be reached", True),
    (icmp.UNREACHABLE, 10): (errno.EHOSTUNREACH, "it may not be reached", True),
    (icmp.UNREACHABLE, 11): (errno.ENETUNREACH, "its network is unreachable with this ToS", False),
    (icmp.UNREACHABLE, 12): (errno.EHOSTUNREACH, "it is unreachable with this ToS", False),
    (icmp.UNREACHABLE, 13): (errno.EHOSTUNREACH, "a filter forbids it", True),
    (icmp.TIME_EXCEEDED, 0): (errno.EHOSTUNREACH, "packets go round in a loop", False),
    (icmp.PARAMETER_PROBLEM, 0): (errno.EPROTO, "a header is not understood", False),
}
"""errno, text, and whether the error is hard (as in Linux's table)."""


def on_icmp_error(c: Flow | None, problem: Problem, counters: StackCounters, now: float) -> None:
    """Handles an error about a segment that this node sent; `c` is the flow of the quoted addresses and ports."""
    if c is None:
        counters.dropped_icmp += 1
        return
    position = c.snd.position(problem.seq)
    if not c.snd.snd_una <= position < c.snd.snd_nxt:
        counters.dropped_icmp += 1
        return
    too_long = (problem.kind, problem.code) == (icmp.UNREACHABLE, icmp.FRAGMENTATION_NEEDED)
    reason = _REASONS.get((problem.kind, problem.code))
    if not on_frag_needed(c, problem.mtu, problem.length, position) if too_long else reason is None:
        counters.dropped_icmp += 1
        return
    counters.icmp_errors += 1
    if reason is None:
        return
    number, words, hard = reason
    note_soft_error(c, number, f"{c.peer_name} cannot be reached: ICMP says that {words}")
    if hard and c.state is State.SYN_SENT:
        time_out(c, now - c.unacked_since)
