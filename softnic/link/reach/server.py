"""The protocol of a meeting server (docs/FORMAT.md, "Meeting"), without sockets and clocks.

1. A request whose MAC is wrong is dropped silently. The MAC's key follows from the server's secret and the job that the
   request names, so nothing is stored for jobs that have no node.
2. A request from an address that is not proven gets a cookie, in an answer that is no longer than the request. Nothing
   is stored.
3. With the cookie the node is noted, and gets the cards of the job's other nodes, in chunks. What it has is what it
   acknowledges. News are pushed to all nodes until they acknowledge them, and a bounded number of times.

Ports are numbers: those that requests arrive at, and that answers leave from. `OTHER` is the port of the same number at
the server's other address, which few servers have: only from there can a full cone be told from a restricted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from softnic.link.reach.cookies import Cookies
from softnic.link.reach.jobs import Contact, Job
from softnic.link.reach.messages import (
    JOB_FULL,
    NO_OTHER,
    NO_RELAY,
    REQUESTS,
    SERVER_FULL,
    AddressBound,
    AddressChallenge,
    AllocatePort,
    BindAddress,
    JobEntry,
    JobState,
    LeaveJob,
    MeetingMessage,
    MeetingMessageError,
    NatProbed,
    PortAllocated,
    ProbeNat,
    RegisterNode,
    Request,
    RequestRefused,
    grant_of,
    is_genuine,
    pack,
    pack_address,
    unpack,
)
from softnic.link.reach.nat import FROM_ADDRESS, FROM_HERE, FROM_PORT
from softnic.link.reach.relay_table import RelayTable
from softnic.link.reach.token import MOST_NODES, Admit, Grant
from softnic.underlay import Address

OTHER = 0
"""In the place of a port: the main one, at the server's other address."""
MOST_JOBS = 1024
MOST_NODES_IN_ALL = 1 << 16
_CHUNKS = 32
"""JobState messages in answer to one RegisterNode."""
_PUSH_CHUNKS = 8
_PUSHES = 5
_PUSH_S = 0.25
"""Until the first push is repeated; doubles."""
_FLUSH_S, _FLUSH_S_PER_NODE = 0.05, 0.5e-3
"""News wait for others to come: the larger a job, the longer."""
_SWEEP_S = 1.0

Out = tuple[int, Address, bytes]
"""The port that a datagram leaves from, where to, and its bytes."""


@dataclass(slots=True)
class ServerCounters:
    """Each request is answered, or in `nodes_left` or exactly one of `dropped_`."""

    requests: int = 0
    """Datagrams that arrived."""
    challenges: int = 0
    registers: int = 0
    """Accepted, with those that only acknowledge."""
    pushes: int = 0
    allocations: int = 0
    bindings: int = 0
    refused: int = 0
    nodes_joined: int = 0
    nodes_forgotten: int = 0
    nodes_left: int = 0
    """That have said so."""
    dropped_malformed: int = 0
    """No message of this protocol."""
    dropped_forged: int = 0
    """The MAC is wrong: no token of this server's secret, or changed on the way."""
    dropped_expired: int = 0
    """The job's time is over."""
    dropped_replayed: int = 0
    """A sequence that is not new."""
    dropped_short: int = 0
    """So short that the answer would be longer."""
    dropped_misplaced: int = 0
    """At a port that has no such service."""
    dropped_budget: int = 0
    """Answers beyond what one address gets."""


class MeetingServer:
    """The state of one server.

    Parameters
    ----------
    admit : callable
        Whom it serves (`token.admits_all`, `token.admits_one`).
    random_bytes : callable
        Returns a number of random bytes.
    relay : RelayTable
        The relay's ports.
    port : int
        The main port; the next two are the second and the third one.
    has_other : bool
        Whether there is another address to answer from.
    log : callable
        Takes a line when a job begins or ends.
    """

    def __init__(
        self,
        admit: Admit,
        random_bytes: Callable[[int], bytes],
        relay: RelayTable,
        *,
        port: int,
        has_other: bool = False,
        log: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._admit, self._random_bytes, self._log = admit, random_bytes, log
        self._port, self._has_other = port, has_other
        self._cookies = Cookies(random_bytes)
        self._jobs: dict[bytes, Job] = {}
        """By their packed grants."""
        self._nodes = 0
        self._sweep_at = -math.inf
        self._admission: tuple[bytes, bytes | None] = (b"", None)
        """The last one made, and its grant: consecutive requests often are of one job."""
        self.relay = relay
        self.counted = ServerCounters()

    @property
    def jobs(self) -> int:
        """How many jobs have nodes here."""
        return len(self._jobs)

    @property
    def nodes(self) -> int:
        """How many nodes all jobs have here."""
        return self._nodes

    # --- requests

    def on_datagram(self, port: int, address: Address, data: bytes, now: float) -> list[Out]:
        """Return the answers to a datagram.

        Parameters
        ----------
        port : int
            Where it arrived: a port of the server or of its relay, or OTHER.
        address : tuple of str and int
            Where it came from.
        data : bytes
            The datagram.
        now : float
            Unix time, seconds.
        """
        self.counted.requests += 1
        try:
            packed = grant_of(data)
        except MeetingMessageError:
            self.counted.dropped_malformed += 1
            return []
        key = self._admission_of(packed)
        if key is None or not is_genuine(data, key):
            self.counted.dropped_forged += 1
            return []
        grant = Grant.unpack(packed)
        if now >= grant.expiry or not 1 <= grant.nodes <= MOST_NODES:
            self.counted.dropped_expired += 1
            return []
        try:
            message = unpack(data, REQUESTS)
        except MeetingMessageError:
            self.counted.dropped_malformed += 1
            return []
        assert isinstance(message, Request)
        request = _Request(port, address, grant, packed, key, len(data), now)
        if not self._cookies.is_valid(message.cookie, address, packed, message.key, now):
            return self._challenge(request, message)
        return self._accept(request, message)

    def grant_in(self, data: bytes, now: float) -> Grant | None:
        """Return the job of a genuine datagram whose time is not over; None: it is no such datagram."""
        try:
            packed = grant_of(data)
        except MeetingMessageError:
            return None
        grant, key = Grant.unpack(packed), self._admission_of(packed)
        return grant if key is not None and is_genuine(data, key) and now < grant.expiry else None

    def _admission_of(self, packed: bytes) -> bytes | None:
        job = self._jobs.get(packed)
        if job is not None:
            return job.admission
        if self._admission[0] != packed:
            self._admission = packed, self._admit(packed)
        return self._admission[1]

    def _challenge(self, request: _Request, message: Request) -> list[Out]:
        cookie = self._cookies.make(request.address, request.packed, message.key, request.now)
        seen = pack_address(request.address)
        answer = request.answer(AddressChallenge(echo=message.sequence, cookie=cookie, seen=seen))
        if len(answer) > request.size:
            self.counted.dropped_short += 1
            return []
        self.counted.challenges += 1
        return [(request.port, request.address, answer)]

    def _accept(self, request: _Request, message: Request) -> list[Out]:
        if isinstance(message, BindAddress):
            return self._on_bind(request, message)
        if request.port != self._port:
            self.counted.dropped_misplaced += 1
            return []
        job = self._jobs.get(request.packed)
        contact = None if job is None else job.contact(message.key, request.address)
        if contact is not None and message.sequence <= contact.sequence:
            self.counted.dropped_replayed += 1
            return []
        if isinstance(message, RegisterNode):
            return self._on_register(request, message, job)
        if job is None or contact is None:  # it has been forgotten since, and registers again
            self.counted.dropped_replayed += 1
            return []
        contact.sequence, contact.heard = message.sequence, request.now
        if isinstance(message, LeaveJob):
            return self._on_leave(request, message, job)
        if isinstance(message, ProbeNat):
            return self._on_probe(request, message, contact)
        return self._on_allocate(request, message)

    def _on_register(self, request: _Request, message: RegisterNode, job: Job | None) -> list[Out]:
        if job is None or message.key not in job.nodes:
            if job is not None and len(job.nodes) >= request.grant.nodes:
                return self._refuse(request, message.sequence, JOB_FULL)
            if self._nodes >= MOST_NODES_IN_ALL or (job is None and len(self._jobs) >= MOST_JOBS):
                return self._refuse(request, message.sequence, SERVER_FULL)
            if job is None:
                job = Job(request.grant, request.admission, self._random_bytes(8))
                self._jobs[request.packed] = job
                self._log(f"job {request.grant.job.hex()[:8]} begins: {request.grant.nodes} nodes")
            self._nodes += 1
            self.counted.nodes_joined += 1
        now = request.now
        self.counted.registers += 1
        if job.hear(message.key, request.address, message.card, message.sequence, now):
            job.flush_at = min(job.flush_at, now + _FLUSH_S + _FLUSH_S_PER_NODE * len(job.nodes))
        contact = job.nodes[message.key].contacts[request.address]
        contact.known = min(message.known, job.revision) if message.epoch == job.epoch else 0
        contact.sent, contact.pushes, contact.push_at = job.revision, 0, now + _PUSH_S
        cookie = self._cookies.make(request.address, request.packed, message.key, now)
        return self._states(job, request.address, contact, cookie, message.sequence, now)

    def _on_probe(self, request: _Request, message: ProbeNat, contact: Contact) -> list[Out]:
        port = {FROM_HERE: self._port, FROM_PORT: self._port + 2, FROM_ADDRESS: OTHER}[message.how]
        if port == OTHER and not self._has_other:
            return self._refuse(request, message.sequence, NO_OTHER)
        answer = NatProbed(echo=message.sequence, how=message.how, seen=pack_address(request.address))
        return self._within(contact, [(port, request.address, request.answer(answer))], request.now)

    def _on_allocate(self, request: _Request, message: AllocatePort) -> list[Out]:
        port = self.relay.allocate(request.grant, message.key)
        if port is None:
            return self._refuse(request, message.sequence, NO_RELAY)
        self.counted.allocations += 1
        return [(request.port, request.address, request.answer(PortAllocated(echo=message.sequence, port=port)))]

    def _on_bind(self, request: _Request, message: BindAddress) -> list[Out]:
        job = self._jobs.get(request.packed)
        if job is None or message.key not in job.nodes:
            self.counted.dropped_misplaced += 1
            return []
        bound = self.relay.bind(
            request.port, request.grant, message.key, request.address, message.sequence, request.now
        )
        if bound is None:
            self.counted.dropped_misplaced += 1
            return []
        if not bound:
            self.counted.dropped_replayed += 1
            return []
        self.counted.bindings += 1
        return [(request.port, request.address, request.answer(AddressBound(echo=message.sequence)))]

    def _on_leave(self, request: _Request, message: LeaveJob, job: Job) -> list[Out]:
        job.remove(message.key)
        self.relay.release(job.grant, message.key)
        self._nodes -= 1
        self.counted.nodes_left += 1
        job.flush_at = min(job.flush_at, request.now + _FLUSH_S)
        return []

    def _refuse(self, request: _Request, sequence: int, reason: int) -> list[Out]:
        self.counted.refused += 1
        return [(request.port, request.address, request.answer(RequestRefused(echo=sequence, reason=reason)))]

    # --- answers

    def _states(self, job: Job, address: Address, contact: Contact, cookie: bytes, echo: int, now: float) -> list[Out]:
        """Return what a node lacks, as JobState messages; one at least in answer to a request."""
        found: list[Out] = []
        since = contact.known
        for _ in range(_CHUNKS if echo else _PUSH_CHUNKS):
            entries, until = job.chunk(since)
            state = self._state(job, address, cookie, echo, (since, until), entries)
            found.append((self._port, address, pack(state, job.packed, job.admission)))
            since = until
            if until >= job.revision:
                break
        return self._within(contact, found, now)

    @staticmethod
    def _state(
        job: Job, address: Address, cookie: bytes, echo: int, span: tuple[int, int], entries: list[JobEntry]
    ) -> JobState:
        return JobState(
            echo=echo,
            cookie=cookie,
            seen=pack_address(address),
            epoch=job.epoch,
            since=span[0],
            until=span[1],
            latest=job.revision,
            entries=entries,
        )

    def _within(self, contact: Contact, out: list[Out], now: float) -> list[Out]:
        """Return the answers that the budget of an address has room for."""
        sent = [each for each in out if contact.budget.take(now, len(each[2]))]
        self.counted.dropped_budget += len(out) - len(sent)
        return sent

    # --- time

    def next_time(self) -> float | None:
        """Return when `poll` is due, Unix time; None: not before the next datagram."""
        if not self._jobs:
            return None
        return min(self._sweep_at, *(job.flush_at for job in self._jobs.values()))

    def poll(self, now: float) -> list[Out]:
        """Forget what is silent or over, and return the news that are due."""
        if now >= self._sweep_at:
            self._sweep(now)
        out: list[Out] = []
        for job in self._jobs.values():
            if now >= job.flush_at:
                out += self._flush(job, now)
        return out

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + _SWEEP_S
        for packed, job in list(self._jobs.items()):
            over = now >= job.grant.expiry
            gone = list(job.nodes) if over else job.forget_silent(now)
            for key in gone:
                self.relay.release(job.grant, key)
            self._nodes -= len(gone)
            self.counted.nodes_forgotten += len(gone)
            if over or not job.nodes:
                del self._jobs[packed]
                self._log(f"job {job.grant.job.hex()[:8]} {'has expired' if over else 'has no nodes any more'}")
            elif gone:
                job.flush_at = min(job.flush_at, now + _FLUSH_S)
        self.relay.expire(now)

    def _flush(self, job: Job, now: float) -> list[Out]:
        """Push news to the nodes that have not acknowledged them."""
        out: list[Out] = []
        job.flush_at = math.inf
        for key, node in job.nodes.items():
            for address, contact in node.contacts.items():
                if contact.known >= job.revision:
                    continue
                if contact.sent != job.revision:  # these are news
                    contact.sent, contact.pushes, contact.push_at = job.revision, 0, now
                if now >= contact.push_at and contact.pushes < _PUSHES:
                    cookie = self._cookies.make(address, job.packed, key, now)
                    out += self._states(job, address, contact, cookie, 0, now)
                    self.counted.pushes += 1
                    contact.push_at = now + _PUSH_S * 2**contact.pushes
                    contact.pushes += 1
                if contact.pushes < _PUSHES:  # after that, it asks by itself when it is there again
                    job.flush_at = min(job.flush_at, contact.push_at)
        return out


@dataclass(frozen=True, slots=True)
class _Request:
    """A genuine datagram, and what it says of its job."""

    port: int
    address: Address
    grant: Grant
    packed: bytes
    admission: bytes
    size: int
    now: float

    def answer(self, message: MeetingMessage) -> bytes:
        return pack(message, self.packed, self.admission)
