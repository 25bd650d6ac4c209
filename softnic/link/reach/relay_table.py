"""Who may use which port of a server's relay, and where what arrives there goes.

A node B has a port P_B. A node A that bound its address there sends to P_B what is for B; it leaves from P_A, A's own
port, for the address that B has bound there. So B sees A at P_A, and A sees B at P_B. Nothing else is forwarded: both
nodes are of one job, and have proven their addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from softnic.link.reach.token import Grant
from softnic.link.token_bucket import TokenBucket
from softnic.underlay import Address

BOUND_S = 60.0
"""A binding that nothing has come by for this time is forgotten."""
_BURST_S = 0.1
"""Time of a job's rate that may be forwarded at once."""
_LEAST_BURST = 256e3


@dataclass(slots=True)
class Binding:
    """The address at which a node uses a port."""

    key: bytes
    address: Address
    sequence: int
    heard: float


@dataclass(slots=True)
class AllocatedPort:
    """A port of the relay, and the node that has it."""

    port: int
    job: bytes
    key: bytes
    budget: TokenBucket
    """That of the job."""
    by_key: dict[bytes, Binding] = field(default_factory=dict)
    by_address: dict[Address, Binding] = field(default_factory=dict)
    changes: int = 0
    """How often `by_address` has changed."""


class RelayTable:
    """The ports of one server's relay.

    Parameters
    ----------
    ports : iterable of int
        Ports that may be used.
    rate_bps : float
        Limit of each job, bits per second.
    open_port : callable
        Opens a port. Returns False if that fails, as of a port that another program has.
    close_port : callable
        Closes it.
    """

    def __init__(
        self,
        ports: Iterable[int],
        rate_bps: float,
        open_port: Callable[[int], bool],
        close_port: Callable[[int], None],
    ) -> None:
        self._free = list(reversed(list(ports)))
        self._rate_bps = rate_bps
        self._open_port, self._close_port = open_port, close_port
        self._ports: dict[int, AllocatedPort] = {}
        self._of_node: dict[tuple[bytes, bytes], AllocatedPort] = {}
        self._budgets: dict[bytes, TokenBucket] = {}
        self._per_job: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Return the number of ports in use."""
        return len(self._ports)

    def port(self, number: int) -> AllocatedPort | None:
        """Return a port that a node has."""
        return self._ports.get(number)

    def allocate(self, grant: Grant, key: bytes) -> int | None:
        """Return the port of a node, which has one already or gets one; None: there is no more."""
        have = self._of_node.get((grant.job, key))
        if have is not None:
            return have.port
        if self._per_job.get(grant.job, 0) >= grant.nodes:
            return None
        refused: list[int] = []
        number = None
        while self._free and len(refused) < 16:
            number = self._free.pop()
            if self._open_port(number):
                break
            refused.append(number)
            number = None
        self._free[:0] = refused  # tried again when all others are in use
        if number is None:
            return None
        made = AllocatedPort(number, grant.job, key, self._budget(grant))
        self._ports[number] = self._of_node[grant.job, key] = made
        self._per_job[grant.job] = self._per_job.get(grant.job, 0) + 1
        return number

    def _budget(self, grant: Grant) -> TokenBucket:
        if grant.job not in self._budgets:
            allowed = min(self._rate_bps, grant.relay_kbps * 1e3 or self._rate_bps) / 8
            self._budgets[grant.job] = TokenBucket(allowed, max(_LEAST_BURST, allowed * _BURST_S))
        return self._budgets[grant.job]

    def release(self, grant: Grant, key: bytes) -> None:
        """Take the port of a node back, and forget where it used others'."""
        gone = self._of_node.pop((grant.job, key), None)
        if gone is not None:
            del self._ports[gone.port]
            self._close_port(gone.port)
            self._free.insert(0, gone.port)
            self._per_job[grant.job] -= 1
            if not self._per_job[grant.job]:
                del self._per_job[grant.job]
                self._budgets.pop(grant.job, None)
        for each in self._ports.values():
            if each.job == grant.job and key in each.by_key:
                self._unbind(each, each.by_key[key])

    def bind(self, number: int, grant: Grant, key: bytes, address: Address, sequence: int, now: float) -> bool | None:
        """Note that a node uses a port from an address.

        Returns None if the port is no other node's of the job, and False if the sequence is not new.
        """
        port = self._ports.get(number)
        if port is None or port.job != grant.job or port.key == key:
            return None
        former = port.by_key.get(key)
        if former is not None and sequence <= former.sequence:
            return False
        if former is not None and former.address == address:
            former.sequence, former.heard = sequence, now
            return True
        if former is not None:
            self._unbind(port, former)
        if (other := port.by_address.get(address)) is not None:
            self._unbind(port, other)
        port.by_key[key] = port.by_address[address] = Binding(key, address, sequence, now)
        port.changes += 1
        return True

    @staticmethod
    def _unbind(port: AllocatedPort, binding: Binding) -> None:
        del port.by_key[binding.key], port.by_address[binding.address]
        port.changes += 1

    def route(self, number: int, source: Address, now: float) -> tuple[AllocatedPort, Address] | None:
        """Return from which port, and where to, what came from an address to a port is sent; None: it is dropped."""
        port = self._ports.get(number)
        binding = None if port is None else port.by_address.get(source)
        if port is None or binding is None:
            return None
        binding.heard = now
        own = self._of_node.get((port.job, binding.key))
        there = None if own is None else own.by_key.get(port.key)
        return None if own is None or there is None else (own, there.address)

    def expire(self, now: float) -> None:
        """Forget bindings that are silent."""
        for port in self._ports.values():
            for binding in list(port.by_key.values()):
                if now - binding.heard >= BOUND_S:
                    self._unbind(port, binding)
