"""What TCP makes of ICMP errors (RFC 1122, section 4.2.3.9; RFC 5461; RFC 5927).

Anybody may forge one, and it carries no secret but what it quotes; so an error counts only if it quotes a segment that
is on its way now (RFC 5927, section 4.1), and even then it never ends a connection that stands (section 5.2): it is
remembered, and given as the reason if the connection then times out. While a connection is being opened there is
nothing to lose, and errors that will not go away by themselves end it at once; the others do not (RFC 1122; RFC 5461 is
about hosts that have another address to try).

"Fragmentation needed" lowers the path MTU (RFC 1191), but not before the segment has really gone unanswered for a
retransmission timeout (RFC 5927, section 7.2): what arrives anyhow cannot have been too long. It holds for other
connections to the same address too, those made within `PATH_MTU_LIFETIME_S`; it never rises for one that stands, and
never falls below `LEAST_PATH_MTU`. A router that does not say its MTU has the next lower one of RFC 1191's table. A
path that drops long packets and does not say so is not found out (RFC 4821 would).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softnic.stack import icmp
from softnic.stack.tcp.state import State

if TYPE_CHECKING:
    from softnic.stack.icmp import Problem
    from softnic.stack.tcp.connection import Connection
    from softnic.stack.tcp.layer import Tcp

LEAST_PATH_MTU = 552
"""As Linux's min_pmtu: what claims to be narrower is taken for this."""
PATH_MTU_LIFETIME_S = 600.0
"""RFC 1191, section 6.3."""
_MAX_PATH_MTUS = 1024
_PLATEAUS = (8166, 4352, 2002, 1492, 1006, 576)
"""RFC 1191, section 7, as far as it matters here."""
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
"""errno, words, and whether it will not go away by itself (hard errors, as in Linux's table)."""


def icmp_error(tcp: Tcp, problem: Problem, now: float) -> None:
    """An error about a segment that says it came from here."""
    c = tcp.find(problem.dst, problem.dport, problem.sport)
    if c is None or c.state is State.TIME_WAIT or not c.snd.snd_una <= c.snd.position(problem.seq) < c.snd.snd_nxt:
        tcp.counters.dropped_icmp += 1
        return
    if (problem.kind, problem.code) == (icmp.UNREACHABLE, icmp.FRAGMENTATION_NEEDED):
        _too_long(c, problem)
        return
    reason = _REASONS.get((problem.kind, problem.code))
    if reason is None:
        tcp.counters.dropped_icmp += 1
        return
    tcp.counters.icmp_errors += 1
    number, words, hard = reason
    c.trouble = (number, f"{c.peer_name} cannot be reached: ICMP says that {words}")
    if hard and c.state is State.SYN_SENT:
        c.time_out(now - c.stalled_since)


def _too_long(c: Connection, problem: Problem) -> None:
    """Notes what the path may carry, to be believed at the next timeout (`believe`)."""
    mtu = problem.mtu or next((size for size in _PLATEAUS if size < problem.length), 0)
    mtu = max(mtu, LEAST_PATH_MTU)
    if mtu >= (c.path_mtu or c.tcp.config.mtu):
        c.tcp.counters.dropped_icmp += 1
        return
    c.tcp.counters.icmp_errors += 1
    c.claimed_mtu = mtu


def believe(c: Connection, now: float) -> None:
    """What was said to be too long was not acknowledged in time: the path is as narrow as claimed."""
    mtu, c.claimed_mtu = c.claimed_mtu, 0
    c.tcp.counters.path_mtus_lowered += 1
    c.narrow(mtu)
    c.tcp.path_mtus.note(c.peer[0], mtu, now)


class PathMtus:
    """What is known of the paths to other hosts, by address."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, float]] = {}

    def note(self, address: int, mtu: int, now: float) -> None:
        self._known.pop(address, None)
        if len(self._known) >= _MAX_PATH_MTUS:
            del self._known[next(iter(self._known))]
        self._known[address] = mtu, now + PATH_MTU_LIFETIME_S

    def get(self, address: int, now: float) -> int:
        """IPv4 bytes; 0: not known to be less than the link's."""
        mtu, until = self._known.get(address, (0, 0.0))
        return mtu if now < until else 0
