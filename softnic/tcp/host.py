"""Protocols of a node: ARP and ICMP on frames, TCP on segments, over one NIC.

The owner passes in what arrives (`receive_segment`, `receive_frame`), calls `advance` at `next_time`, asks for `output`
while the link has space, and reads `events`. There is no I/O, clock or sleep here.

Segments to the node itself go to the NIC like all others, addressed to its own MAC address; the NIC loops them back.
"""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random
from typing import Any

from softnic.packet import arp, ethernet, icmp, ipv4
from softnic.packet.ethernet import ParseError
from softnic.packet.segment import OutputTransmitter, Segment, Transmitted, Transmitter
from softnic.tcp.config import TcpConfig
from softnic.tcp.connection import Connection
from softnic.tcp.counters import StackCounters
from softnic.tcp.events import EchoReply, Event
from softnic.tcp.fast_path import segment_of
from softnic.tcp.flow import Flow
from softnic.tcp.icmp_errors import on_icmp_error
from softnic.tcp.listener import Listener
from softnic.tcp.liveness import NEVER, Liveness
from softnic.tcp.neighbours import Neighbours
from softnic.tcp.send_buffer import CutsOf, coding_blocks
from softnic.tcp.stack import Candidates, TcpStack

DEFAULT_OFFLOADS = frozenset({0x28})
_MAX_PENDING = 64
"""Limit of the packets that wait for ARP, over all addresses."""
_MAX_PINGS = 1024
_REFUSAL_INTERVAL_S = 0.1


class Host:
    """`ip` in host order, `mac` 6 bytes. `transmitter` is the NIC; `send_frame(frame, now)` sends ARP and ICMP.

    `offload_tos` are the ToS values (low two bits clear) that select an offload: bytes with these tags are floats.
    `cuts_of` returns where a range with a tag may be cut.
    """

    def __init__(
        self,
        ip: int,
        mac: bytes,
        *,
        transmitter: Transmitter,
        send_frame: Callable[[bytes, float], None],
        rng: Random,
        mtu: int = 1500,
        config: TcpConfig | None = None,
        offload_tos: Collection[int] = DEFAULT_OFFLOADS,
        cuts_of: CutsOf = coding_blocks,
        relay_of: Callable[[int], str] = lambda _ip: "",
    ) -> None:
        self.ip = ip
        self.mac = mac
        self._counters = StackCounters()
        self.collect: Callable[[StackCounters], object] = lambda _counters: None
        """Adds what was counted elsewhere since the last call."""
        self.events: deque[Event] = deque()
        self._transmitter = transmitter
        self._send_frame = send_frame
        self._neighbours = Neighbours()
        self._pending: deque[tuple[int, Segment | bytes]] = deque()
        self._pings: dict[tuple[int, int, int], float] = {}
        self._ping_identifier = rng.getrandbits(16)
        self._ping_sequence = 0
        self._refused_at = float("-inf")
        self._output_transmitter = transmitter if isinstance(transmitter, OutputTransmitter) else None
        self.tcp = TcpStack(
            *(ip, self._send_segment, rng, config or TcpConfig(mtu=mtu), self._counters, self.events, offload_tos),
            cuts_of=cuts_of,
            send_output=None if self._output_transmitter is None else self._send_output,
        )
        self._scheduler = self.tcp.scheduler
        self._liveness = Liveness(self.tcp, self._ask, self._announce, relay_of)

    @property
    def counters(self) -> StackCounters:
        """What was counted so far."""
        self.collect(self._counters)
        return self._counters

    @property
    def out_of_order_pruned(self) -> int:
        """`counters.out_of_order_pruned`, which any thread may read."""
        return self._counters.out_of_order_pruned

    # TCP

    def listen(
        self, ip: int, port: int, backlog: int, now: float, unaccepted: Callable[[], int] = lambda: 0
    ) -> Listener:
        """Starts listening, as TcpStack.listen. Raises OSError as it does."""
        del now
        return self.tcp.listen(ip, port, backlog, unaccepted)

    def connect(self, dst: int, dport: int, now: float, sport: int = 0, candidates: Candidates = range) -> Connection:
        """Starts connecting: `Established` or `Closed` follows. Raises OSError as TcpStack.connect."""
        return self.tcp.connect(dst, dport, now, sport, candidates)

    def reserve(self, port: int, reuse: bool = False, share: bool = False) -> int:
        """Reserves a local port, 0 for any, until `release`, as TcpStack.reserve. Raises OSError EADDRINUSE."""
        return self.tcp.reserve(port, reuse, share)

    def release(self, port: int) -> None:
        self.tcp.release(port)

    # Turns

    def receive_segment(self, segment: Segment, now: float) -> None:
        """Handles a segment that the NIC has checked and decoded. Its payload's memory belongs to TCP from now on."""
        if segment.dst != self.ip or not ipv4.is_host(segment.src):
            self._counters.dropped_not_ours += 1
            return
        self.tcp.receive(segment, now)

    def receive_frame(self, frame: bytes, now: float) -> None:
        """Handles any other frame. Never raises."""
        try:
            packet = ethernet.parse(frame)
            if packet.destination not in (self.mac, ethernet.BROADCAST):
                self._counters.dropped_ethernet += 1
            elif packet.ethertype == ethernet.TYPE_ARP:
                self._receive_arp(arp.parse(packet.payload), now)
            elif packet.ethertype == ethernet.TYPE_IPV4:
                self._receive_ipv4(ipv4.parse(packet.payload), now, packet.destination == ethernet.BROADCAST)
            else:
                self._counters.dropped_ethernet += 1
        except ParseError:
            self._counters.dropped_malformed += 1

    def overhear(self, frame: bytes, now: float) -> None:
        """Handles a frame that another queue of this node has received, answered and counted: what it tells of peers,
        and of connections here. Never raises."""
        with contextlib.suppress(ParseError):
            packet = ethernet.parse(frame)
            if packet.ethertype == ethernet.TYPE_ARP:
                self._learn(arp.parse(packet.payload), now)
            elif packet.ethertype == ethernet.TYPE_IPV4:
                inner = ipv4.parse(packet.payload)
                message = icmp.parse(inner.payload) if inner.protocol == ipv4.PROTOCOL_ICMP else None
                if isinstance(message, icmp.Problem) and (inner.dst, message.src) == (self.ip, self.ip):
                    flow = self.tcp.lookup((message.dst, message.dport, message.sport))
                    if flow is not None:
                        on_icmp_error(flow, message, self._counters, now)

    def advance(self, now: float) -> None:
        """Runs the timers and sends the ARP requests that are due."""
        self.advance_requests(now)
        self.tcp.advance(now)

    def advance_requests(self, now: float) -> None:
        """Asks for peers that are not known, or were not heard for long, and gives up those that do not answer."""
        ask, failed = self._neighbours.due(now)
        for ip in ask:
            self._send_arp(ethernet.BROADCAST, ip, now)
        for ip in failed:
            waiting = len(self._pending)
            self._pending = deque(item for item in self._pending if item[0] != ip)
            self._counters.dropped_unresolved += waiting - len(self._pending)
            self.tcp.unreachable(ip)
        self._liveness.advance(now)

    def next_time(self) -> float | None:
        """Latest time of the next `advance`; None: not before something arrives or is written."""
        times = (self.next_request(), self.tcp.next_time())
        return min((time for time in times if time is not None), default=None)

    def next_request(self) -> float | None:
        """When an ARP request is due; None: not before something happens."""
        asked, due = self._neighbours.next_time(), self._liveness.next_time()
        if asked is not None and asked < due:
            return asked
        return None if due == NEVER else due

    def end_connections(self, ip: int, text: str, now: float) -> None:
        """Resets the connections to a node, whose key is revoked: they end with EKEYREVOKED and this text."""
        self._liveness.end(ip, errno.EKEYREVOKED, text, now)

    def begin(self, now: float) -> None:
        """Announces this node to all others, which ends their connections to a predecessor at its address."""
        self._liveness.begin(now)

    def wants_output(self) -> bool:
        return self._scheduler.wants_output

    def output(self, now: float, tx_space: int) -> int:
        """Lets connections send by turns up to about `tx_space` bytes of frames. Returns the wire bytes."""
        return self._scheduler.output(now, tx_space)

    def wants_output_loopback(self) -> bool:
        return self._scheduler.wants_output_loopback

    def output_loopback(self, now: float) -> None:
        """Lets each connection to the node itself send one super-segment."""
        self._scheduler.output_loopback(now)

    # Sending

    @property
    def address_changes(self) -> int:
        """How often the MAC address of a peer has changed."""
        return self._neighbours.changes

    def has_neighbour(self, ip: int) -> bool:
        """Whether the MAC address of a peer is known or was looked up."""
        return self._neighbours.has(ip)

    def resolve(self, ip: int, now: float) -> tuple[bytes, float] | None:
        """Returns the MAC address of a peer and until when it is valid, as long as `address_changes` stays.

        None: it is not known yet.
        """
        mac = self._neighbours.lookup(ip, now)
        return None if mac is None else (mac, self._neighbours.fresh_until(ip))

    def _send_segment(self, segment: Segment, frames: int, now: float) -> Transmitted | None:
        """Sends a segment. Segments of no connection are queued for ARP; connections wait themselves."""
        mac = self.mac if segment.dst == self.ip else self._neighbours.lookup(segment.dst, now)
        if mac is None:
            if not segment.payload and segment.options is None:
                segment.flow = None  # it may wait longer than its connection exists
                self._wait(segment.dst, segment)
            return None
        self._counters.segments_sent += 1
        return self._transmitter.transmit(segment, mac, frames, now)

    def _send_output(self, flow: Flow, out: Any, now: float) -> Transmitted | None:
        """Sends what the fast path has chosen, as `_send_segment`."""
        ip = flow.peer[0]
        mac = self.mac if ip == self.ip else self._neighbours.lookup(ip, now)
        if mac is None:
            if out.start == out.end:
                self._wait(ip, replace(segment_of(flow, out), flow=None))
            return None
        assert self._output_transmitter is not None
        self._counters.segments_sent += 1
        return self._output_transmitter.transmit_output(flow, out, mac, now)

    def _wait(self, ip: int, item: Segment | bytes) -> None:
        self._pending.append((ip, item))
        if len(self._pending) > _MAX_PENDING:
            self._pending.popleft()
            self._counters.dropped_unresolved += 1

    def _ask(self, ip: int, now: float) -> None:
        """Polls a peer."""
        self._send_arp(self._neighbours.known(ip) or ethernet.BROADCAST, ip, now)

    def _announce(self, now: float) -> None:
        self._send_arp(ethernet.BROADCAST, self.ip, now)

    def _send_arp(self, mac: bytes, ip: int, now: float) -> None:
        question = arp.Arp(arp.REQUEST, self.mac, self.ip, bytes(6), ip)
        self._send_ethernet(mac, ethernet.TYPE_ARP, arp.build(question), now)

    def _send_ethernet(self, mac: bytes, ethertype: int, payload: bytes, now: float) -> None:
        self._send_frame(ethernet.build(mac, self.mac, ethertype, payload), now)

    def _send_ipv4(self, packet: ipv4.Packet, now: float) -> None:
        if packet.dst == self.ip:
            self._receive_ipv4(packet, now)
            return
        data = ipv4.build(packet)
        mac = self._neighbours.lookup(packet.dst, now)
        if mac is None:
            self._wait(packet.dst, data)
        else:
            self._send_ethernet(mac, ethernet.TYPE_IPV4, data, now)

    # Receiving

    def _receive_arp(self, packet: arp.Arp, now: float) -> None:
        if packet.target_ip == self.ip != packet.sender_ip and packet.operation == arp.REQUEST:
            answer = arp.Arp(arp.REPLY, self.mac, self.ip, packet.sender_mac, packet.sender_ip)
            self._send_ethernet(packet.sender_mac, ethernet.TYPE_ARP, arp.build(answer), now)
        self._counters.dropped_not_ours += not self._learn(packet, now)

    def _learn(self, packet: arp.Arp, now: float) -> bool:
        """Notes what ARP tells of a peer. Returns whether it concerns this node."""
        if packet.sender_ip == self.ip:
            return False  # another node has our address, or it is our own request
        ours = packet.target_ip == self.ip
        before = self._neighbours.known(packet.sender_ip)
        known = packet.sender_ip and self._neighbours.learn(packet.sender_ip, packet.sender_mac, now, unasked=ours)
        announcement = packet.operation == arp.REQUEST and packet.sender_ip == packet.target_ip
        if not known and not ours and not announcement:
            return False
        if known and before != packet.sender_mac:
            self._resolved(packet.sender_ip, packet.sender_mac, now)
        self._liveness.heard(packet.sender_ip, now)
        if announcement:
            self._liveness.announced(packet.sender_ip, now)
        return True

    def _resolved(self, ip: int, mac: bytes, now: float) -> None:
        for _ in range(len(self._pending)):
            waiting = self._pending.popleft()
            if waiting[0] != ip:
                self._pending.append(waiting)
            elif isinstance(waiting[1], bytes):
                self._send_ethernet(mac, ethernet.TYPE_IPV4, waiting[1], now)
            else:
                self._transmitter.transmit(waiting[1], mac, 1, now)
        self.tcp.resolved(ip)

    def _receive_ipv4(self, packet: ipv4.Packet, now: float, to_all: bool = False) -> None:
        """Handles a packet; `to_all`: its frame was a broadcast."""
        if packet.dst != self.ip or not ipv4.is_host(packet.src):
            self._counters.dropped_not_ours += 1
        elif packet.protocol != ipv4.PROTOCOL_ICMP:
            self._counters.dropped_protocol += 1
            if not to_all:
                self._refuse(packet, now)
        else:
            message = icmp.parse(packet.payload)
            if isinstance(message, icmp.Echo):
                self._receive_echo(packet.src, message, now)
            else:
                self._receive_problem(message, now)

    def _refuse(self, packet: ipv4.Packet, now: float) -> None:
        """Sends "unreachable" (RFC 1122, section 3.2.2.1), rate-limited (RFC 1812, section 4.3.2.8).

        Not for broadcasts (RFC 1122, section 3.2.2): the answers of all nodes would be a storm.
        """
        if now < self._refused_at + _REFUSAL_INTERVAL_S:
            return
        self._refused_at = now
        self._counters.icmp_sent += 1
        code = icmp.PORT_UNREACHABLE if packet.protocol == ipv4.PROTOCOL_UDP else icmp.PROTOCOL_UNREACHABLE
        message = icmp.unreachable(code, ipv4.build(packet))
        self._send_ipv4(ipv4.Packet(self.ip, packet.src, ipv4.PROTOCOL_ICMP, message), now)

    def _receive_problem(self, problem: icmp.Problem, now: float) -> None:
        if problem.src == self.ip:
            flow = self.tcp.lookup((problem.dst, problem.dport, problem.sport))
            on_icmp_error(flow, problem, self._counters, now)
        else:
            self._counters.dropped_not_ours += 1

    def _receive_echo(self, peer: int, echo: icmp.Echo, now: float) -> None:
        if echo.kind == icmp.ECHO_REQUEST:
            reply = icmp.build(echo._replace(kind=icmp.ECHO_REPLY))
            self._send_ipv4(ipv4.Packet(self.ip, peer, ipv4.PROTOCOL_ICMP, reply), now)
            return
        sent_at = self._pings.pop((peer, echo.identifier, echo.sequence), None)
        if sent_at is None:
            self._counters.dropped_protocol += 1
        else:
            self.events.append(EchoReply(peer, echo.sequence, now - sent_at))

    def ping(self, dst: int, now: float, data: bytes = b"softnic") -> int:
        """Sends an ICMP echo request. Returns its sequence number; an `EchoReply` event may follow."""
        self._ping_sequence = (self._ping_sequence + 1) & 0xFFFF
        echo = icmp.Echo(icmp.ECHO_REQUEST, self._ping_identifier, self._ping_sequence, data)
        if len(self._pings) >= _MAX_PINGS:
            del self._pings[next(iter(self._pings))]
        self._pings[dst, echo.identifier, echo.sequence] = now
        self._send_ipv4(ipv4.Packet(self.ip, dst, ipv4.PROTOCOL_ICMP, icmp.build(echo)), now)
        return echo.sequence
