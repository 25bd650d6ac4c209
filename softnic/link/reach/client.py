"""A node's side of the meeting (docs/FORMAT.md, "Meeting"), without sockets and clocks.

The node registers with all servers of its token. Its datagrams leave from the socket whose NAT mapping peers are to
use; all of them, in both directions, begin with 0x13. Cards are believed because they are sealed, whoever brings them;
what a server says itself, the addresses that it saw, is a hint. A lying server can be silent, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import to_builtins

from softnic import underlay
from softnic.link.reach.card import MOST_ADDRESSES, MOST_RELAYING, NAME_BYTES, Card, CardSeal, RelayPort
from softnic.link.reach.messages import (
    ANSWERS,
    NO_RELAY,
    REASONS,
    AddressBound,
    AddressChallenge,
    AllocatePort,
    BindAddress,
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
    pack_request,
    unpack,
    unpack_address,
)
from softnic.link.reach.met_node import MetNode, candidates, card_addresses
from softnic.link.reach.nat import FROM_HERE, NatKind, NatTest
from softnic.link.reach.numbers import MOST_NUMBER
from softnic.link.reach.own_card import MeetingOptions, OwnCard, own_addresses
from softnic.link.reach.relay_bindings import RelayBindings
from softnic.link.reach.roster import Roster
from softnic.link.reach.token import Token
from softnic.link.reach.way import REPEAT_S, SILENT_S, ServerWay, same_host
from softnic.underlay import IPV4, Address

KEY_BYTES = 32
NO_UDP_S = 3.0
"""Without any answer for this time from the start, no UDP passes."""
MOST_PENDING = 1024
"""Requests whose answers are awaited."""
MOST_RELAYED = 64
"""Relay ports of other nodes that are bound without being asked for; in larger jobs `use_relay` asks for them."""
_QUICK_TRIES = 10
"""Requests for a relay port that are repeated soon."""

Datagrams = list[tuple[Address, bytes]]


@dataclass(slots=True)
class MeetingCounters:
    """Each datagram that is not used is in exactly one of `dropped_`."""

    received: int = 0
    dropped_malformed: int = 0
    """No message of this protocol, or none that a server sends."""
    dropped_forged: int = 0
    """The MAC is wrong, or it is of another job."""
    dropped_unasked: int = 0
    """It answers nothing that was asked, or comes from elsewhere than the server that was."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request whose answer is awaited."""

    kind: type[MeetingMessage]
    way: ServerWay
    what: RelayPort | int | None = None
    """The relay port that is bound, or how a ProbeNat is to be answered."""


class MeetingClient:
    """Meets the other nodes of a job.

    Parameters
    ----------
    token : Token
        The job.
    public_key : bytes
        32 bytes by which other nodes know this one.
    candidates : iterable of address
        Where this node's socket may be reached: local addresses with its port.
    random_bytes : callable
        Returns a number of random bytes.
    number : int, optional
        The overlay number that this node claims.
    options : MeetingOptions
        What else is known.

    Raises
    ------
    ValueError
        If the key, the number or an address is illegal, or no server has an IP address.
    """

    def __init__(
        self,
        token: Token,
        public_key: bytes,
        candidates: Iterable[Address],
        random_bytes: Callable[[int], bytes],
        number: int | None = None,
        options: MeetingOptions | None = None,
    ) -> None:
        options = options or MeetingOptions()
        if len(public_key) != KEY_BYTES:
            raise ValueError(f"a public key has {KEY_BYTES} bytes, not {len(public_key)}")
        if number is not None and not 0 <= number <= MOST_NUMBER:
            raise ValueError(f"an overlay number is one from 0 to {MOST_NUMBER}, not {number}")
        self._token, self._key, self._random_bytes, self._options = token, public_key, random_bytes, options
        self._grant = token.grant.pack()
        self._seal = CardSeal(token)
        self._roster = Roster(token, public_key, self._is_present)
        self._own = OwnCard(own_addresses(candidates, options.configured), number, own_addresses((), options.serves))
        self._ways = [
            ServerWay(index, address, same_host(address))
            for index, each in enumerate(self._servers())
            for address in each
        ]
        if not self._ways:
            raise ValueError("no server of the token has an IP address that can be reached from here")
        self._asked: dict[int, _Asked] = {}
        self._bindings = RelayBindings()
        self._relay_wanted: dict[bytes, bool] = {}
        self._nat: tuple[ServerWay, NatTest] | None = None
        self._began: float | None = None
        self._polled = 0.0
        """The latest `now`."""
        self._sequence = 0
        self._udp_answered = False
        self._nodes: dict[bytes, MetNode] | None = None
        self.counted = MeetingCounters()

    def _servers(self) -> Sequence[Sequence[Address]]:
        if self._options.servers is not None:
            return [[(underlay.numeric(host), port) for host, port in each] for each in self._options.servers]
        return [[each] if underlay.is_address(each[0]) else [] for each in self._token.servers]

    # --- what is known

    @property
    def complete(self) -> bool:
        """Whether all nodes of the job are known."""
        return self._roster.complete

    @property
    def number(self) -> int | None:
        """This node's overlay number; None until all nodes are known."""
        return self._roster.numbers(self._own.number).get(self._key)

    @property
    def nodes(self) -> dict[bytes, MetNode]:
        """The other nodes that are known, by public key."""
        if self._nodes is None:
            numbers = self._roster.numbers(self._own.number)
            self._nodes = {key: self._node(key, card, numbers.get(key)) for key, card in self._roster.cards.items()}
        return self._nodes

    @property
    def known(self) -> int:
        """How many nodes of the job are known, this one included."""
        return len(self._roster.cards) + 1

    @property
    def registered(self) -> bool:
        """Whether a server has this node."""
        return any(way.registered and not way.silent for way in self._ways)

    @property
    def udp_answered(self) -> bool:
        """Whether a server has ever answered by UDP, not through a tunnel."""
        return self._udp_answered

    @property
    def seen(self) -> tuple[Address, ...]:
        """Where servers see this node, each address once."""
        return tuple(dict.fromkeys(way.seen for way in self._ways if way.seen is not None and way.registered))

    @property
    def nat(self) -> NatKind:
        """The kind of NAT that this node is behind, over IPv4."""
        if self._nat is not None:
            return self._nat[1].kind([address for _, address in self._own.addresses])
        late = self._began is not None and self._polled - self._began >= NO_UDP_S
        return "no UDP" if late and not self._udp_answered else "unknown"

    @property
    def refusal(self) -> str:
        """Why a server does not accept this node; empty: no server that answers refuses it."""
        answered = [way for way in self._ways if way.registered or way.refusal]
        return answered[0].refusal if answered and all(way.refusal for way in answered) else ""

    def counters(self) -> dict[str, int]:
        """Return what was dropped and not believed, by name."""
        return {**to_builtins(self.counted), **to_builtins(self._roster.counted)}

    def _node(self, key: bytes, card: Card, number: int | None) -> MetNode:
        seen = tuple(dict.fromkeys(each for way in self._ways for each in way.present.get(key, ())))
        return MetNode(number, key, candidates(card.addresses, seen, self._relays(card)), seen)

    def _relays(self, card: Card) -> list[tuple[RelayPort, Address]]:
        """Return the relay ports of a node that this one can use: where both have one."""
        found = []
        for port in card.relays:
            way = self._way_to(port.server)
            if way is not None and way.relay_port is not None:
                found.append((port, way.port_of(port.port)))
        return found

    def relaying(self, address: Address) -> int | None:
        """Return the overlay number of the node whose relay is at an address; None: it is none, or a server's."""
        for card in self._roster.cards.values():
            for port, at in self._relays(card):
                if at == address and isinstance(port.server, bytes):
                    found = next((each for each in self.nodes.values() if each.key.startswith(port.server)), None)
                    return None if found is None else found.number
        return None

    def _way_to(self, server: int | bytes) -> ServerWay | None:
        """Return how a server is reached whose relay is used: the way by which it gave a port, or the first one."""
        ways = [way for way in self._ways if way.server == server and way.registered and not way.silent]
        return next((way for way in ways if way.relay_port is not None), ways[0] if ways else None)

    def _is_present(self, key: bytes) -> bool:
        return any(key in way.present for way in self._ways)

    # --- what the owner changes

    def update(self, candidates: Iterable[Address]) -> None:
        """Replace this node's local addresses. Other nodes learn of it at once. Raises ValueError if one is illegal."""
        addresses = own_addresses(candidates, self._options.configured)
        if addresses != self._own.addresses:
            self._own.addresses = addresses
            self._renew_card()

    def use_relay(self, key: bytes, wanted: bool) -> None:
        """Use the relay ports of a node, or use them no more. In jobs of up to MOST_RELAYED nodes, those of all nodes
        are used until this says otherwise."""
        self._relay_wanted[key] = wanted
        self._use_relays()

    def refresh(self, key: bytes) -> None:
        """Ask the servers, and the relay ports of a node, at once: a NAT may have given this node another address."""
        card = self._roster.cards.get(key)
        for port in () if card is None else card.relays:
            self._bindings.refresh(port)
        for way in self._ways:
            way.ask_soon()

    def is_relay_bound(self, key: bytes) -> bool:
        """Return whether a relay port of a node knows this node's address."""
        card = self._roster.cards.get(key)
        return card is not None and any(self._bindings.is_bound(port) for port in card.relays)

    def add_tunnel(self, server: int, address: Address, port_of: Callable[[int], Address]) -> None:
        """Reach a server through a tunnel, too: at a local address, and its other ports at those that `port_of` has.

        It takes the place of an earlier tunnel to the same server.

        Parameters
        ----------
        server : int
            Index in the token's servers.
        address : tuple of str and int
            Local address that stands for the server's main port.
        port_of : callable
            Takes a port of the server, and returns the local address that stands for it.
        """
        self._ways = [way for way in self._ways if not (way.tunnelled and way.server == server)]
        self._ways.append(ServerWay(server, address, port_of, tunnelled=True))
        self._use_relays()

    # --- time

    def next_time(self) -> float:
        """Return when `poll` is due, on the clock of its `now`."""
        times = [min(way.due, way.allocate_due) for way in self._ways]
        if self._nat is not None:
            times.append(self._nat[1].next_time())
        return min(*times, self._bindings.next_time())

    def poll(self, now: float) -> Datagrams:
        """Return the datagrams that are to be sent now.

        Parameters
        ----------
        now : float
            Seconds, on any clock that never goes back.
        """
        if self._began is None:
            self._began = now
            started = now if self._options.started is None else self._options.started
            self._sequence = max(0, int(started * 1e6))
        self._polled = now
        out: Datagrams = []
        for way in self._ways:
            if now >= way.due:
                if way.on_request(now):
                    self._use_relays()  # of others
                out.append((way.address, self._register(way)))
            if now >= way.allocate_due:
                way.allocate_asked = now
                way.allocate_tries += 1
                way.allocate_due = now + (REPEAT_S if way.allocate_tries < _QUICK_TRIES else SILENT_S)
                allocate = AllocatePort(key=self._key, sequence=self._next(), cookie=way.cookie)
                out.append((way.address, self._request(allocate, way)))
        return out + self._probes(now) + self._binds(now)

    def goodbye(self) -> Datagrams:
        """Return the datagrams that tell all servers that this node ends."""
        return [
            (way.address, self._request(LeaveJob(key=self._key, sequence=self._next(), cookie=way.cookie), way))
            for way in self._ways
            if way.registered and not way.silent
        ]

    def _register(self, way: ServerWay) -> bytes:
        register = RegisterNode(
            key=self._key,
            sequence=self._next(),
            cookie=way.cookie,
            epoch=way.epoch,
            known=way.known,
            card=self._card(),
        )
        return self._request(register, way)

    def _probes(self, now: float) -> Datagrams:
        out: Datagrams = []
        if self._nat is not None:
            way, test = self._nat
            for how in test.due(now):
                cookie = b"" if how == FROM_HERE else way.cookie  # a challenge has the answer
                probe = ProbeNat(key=self._key, sequence=self._next(), cookie=cookie, how=how)
                address = way.port_of(way.address[1] + 1) if how == FROM_HERE else way.address
                out.append((address, self._request(probe, way, how)))
        return out

    def _binds(self, now: float) -> Datagrams:
        out: Datagrams = []
        for port, use in self._bindings.due(now):
            way = self._way_to(port.server)
            if way is not None:
                bind = BindAddress(key=self._key, sequence=self._next(), cookie=use.cookie)
                out.append((use.address, self._request(bind, way, port)))
        return out

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _request(
        self,
        message: Request,
        way: ServerWay,
        what: RelayPort | int | None = None,
    ) -> bytes:
        while len(self._asked) >= MOST_PENDING:
            del self._asked[next(iter(self._asked))]
        self._asked[message.sequence] = _Asked(type(message), way, what)
        return pack_request(message, self._grant, self._token.admission)

    def _card(self) -> bytes:
        own = self._own
        if not own.sealed:
            addresses, serves = card_addresses(own.addresses), card_addresses(own.serves)
            card = Card(self._next(), own.number, addresses[:MOST_ADDRESSES], own.relays, serves[:MOST_RELAYING])
            own.sealed = self._seal.seal(card, self._key, self._random_bytes)
        return own.sealed

    def _renew_card(self) -> None:
        """Tell all servers of a change at once."""
        self._own.sealed = b""
        for way in self._ways:
            way.ask_soon()

    # --- datagrams

    def on_datagram(self, address: Address, data: bytes, now: float) -> None:
        """Take a datagram whose first byte is 0x13.

        Parameters
        ----------
        address : tuple of str and int
            Where it came from.
        data : bytes
            The datagram.
        now : float
            As for `poll`.
        """
        self.counted.received += 1
        try:
            if grant_of(data) != self._grant or not is_genuine(data, self._token.admission):
                self.counted.dropped_forged += 1
                return
            message = unpack(data, ANSWERS)
        except MeetingMessageError:
            self.counted.dropped_malformed += 1
            return
        address = underlay.numeric(address[0]), address[1]
        if isinstance(message, JobState) and not message.echo:
            way = next((each for each in self._ways if each.address == address), None)
            used = way is not None and self._on_state(way, message, now)
        else:
            used = self._on_answer(address, message, now)
        if not used:
            self.counted.dropped_unasked += 1

    def _on_answer(self, address: Address, message: MeetingMessage, now: float) -> bool:
        """Take the answer to a request. Returns False if it is none."""
        assert isinstance(
            message, AddressChallenge | JobState | NatProbed | PortAllocated | AddressBound | RequestRefused
        )
        asked = self._asked.get(message.echo)
        if asked is None:
            return False
        way = asked.way
        if isinstance(message, NatProbed):  # from wherever it was asked to come
            return self._on_probed(asked, message, now)
        if address[0] != way.address[0] and not way.tunnelled:
            return False
        if isinstance(message, JobState):
            if address != way.address or asked.kind is not RegisterNode:
                return False
            return self._on_state(way, message, now)
        del self._asked[message.echo]
        if isinstance(message, AddressChallenge):
            self._on_challenge(asked, message, now)
        elif isinstance(message, PortAllocated) and asked.kind is AllocatePort:
            self._on_allocated(way, message.port)
        elif isinstance(message, AddressBound) and isinstance(asked.what, RelayPort):
            self._bindings.on_bound(asked.what, now)
        elif isinstance(message, RequestRefused):
            self._on_refused(asked, message.reason, now)
        else:
            return False
        return True

    def _hear(self, way: ServerWay) -> None:
        way.tries = 0
        self._udp_answered = self._udp_answered or not way.tunnelled

    def _on_challenge(self, asked: _Asked, message: AddressChallenge, now: float) -> None:
        way = asked.way
        if asked.kind is ProbeNat and asked.what == FROM_HERE:
            if self._nat is not None and self._nat[0] is way:
                self._nat[1].on_answer(FROM_HERE, unpack_address(message.seen), now)
            return
        if isinstance(asked.what, RelayPort):
            self._bindings.on_challenge(asked.what, message.cookie, now)
            return
        self._hear(way)
        way.cookie = message.cookie
        way.ask_soon()

    def _on_state(self, way: ServerWay, state: JobState, now: float) -> bool:
        if state.epoch != way.epoch:
            if not state.echo:  # it may be a replay from before the server's restart
                return False
            way.forget(state.epoch)
            self._use_relays()
        if state.echo:
            self._hear(way)
            way.cookie = state.cookie
            self._see(way, unpack_address(state.seen), now)
            if not way.registered:
                way.registered, way.refusal = True, ""
            self._allocate(way, now)
        for entry in state.entries:
            if entry.key != self._key:
                self._on_entry(way, entry.key, entry.card, entry.seen)
        if state.entries:
            self._find_relaying()
        news = way.learn(state.since, state.until, state.latest)
        if state.echo and self.complete and way.has_all:
            way.rest(now)
        if news:
            way.ask_soon()
        self._use_relays()
        self._claim()
        return True

    def _on_entry(self, way: ServerWay, key: bytes, card: bytes, seen: Sequence[bytes]) -> None:
        if not card:
            way.present.pop(key, None)
        elif self._roster.learn(key, card):
            addresses = map(unpack_address, seen)
            way.present[key] = tuple(each for each in addresses if each is not None)
        self._nodes = None

    def _find_relaying(self) -> None:
        """Register with the nodes of the job that relay, too: with the same ones as all others."""
        cards = self._roster.cards
        own = [self._key] if self._own.serves else []
        relaying = sorted([*own, *(key for key, card in cards.items() if card.serves)])[:MOST_RELAYING]
        reached = {underlay.family(address[0]) for _, address in self._own.addresses}
        wanted = {
            (key[:NAME_BYTES], (underlay.numeric(each.host), each.port))
            for key in relaying
            if key in cards
            for each in cards[key].serves
            if underlay.family(each.host) in reached
        }
        kept = [each for each in self._ways if isinstance(each.server, int) or (each.server, each.address) in wanted]
        have = {(each.server, each.address) for each in kept}
        new = [ServerWay(name, at, same_host(at)) for name, at in sorted(wanted) if (name, at) not in have]
        if new or len(kept) < len(self._ways):
            self._ways = [*kept, *new]
            self._use_relays()

    def _see(self, way: ServerWay, seen: Address | None, now: float) -> None:
        """Note where a server sees this node. A change starts the tests of the NAT anew."""
        if seen is None or seen == way.seen:
            return
        way.seen = seen
        if way.tunnelled or isinstance(way.server, bytes) or underlay.family(seen[0]) != IPV4:
            return
        if self._nat is None or self._nat[0] is way:
            self._nat = way, NatTest(seen, now)

    def _claim(self) -> None:
        """Claim the number that this node has found, so that it keeps it when another node takes a lost one's place.

        Others need not hear of it soon.
        """
        if self._own.number is None and (number := self.number) is not None:
            self._own.number = number
            self._own.sealed = b""

    def _on_probed(self, asked: _Asked, message: NatProbed, now: float) -> bool:
        if self._nat is None or self._nat[0] is not asked.way or asked.what != message.how:
            return False
        self._nat[1].on_answer(message.how, unpack_address(message.seen), now)
        return True

    # --- the relay

    def _allocate(self, way: ServerWay, now: float) -> None:
        wanted = self._options.relay and way.relay_port is None and not way.relay_refused
        if wanted and way.allocate_due == math.inf and self._way_to(way.server) is way:
            way.allocate_due = max(now, way.allocate_asked + REPEAT_S)

    def _on_allocated(self, way: ServerWay, port: int) -> None:
        way.allocate_due = math.inf
        if way.relay_port != port:
            way.relay_port = port
            self._use_relays()

    def _on_refused(self, asked: _Asked, reason: int, now: float) -> None:
        way = asked.way
        self._hear(way)
        if isinstance(asked.what, int):
            if self._nat is not None and self._nat[0] is way:
                self._nat[1].on_refused(asked.what)
            return
        if reason == NO_RELAY:
            way.allocate_due, way.relay_refused = math.inf, True
        else:
            way.refusal = REASONS[reason]
            way.rest(now, SILENT_S)

    def _use_relays(self) -> None:
        """Tell the other nodes of this one's ports, and bind its address at theirs."""
        relays = tuple(
            RelayPort(way.server, way.relay_port)
            for way in self._ways
            if way.relay_port is not None and self._way_to(way.server) is way
        )
        if relays != self._own.relays:
            self._own.relays = relays
            self._renew_card()
        usual = self._token.nodes <= MOST_RELAYED
        wanted = []
        for key, card in self._roster.cards.items() if usual or self._relay_wanted else ():
            if self._relay_wanted.get(key, usual):
                for port, address in self._relays(card):
                    way = self._way_to(port.server)
                    wanted.append((port, address, b"" if way is None else way.cookie))
        self._bindings.set(wanted)
        self._nodes = None
