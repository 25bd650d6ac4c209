"""The side that answers: `softnic doctor --listen`. One thread, one UDP and one TCP socket on the same port."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from softnic import underlay
from softnic.doctor.probes import ANY_VERSION, MAGIC, QUESTION_BYTES, Answer, Question, decode, encode, facts
from softnic.link.sockets import families_of, open_socket
from softnic.underlay import Address

MAX_TOKENS = 64
"""Runs remembered; the oldest is forgotten first."""
MAX_LINES = 16
"""TCP connections whose question has not come; the oldest makes room."""
LINE_S = 2.0
_LINE_BYTES = 4096
_BATCH = 64
"""Datagrams read before the TCP sockets are looked at."""
_SOL_UDP, _UDP_GRO = 17, 104
_PORT_TRIES = 32
"""Ports that the system gives for UDP, of which TCP may have none free."""


@dataclass(slots=True)
class ProbeCounters:
    """What a listener received."""

    questions: int = 0
    rejected: int = 0
    """Datagrams and connections that brought no question of this version."""


@dataclass(slots=True)
class _Counted:
    received: int = 0
    burst_bytes: int = 0
    burst_began: float = 0.0
    burst_ended: float = 0.0


class Responder:
    """Decides what is answered; sends nothing itself. `clock` returns seconds."""

    def __init__(
        self, key: bytes | None = None, version: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.counters = ProbeCounters()
        self._key, self._version, self._clock = key, version, clock
        self._counted: dict[str, _Counted] = {}

    def answer(self, datagram: bytes) -> bytes | None:
        """Return the answer to a datagram, which is never longer; None: there is none.

        Another version of this protocol gets the beginning of a message of this one, from which it learns that.
        """
        question: Question | None = decode(datagram, Question)
        if question is None:
            self.counters.rejected += 1
            is_other = datagram.startswith(ANY_VERSION) and not datagram.startswith(MAGIC)
            return MAGIC if is_other and len(datagram) >= QUESTION_BYTES else None
        self.counters.questions += 1
        counted = self._of(question.token)
        counted.received += 1
        if question.burst:
            self._count_burst(counted, len(datagram))
            return None
        answer = encode(self._answer(question, len(datagram)))
        if len(answer) > len(datagram):
            return None
        return answer.ljust(len(datagram) if question.echo else 0, b"\0")

    def answer_line(self, data: bytes) -> bytes | None:
        """Return the answer to what came by TCP, which counts no datagram; None: there is none."""
        question: Question | None = decode(data, Question)
        if question is None:
            self.counters.rejected += 1
            return MAGIC if data.startswith(ANY_VERSION) and not data.startswith(MAGIC) else None
        self.counters.questions += 1
        return encode(self._answer(question, 0))

    def _count_burst(self, counted: _Counted, size: int) -> None:
        now = self._clock()
        if not counted.burst_began:  # the first piece begins the interval and is not part of it
            counted.burst_began = counted.burst_ended = now
            return
        counted.burst_bytes += size
        counted.burst_ended = now

    def _answer(self, question: Question, size: int) -> Answer:
        counted = self._of(question.token)
        return Answer(
            token=question.token,
            number=question.number,
            size=size,
            received=counted.received,
            burst_bytes=counted.burst_bytes,
            burst_s=counted.burst_ended - counted.burst_began,
            facts=facts(self._key, question.nonce, self._version) if question.facts else None,
        )

    def _of(self, token: str) -> _Counted:
        counted = self._counted.get(token)
        if counted is None:
            if len(self._counted) >= MAX_TOKENS:
                del self._counted[next(iter(self._counted))]
            counted = self._counted[token] = _Counted()
        return counted


class ProbeListener:
    """Answers probes at an address until `serve` returns. Raises OSError if a port is in use."""

    def __init__(self, bind: Address, key: bytes | None = None, version: str = "") -> None:
        self._responder = Responder(key, version)
        self.counters = self._responder.counters
        self._lines: dict[socket.socket, float] = {}
        """TCP connections whose question has not come, the oldest first, each with its time limit."""
        self._udp, self._tcp = open_pair(bind)
        with contextlib.suppress(OSError):  # without GRO a burst comes as single datagrams
            self._udp.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        self._tcp.setblocking(False)

    @property
    def address(self) -> Address:
        """The address and port where it listens."""
        return underlay.of_socket(self._udp.getsockname())

    def serve(self, is_over: Callable[[], bool]) -> None:
        """Answer until `is_over` returns True, which is asked ten times a second."""
        while not is_over():
            for ready in select.select([self._udp, self._tcp, *self._lines], [], [], 0.1)[0]:
                if ready is self._udp:
                    self._answer_datagrams()
                elif ready is self._tcp:
                    self._accept()
                elif ready in self._lines:
                    self._answer_line(ready)
            for line in [line for line, limit in self._lines.items() if limit <= time.monotonic()]:
                self._reject(line)

    def close(self) -> None:
        """Close the sockets."""
        for each in (self._udp, self._tcp, *self._lines):
            each.close()

    def _answer_datagrams(self) -> None:
        for _ in range(_BATCH):
            try:
                datagram, peer = self._udp.recvfrom(1 << 16)
            except OSError:
                return
            if (answer := self._responder.answer(datagram)) is not None:
                with contextlib.suppress(OSError):
                    self._udp.sendto(answer, peer)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            line, _ = self._tcp.accept()
            line.setblocking(False)
            if len(self._lines) >= MAX_LINES:
                self._reject(next(iter(self._lines)))
            self._lines[line] = time.monotonic() + LINE_S

    def _answer_line(self, line: socket.socket) -> None:
        del self._lines[line]
        with line, contextlib.suppress(OSError):
            if (answer := self._responder.answer_line(line.recv(_LINE_BYTES))) is not None:
                line.sendall(answer)  # fits: nothing else was sent

    def _reject(self, line: socket.socket) -> None:
        self.counters.rejected += 1
        del self._lines[line]
        line.close()


def _listening_beside(udp: socket.socket) -> socket.socket:
    """Return a TCP socket that listens at the address and port of a UDP socket, for the same families."""
    both = len(families_of(udp)) > 1
    return socket.create_server(udp.getsockname(), family=udp.family, dualstack_ipv6=both)


def open_pair(bind: Address) -> tuple[socket.socket, socket.socket]:
    """Return a UDP and a TCP socket at one port, for port 0 one that is free for both. Raises OSError."""
    tries = 1 if bind[1] else _PORT_TRIES
    while True:
        udp = open_socket(bind)
        try:
            return udp, _listening_beside(udp)
        except OSError as error:
            udp.close()
            tries -= 1
            if error.errno != errno.EADDRINUSE or not tries:
                raise
