"""The side that answers: `softnic doctor --listen`. One thread, one UDP and one TCP socket on the same port."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from softnic.doctor.probes import Answer, Question, decode, encode, facts
from softnic.link.sockets import Address, open_socket

MAX_TOKENS = 64
"""Runs remembered; the oldest is forgotten first."""
_LINE_BYTES = 4096
_LINE_S = 2.0
_BATCH = 64
"""Datagrams read before the TCP socket is looked at."""
_SOL_UDP, _UDP_GRO = 17, 104


@dataclass(slots=True)
class _Counted:
    received: int = 0
    burst_bytes: int = 0
    burst_began: float = 0.0
    burst_ended: float = 0.0


class ProbeListener:
    """Answers probes at an address until `serve` returns. Raises OSError if a port is in use."""

    def __init__(self, bind: Address, key: bytes | None = None, version: str = "") -> None:
        self._key, self._version = key, version
        self._counted: dict[str, _Counted] = {}
        self._udp = open_socket(bind)
        with contextlib.suppress(OSError):  # without GRO a burst comes as single datagrams
            self._udp.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        try:
            self._tcp = socket.create_server(self._udp.getsockname())
        except OSError:
            self._udp.close()
            raise

    @property
    def address(self) -> Address:
        """The address and port where it listens."""
        host, port = self._udp.getsockname()
        return host, port

    def serve(self, is_over: Callable[[], bool]) -> None:
        """Answer until `is_over` returns True, which is asked ten times a second."""
        while not is_over():
            for ready in select.select([self._udp, self._tcp], [], [], 0.1)[0]:
                if ready is self._tcp:
                    self._answer_line()
                else:
                    self._answer_datagrams()

    def close(self) -> None:
        """Close the sockets."""
        self._udp.close()
        self._tcp.close()

    def _answer_datagrams(self) -> None:
        for _ in range(_BATCH):
            try:
                datagram, peer = self._udp.recvfrom(1 << 16)
            except OSError:
                return
            question: Question | None = decode(datagram, Question)
            if question is None:
                continue
            counted = self._of(question.token)
            counted.received += 1
            if question.burst:
                self._count_burst(counted, len(datagram))
                continue
            answer = encode(self._answer(question, len(datagram)))
            if len(answer) <= len(datagram):
                with contextlib.suppress(OSError):
                    self._udp.sendto(answer.ljust(len(datagram) if question.echo else 0, b"\0"), peer)

    def _count_burst(self, counted: _Counted, size: int) -> None:
        now = time.monotonic()
        if not counted.burst_began:  # the first piece begins the interval and is not part of it
            counted.burst_began = counted.burst_ended = now
            return
        counted.burst_bytes += size
        counted.burst_ended = now

    def _answer_line(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._tcp.accept()
            with connection:
                connection.settimeout(_LINE_S)
                question: Question | None = decode(connection.recv(_LINE_BYTES), Question)
                if question is not None:
                    connection.sendall(encode(self._answer(question, 0)))

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
