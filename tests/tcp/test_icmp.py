"""ICMP errors: parsing, validation and effect on connections (RFC 1122, 1191, 5461, 5927)."""

from __future__ import annotations

import errno

import pytest

from softnic.packet import ethernet, icmp, ipv4
from softnic.packet.ethernet import ParseError
from softnic.packet.segment import Options, Segment
from softnic.tcp.connection import Connection
from softnic.tcp.counters import StackCounters
from softnic.tcp.state import State
from tests.tcp.flows import flow
from tests.tcp.script import ACK, FIN, LOCAL, MSS, PEER, SYN, Script, state_of

ROUTER = ipv4.address("10.77.0.99")
NET, HOST, PROTOCOL, PORT, TOO_LONG, FILTERED = 0, 1, 2, 3, 4, 13


def error(script: Script, about: Segment, code: int, *, kind: int = icmp.UNREACHABLE, mtu: int = 0) -> bytes:
    """Return the frame of an ICMP error about a segment that the host has sent."""
    tcp = about.sport.to_bytes(2, "big") + about.dport.to_bytes(2, "big") + about.seq.to_bytes(4, "big")
    quoted = ipv4.build(ipv4.Packet(about.src, about.dst, ipv4.PROTOCOL_TCP, tcp + bytes(12 + len(about.payload))))
    body = bytes([kind, code, 0, 0]) + mtu.to_bytes(4, "big") + quoted[:28]
    body = body[:2] + ipv4.checksum(body).to_bytes(2, "big") + body[4:]
    packet = ipv4.Packet(ROUTER, LOCAL, ipv4.PROTOCOL_ICMP, body)
    return ethernet.build(script.host.mac, bytes.fromhex("02aaaaaaaaaa"), ethernet.TYPE_IPV4, ipv4.build(packet))


def tell(script: Script, about: Segment, code: int, *, kind: int = icmp.UNREACHABLE, mtu: int = 0) -> None:
    script.host.receive_frame(error(script, about, code, kind=kind, mtu=mtu), script.now)


class TestWhileOpening:
    def opening(self, script: Script) -> tuple[Connection, Segment]:
        script.sport = 80
        connection = script.host.connect(PEER, 80, script.now)
        [syn] = script.sent()
        return connection, syn

    @pytest.mark.parametrize(
        ("code", "number"), [(PROTOCOL, errno.ECONNREFUSED), (PORT, errno.ECONNREFUSED), (FILTERED, errno.EHOSTUNREACH)]
    )
    def test_a_hard_error_ends_a_connection_in_syn_sent(self, script: Script, code: int, number: int) -> None:
        connection, syn = self.opening(script)
        tell(script, syn, code)
        assert (state_of(connection), connection.error) == (State.CLOSED, number)
        assert script.wait(1) == []
        assert connection.error_message.startswith("10.77.0.2:80 cannot be reached: ICMP says that ")
        assert script.host.counters.icmp_errors == 1

    @pytest.mark.parametrize("code", range(16))
    def test_the_hard_errors(self, script: Script, code: int) -> None:
        """Hard errors are those of RFC 1122, section 4.2.3.9, and Linux."""
        connection, syn = self.opening(script)
        tell(script, syn, code)
        assert (state_of(connection) is State.CLOSED) == (code in (PROTOCOL, PORT, 6, 7, 9, 10, FILTERED))

    @pytest.mark.parametrize("kind", [icmp.TIME_EXCEEDED, icmp.PARAMETER_PROBLEM])
    def test_other_errors_are_soft(self, script: Script, kind: int) -> None:
        connection, syn = self.opening(script)
        tell(script, syn, 0, kind=kind)
        assert state_of(connection) is State.SYN_SENT
        assert script.host.counters.icmp_errors == 1

    def test_an_error_with_a_wrong_checksum_is_dropped(self, script: Script) -> None:
        connection, syn = self.opening(script)
        frame = bytearray(error(script, syn, PORT))
        frame[-1] ^= 1
        script.host.receive_frame(bytes(frame), script.now)
        assert (state_of(connection), script.host.counters.dropped_malformed) == (State.SYN_SENT, 1)

    @pytest.mark.parametrize(("code", "number"), [(NET, errno.ENETUNREACH), (HOST, errno.EHOSTUNREACH)])
    def test_a_soft_error_is_reported_if_the_connect_times_out(self, script: Script, code: int, number: int) -> None:
        connection, syn = self.opening(script)
        tell(script, syn, code)
        assert state_of(connection) is State.SYN_SENT
        script.wait(100)
        assert connection.error == number

    def test_a_soft_error_is_forgotten_if_the_peer_answers(self, script: Script) -> None:
        connection, syn = self.opening(script)
        script.dport, script.iss = connection.local[1], syn.seq
        tell(script, syn, HOST)
        script.receive(SYN | ACK, 0, 1, options=Options(mss=MSS))
        connection.set_user_timeout(2.0)
        connection.send(b"anybody?")
        script.wait(3)
        assert connection.error == errno.ETIMEDOUT

    def test_an_error_about_another_syn_is_ignored(self, script: Script) -> None:
        connection, syn = self.opening(script)
        syn.seq += 1
        tell(script, syn, PORT)
        assert state_of(connection) is State.SYN_SENT
        assert script.host.counters.dropped_icmp == 1


class TestEstablished:
    def in_flight(self, script: Script) -> tuple[Connection, Segment]:
        connection = script.established()
        connection.send(bytes(500))
        [segment] = script.sent()
        return connection, segment

    @pytest.mark.parametrize("code", [PROTOCOL, PORT, FILTERED, HOST])
    def test_no_error_ends_an_established_connection(self, script: Script, code: int) -> None:
        connection, segment = self.in_flight(script)
        tell(script, segment, code)
        assert state_of(connection) is State.ESTABLISHED
        script.receive(ACK, 1, 501)
        assert connection.info(script.now).bytes_sent == 500

    def test_a_soft_error_is_the_reason_of_a_timeout(self, script: Script) -> None:
        connection, segment = self.in_flight(script)
        connection.set_user_timeout(3.0)
        tell(script, segment, 0, kind=icmp.TIME_EXCEEDED)
        script.wait(4)
        assert connection.error == errno.EHOSTUNREACH
        assert connection.error_message == "10.77.0.2:80 cannot be reached: ICMP says that packets go round in a loop"

    def test_a_soft_error_is_not_the_reason_if_the_peer_answered_later(self, script: Script) -> None:
        connection, segment = self.in_flight(script)
        connection.set_user_timeout(3.0)
        tell(script, segment, HOST)
        script.receive(ACK, 1, 1, b"here I am")
        script.wait(4)
        assert connection.error == errno.ETIMEDOUT

    @pytest.mark.parametrize("offset", [-1, 500, 100_000])
    def test_errors_that_quote_no_segment_in_flight_are_dropped(self, script: Script, offset: int) -> None:
        connection, segment = self.in_flight(script)
        segment.seq = (segment.seq + offset) & 0xFFFFFFFF
        tell(script, segment, HOST)
        tell(script, segment, TOO_LONG, mtu=600)
        assert script.host.counters.dropped_icmp == 2
        assert (flow(connection).soft_error, connection.reported_mtu) == (None, None)

    def test_errors_that_quote_another_connection_or_host_are_dropped(self, script: Script) -> None:
        _, segment = self.in_flight(script)
        segment.sport += 1
        tell(script, segment, HOST)
        segment.src = ROUTER
        tell(script, segment, HOST)
        assert (script.host.counters.dropped_icmp, script.host.counters.dropped_not_ours) == (1, 1)

    def test_unknown_codes_and_time_wait(self, script: Script) -> None:
        connection, segment = self.in_flight(script)
        tell(script, segment, 77)
        script.receive(ACK, 1, 501)
        connection.shutdown_write()
        [fin] = script.sent()
        script.receive(FIN | ACK, 1, 502)
        assert state_of(connection) is State.TIME_WAIT
        tell(script, fin, PORT)
        assert script.host.counters.dropped_icmp == 2


class TestParsing:
    def test_an_error_is_parsed(self) -> None:
        quoted = ipv4.build(ipv4.Packet(LOCAL, PEER, ipv4.PROTOCOL_TCP, bytes.fromhex("0050138800000007") + bytes(12)))
        problem = icmp.parse(icmp.unreachable(PORT, quoted))
        assert problem == icmp.Problem(icmp.UNREACHABLE, PORT, 0, 40, LOCAL, PEER, 80, 5000, 7)

    @pytest.mark.parametrize("size", [0, 19, 27])
    def test_an_error_with_a_short_quote(self, size: int) -> None:
        quoted = ipv4.build(ipv4.Packet(LOCAL, PEER, ipv4.PROTOCOL_TCP, bytes(20)))[:size]
        body = bytes([icmp.UNREACHABLE, PORT, 0, 0, 0, 0, 0, 0]) + quoted
        body = body[:2] + ipv4.checksum(body).to_bytes(2, "big") + body[4:]
        with pytest.raises(ParseError, match="quotes"):
            icmp.parse(body)

    @pytest.mark.parametrize("first", [0x65, 0x44])
    def test_an_error_that_quotes_no_header(self, first: int) -> None:
        quoted = ipv4.build(ipv4.Packet(LOCAL, PEER, ipv4.PROTOCOL_TCP, bytes(20)))
        body = bytearray(icmp.unreachable(PORT, quoted)[:2] + bytes(6) + quoted[:28])
        body[8] = first
        body[2:4] = ipv4.checksum(bytes(body)).to_bytes(2, "big")
        with pytest.raises(ParseError, match="quotes"):
            icmp.parse(bytes(body))

    def test_an_error_about_another_protocol(self) -> None:
        quoted = ipv4.build(ipv4.Packet(LOCAL, PEER, ipv4.PROTOCOL_UDP, bytes(20)))
        with pytest.raises(ParseError, match="protocol 17"):
            icmp.parse(icmp.unreachable(PORT, quoted))


class TestRefusals:
    """Packets of unsupported protocols are answered by ICMP errors (RFC 1122, section 3.2.2.1)."""

    def receive(
        self, script: Script, protocol: int, *, source: int = PEER, destination: bytes | None = None
    ) -> list[icmp.Echo | icmp.Problem | bytes]:
        packet = ipv4.Packet(source, LOCAL, protocol, bytes.fromhex("1388005000080000"))
        script.frames.clear()
        frame = ethernet.build(destination or script.host.mac, bytes(6), ethernet.TYPE_IPV4, ipv4.build(packet))
        script.host.receive_frame(frame, script.now)
        return [ipv4.parse(frame[14:]).payload for frame in script.frames]

    @pytest.mark.parametrize(("protocol", "code"), [(ipv4.PROTOCOL_UDP, PORT), (47, PROTOCOL)])
    def test_the_error_quotes_the_start_of_the_packet(self, script: Script, protocol: int, code: int) -> None:
        [message] = self.receive(script, protocol)
        assert isinstance(message, bytes)
        assert message[:2] == bytes([icmp.UNREACHABLE, code])
        assert ipv4.checksum(message) == 0
        assert message[28:] == bytes.fromhex("1388005000080000")
        assert script.host.counters == StackCounters(dropped_protocol=1, icmp_sent=1)

    @pytest.mark.parametrize("source", ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"])
    def test_no_error_to_addresses_that_are_no_host(self, script: Script, source: str) -> None:
        """RFC 1122, section 3.2.2."""
        assert self.receive(script, ipv4.PROTOCOL_UDP, source=ipv4.address(source)) == []
        assert script.host.counters == StackCounters(dropped_not_ours=1)
        assert script.host.next_time() is None  # nor is an ARP request sent for its address

    def test_no_error_about_a_broadcast(self, script: Script) -> None:
        assert self.receive(script, ipv4.PROTOCOL_UDP, destination=ethernet.BROADCAST) == []
        assert len(self.receive(script, ipv4.PROTOCOL_UDP)) == 1

    def test_errors_are_limited_to_ten_a_second(self, script: Script) -> None:
        answers = 0
        for _ in range(100):
            answers += len(self.receive(script, ipv4.PROTOCOL_UDP))
            script.now += 0.01
        assert 9 <= answers <= 11
