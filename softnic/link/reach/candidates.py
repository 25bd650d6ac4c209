"""The addresses at which a peer may be reached, and when to try them: sans-IO, and without a socket.

Rules, after RFC 8445 (Interactive Connectivity Establishment):

1. A peer without a way is asked at all candidates at once; the first that answers is taken.
2. While it is reached by a less preferred one, better ones are asked after PROBES_S, ever more rarely, and one that
   answers is taken. Any direct address is better than a relay; one that the peer was followed to is not better than a
   direct candidate.
3. A way that is silent for SILENT_S while frames are sent counts as lost: see 1.
   After SUSPECT_S of that its owner looks whether this node's own address has changed: servers are asked.
4. A way that is silent for STALE_S while the peer is heard at another one gives way to that: the peer has left it.
   Another candidate of the same preference takes its place after EQUAL_S. Candidates that are new are asked at once:
   the peer's NAT may have given it another address, from which nothing comes until this node has sent there.
5. Where nothing was sent for KEEPALIVE_S, something is, as address translators forget a flow after 30 s (RFC 4787,
   section 4.3, asks for 2 minutes; many do not keep that).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from softnic.underlay import Address

SILENT_S, STALE_S = 3.0, 1.0
EQUAL_S = 0.5
SUSPECT_S = 0.5
"""Above the round trip of most paths; on others servers are asked in vain, at most once a second."""
KEEPALIVE_S = 15.0
PROBES_S = (0.25, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Intervals of questions to better candidates; the last one goes on."""
TICK_S = 0.25
"""How often silence is looked for."""
MAX_CANDIDATES = 16
"""Of one peer; the least preferred beyond are ignored."""


class Candidate(NamedTuple):
    """An address at which a peer may be reached."""

    address: Address
    """IP address and port."""
    preference: int = 0
    """The highest that answers is taken."""
    relayed: bool = False
    """A relay is there, and not the peer."""


class Reach:
    """What is known about the ways to one peer."""

    def __init__(self) -> None:
        self.candidates: dict[Address, Candidate] = {}
        self._new: list[Address] = []
        self._probe_at, self._probes = math.inf, 0
        self._unanswered_since: float | None = None
        self._kept_at = -math.inf
        self._suspected = False

    def set(self, candidates: Sequence[Candidate]) -> None:
        """Try these from now on, and no others."""
        former = self.candidates
        best = sorted(candidates, key=lambda each: (each.relayed, -each.preference))[:MAX_CANDIDATES]
        self.candidates = {each.address: each for each in best}
        self._probe_at, self._probes = -math.inf, 0
        self._new = [*self._new, *(each for each in self.candidates if each not in former)][-MAX_CANDIDATES:]

    def take_new(self) -> list[Address]:
        """Return and forget the candidates that are new since the last call."""
        new, self._new = self._new, []
        return [address for address in new if address in self.candidates]

    def relays(self, address: Address) -> bool:
        """Return whether a relay is at an address."""
        found = self.candidates.get(address)
        return found is not None and found.relayed

    def is_better(self, address: Address, other: Address) -> bool:
        """Return whether to prefer an address to another one."""
        return self._rank(address) > self._rank(other)

    def is_equal(self, address: Address, other: Address) -> bool:
        """Return whether two candidates are preferred alike."""
        return self._rank(address) == self._rank(other) and address in self.candidates

    def _rank(self, address: Address) -> tuple[bool, bool, int]:
        found = self.candidates.get(address)
        return (True, False, 0) if found is None else (not found.relayed, True, found.preference)

    def on_moved(self, now: float) -> None:
        """Note that the peer is reached at another address from now on."""
        self._unanswered_since = None
        self._probe_at, self._probes = now + PROBES_S[0], 0

    def probes(self, current: Address, now: float) -> list[Address]:
        """Return the candidates to ask now because they are better than the current address."""
        if now < self._probe_at:
            return []
        better = [address for address in self.candidates if self.is_better(address, current)]
        self._probe_at = now + PROBES_S[min(self._probes, len(PROBES_S) - 1)] if better else math.inf
        self._probes += 1
        return better

    def best(self, addresses: Iterable[Address]) -> Address | None:
        """Return the one to prefer to all others; None if there is none."""
        return max(addresses, key=self._rank, default=None)

    def is_silent(self, sent_at: float, heard_at: float, now: float) -> bool:
        """Return whether the current address is silent although frames are sent to it.

        Parameters
        ----------
        sent_at, heard_at : float
            When something was last sent to the peer, and heard from its current address.
        now : float
            The time, about TICK_S after the last call.
        """
        if self._unanswered_since is None or heard_at >= self._unanswered_since:
            self._unanswered_since = now if sent_at > max(heard_at, now - 2 * TICK_S) else None
            return False
        return sent_at >= self._unanswered_since and now - self._unanswered_since >= SILENT_S - TICK_S

    def suspects(self, heard_at: float, now: float) -> bool:
        """Return whether `is_silent` has found no answer for SUSPECT_S."""
        since = self._unanswered_since
        silent = since is not None and heard_at < since and now - since >= SUSPECT_S
        self._suspected = self._suspected or silent
        return silent

    def is_back(self, heard_at: float, now: float) -> bool:
        """Return whether a way that was suspected has been heard just now, once."""
        if not self._suspected or heard_at < now - 2 * TICK_S:
            return False
        self._suspected = False
        return True

    def wants_keepalive(self, sent_at: float, now: float) -> bool:
        """Return whether something is to be sent now, and take it as sent."""
        if now < max(sent_at, self._kept_at) + KEEPALIVE_S:
            return False
        self._kept_at = now
        return True
