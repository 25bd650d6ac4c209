"""The side that asks a listener: questions by UDP and by TCP, and their answers."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from dataclasses import dataclass

from softnic import underlay
from softnic.doctor.probes import ANY_VERSION, MAGIC, QUESTION_BYTES, Answer, Question, decode, encode
from softnic.link.sockets import open_socket
from softnic.underlay import ANY, ANY_IPV4, IPV4, IPV6, Address

TRIES = 5
TRY_S = 0.3
"""Time to wait for an answer before the question is repeated."""
MIN_WAIT_S = 0.1
"""The same for packets of the search for the MTU; and at least four round trips."""
TCP_S = 3.0
MAX_PACKET = 9000 + 94
"""Bytes of the largest packet that a NIC sends, over IPv6 with a key."""
BURST_S = 0.3
BURST_BYTES = 256 << 20
"""Limits of one measurement."""
_CALL_BYTES = 65000
_MOST_SEGMENTS = 64
_MTU_DISCOVER = {IPV4: (socket.IPPROTO_IP, 10), IPV6: (socket.IPPROTO_IPV6, 23)}
_MTU = {IPV4: (socket.IPPROTO_IP, 14), IPV6: (socket.IPPROTO_IPV6, 24)}
"""IP_MTU_DISCOVER, IP_MTU, IPV6_MTU_DISCOVER and IPV6_MTU: level and option."""
_PMTUDISC_PROBE = 3
_SOL_UDP, _UDP_SEGMENT = 17, 103


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and the round trip."""

    answer: Answer
    round_trip_s: float


def answer_to(question: Question, size: int, datagram: bytes) -> Answer | None:
    """Return the answer to a question of `size` bytes; None: the datagram is not that.

    It names the question, the question's length and, if it is to be an echo, has it.
    """
    answer: Answer | None = decode(datagram, Answer)
    if answer is None or (answer.token, answer.number, answer.size) != (question.token, question.number, size):
        return None
    return answer if len(datagram) == size or not question.echo else None


def path_mtu(host: str) -> int:
    """Return the largest packet to a host that the kernel does not cut, as far as it knows: that of the interface, or
    what a router has reported. Raises OSError without a route."""
    family = underlay.family(host)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(underlay.socket_address((host, 9)))
        return probe.getsockopt(*_MTU[family])


class ProbeClient:
    """Asks the listener at `peer`, an IP address and port. Its datagrams are never fragmented. Raises OSError without a
    route."""

    def __init__(self, peer: Address, port: int = 0) -> None:
        self.peer = peer
        family = underlay.family(peer[0])
        any_host = ANY_IPV4 if family == IPV4 else ANY
        self._family = family
        self.headers = underlay.HEADERS[family]
        """Bytes of IP and UDP."""
        self.token = os.urandom(8).hex()
        self.nonce = os.urandom(16).hex()
        self._number = 0
        self.rejected = 0
        """Datagrams and replies by TCP that were no answers."""
        self.is_other_version = False
        """Whether the peer speaks another version of this protocol."""
        self.uses_wire_port = True
        """Whether the questions come from the port that a NIC would use; a NIC that runs has it."""
        try:
            self._udp = open_socket((any_host, port))
        except OSError:
            self.uses_wire_port = False
            self._udp = open_socket((any_host, 0))
        try:
            self._udp.setsockopt(*_MTU_DISCOVER[family], _PMTUDISC_PROBE)
            self._udp.connect(underlay.socket_address(peer))
        except OSError:
            self._udp.close()
            raise
        self.own_address = underlay.of_socket(self._udp.getsockname())[0]

    def close(self) -> None:
        """Close the socket."""
        self._udp.close()

    @property
    def interface_mtu(self) -> int:
        """The MTU of the interface towards the peer, or MAX_PACKET if that is less."""
        return min(MAX_PACKET, self._udp.getsockopt(*_MTU[self._family]))

    def ask(self, size: int = QUESTION_BYTES, *, echo: bool = False, wait_s: float = TRY_S) -> Reply | None:
        """Send a datagram of `size` bytes up to TRIES times, and return the answer, None if there is none.

        With `echo`, the answer has the same length; otherwise the peer's facts are asked for.
        """
        for _ in range(TRIES):
            self._number += 1
            question = Question(
                token=self.token, number=self._number, nonce=self.nonce, echo=echo, facts=size == QUESTION_BYTES
            )
            began = time.monotonic()
            with contextlib.suppress(OSError):  # larger than the interface's MTU, or an error of an earlier one
                self._udp.send(encode(question, size))
            if (reply := self._receive(question, size, began, began + wait_s)) is not None:
                return reply
        return None

    def _receive(self, question: Question, size: int, began: float, until: float) -> Reply | None:
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._udp], [], [], left)[0]:
                continue
            with contextlib.suppress(OSError):
                datagram = self._udp.recv(1 << 16)
                if (answer := answer_to(question, size, datagram)) is not None:
                    return Reply(answer, time.monotonic() - began)
                if decode(datagram, Answer) is None:  # and not a late one
                    self._reject(datagram)
        return None

    def _reject(self, data: bytes) -> None:
        self.rejected += 1
        if data.startswith(ANY_VERSION) and not data.startswith(MAGIC):
            self.is_other_version = True

    def ask_by_tcp(self) -> Answer | None:
        """Return the peer's facts and what it has counted; None: that is no listener. Raises OSError."""
        question = Question(token=self.token, nonce=self.nonce, facts=True)
        with socket.create_connection(self.peer, TCP_S) as connection:
            connection.sendall(encode(question))
            data = connection.recv(4096)
        answer: Answer | None = decode(data, Answer)
        if answer is None or answer.token != self.token:
            self._reject(data)
            return None
        return answer

    def burst(self, datagram: int) -> tuple[int, float]:
        """Send datagrams of this length for BURST_S, as many per call as GSO takes. Returns the bytes and the time."""
        one = encode(Question(token=self.token, burst=True), datagram)
        payload = one * max(1, min(_MOST_SEGMENTS, _CALL_BYTES // datagram))
        segment = [(_SOL_UDP, _UDP_SEGMENT, struct.pack("H", datagram))]
        sent, began = 0, time.monotonic()
        until = began + BURST_S
        while time.monotonic() < until and sent < BURST_BYTES:
            try:
                sent += self._udp.sendmsg([payload], segment)
            except BlockingIOError:
                select.select([], [self._udp], [], 0.01)
            except OSError:
                break
        return sent, time.monotonic() - began

    def path_mtu(self, round_trip_s: float) -> tuple[int, int]:
        """Return the largest packets that pass towards the peer, and towards it and back, bytes of IP."""
        wait_s = max(MIN_WAIT_S, 4 * round_trip_s)
        least = QUESTION_BYTES + self.headers
        there = self._largest(least, self.interface_mtu, wait_s, echo=False)
        return there, self._largest(least, there, wait_s, echo=True)

    def _largest(self, passes: int, most: int, wait_s: float, *, echo: bool) -> int:
        """Search between a size that passes and the largest that may, by halves."""
        tried = most
        while passes < most:
            if self.ask(tried - self.headers, echo=echo, wait_s=wait_s) is None:
                most = tried - 1
            else:
                passes = tried
            tried = (passes + most + 1) // 2
        return min(passes, most)
