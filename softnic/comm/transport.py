"""How the connections of a communicator are made and handed to the NIC."""

from __future__ import annotations

import errno
import socket as stdlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import softnic.socket
from softnic.comm.heartbeat import Heartbeat, shared_heartbeat
from softnic.comm.messages import CHANNELS, CONTROL, DATA, ENGINE_CONTROL, PLAIN, TAGGED
from softnic.ipc import control, regions, socket_state
from softnic.ipc.regions import Region

TAG = 0x28
"""The type of service that selects compression (INCEPTIONN, section VI)."""
USER_TIMEOUT_MS = 3000
"""A peer that acknowledges nothing for this long is dead: every rank learns of it within 5 s."""
KEEPALIVE_S = (1, 1, 2)
"""Idle seconds, seconds between probes, number of probes, for a connection that has nothing to send."""


@dataclass(frozen=True)
class NicConnection:
    """A NIC that has joined a communicator."""

    connection: stdlib.socket
    """The work queue's socket (softnic/ipc/work_queue.py), non-blocking."""
    number: Callable[[Region], int]
    """Returns the NIC's number of a region of registered memory. Raises OSError."""
    heartbeat: Heartbeat | None = None
    """The one that this process has for this NIC, to be released."""
    path: str = ""
    """The NIC's control socket; empty: it has none."""


class Transport:
    """Makes the connections of ranks. `module` is shaped like the standard library's `socket`; `nic` is the path of a
    NIC's control socket, None: the one that the module finds itself."""

    def __init__(self, module: Any = None, nic: str | None = None) -> None:
        self._module = softnic.socket if module is None else module
        self._nic = {} if nic is None else {"nic": nic}

    def address(self) -> str:
        """Return the address of listening sockets: the NIC's own. Raises OSError."""
        if self._module is not softnic.socket:
            return "127.0.0.1"
        with self._socket() as unused:
            return socket_state.client(socket_state.stream_of(unused.fileno()).path).info().ip

    def nic_counters(self) -> dict[str, int]:
        """Return the counters of this rank's NIC; empty: it has none. Raises OSError."""
        if self._module is not softnic.socket:
            return {}
        with self._socket() as unused:
            return socket_state.client(socket_state.stream_of(unused.fileno()).path).stats().counters

    def queues(self) -> int:
        """Return the number of queues of this rank's NIC, and so of its lanes; 1: it has none. Raises OSError."""
        if self._module is not softnic.socket:
            return 1
        with self._socket() as unused:
            return socket_state.client(socket_state.stream_of(unused.fileno()).path).info().queues

    def _socket(self) -> stdlib.socket:
        made: stdlib.socket = self._module.socket(stdlib.AF_INET, stdlib.SOCK_STREAM, **self._nic)
        return made

    def listen(self, address: tuple[str, int], backlog: int) -> stdlib.socket:
        """Return a non-blocking listening socket. Raises OSError."""
        listener = self._socket()
        try:
            listener.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(backlog)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        return listener

    def connect(self, address: tuple[str, int], lane: int = 0) -> stdlib.socket:
        """Start to connect; the socket becomes writable on success and failure. What is on one lane is on one queue of
        each NIC. Raises OSError."""
        connection = self._socket()
        try:
            connection.setblocking(False)
            self.prepare(connection)
            if self._module is softnic.socket:
                connection.setsockopt(control.SOL_NIC, control.NIC_LANE, lane)
            error = connection.connect_ex(address)
            if error not in (0, errno.EINPROGRESS):
                raise OSError(error, f"cannot connect to {address[0]}:{address[1]}")
        except BaseException:
            connection.close()
            raise
        return connection

    def prepare(self, connection: stdlib.socket) -> None:
        """Set the options of every connection between ranks."""
        connection.setblocking(False)
        connection.setsockopt(stdlib.IPPROTO_TCP, stdlib.TCP_NODELAY, 1)

    def keep_alive(self, connection: stdlib.socket) -> None:
        """Detect a dead peer. The NIC probes only one of the two to a rank (softnicd/relieved_connection.py).

        Only for CONTROL and ENGINE_CONTROL: a peer that is alive takes their few bytes soon, while a data connection
        may make no progress for as long as the peer computes.
        """
        connection.setsockopt(stdlib.IPPROTO_TCP, stdlib.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        connection.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_KEEPALIVE, 1)
        for option, value in zip(
            (stdlib.TCP_KEEPIDLE, stdlib.TCP_KEEPINTVL, stdlib.TCP_KEEPCNT), KEEPALIVE_S, strict=True
        ):
            connection.setsockopt(stdlib.IPPROTO_TCP, option, value)

    def default_codec(self, connection: stdlib.socket) -> str:
        """Return the codec of the NIC's table for compressed streams; empty: none."""
        connection.setsockopt(stdlib.IPPROTO_IP, stdlib.IP_TOS, TAG)
        return str(self.info(connection).codec)

    def info(self, connection: stdlib.socket) -> control.StreamInfo:
        """Return what the NIC knows of a connection. Raises OSError."""
        found: control.StreamInfo = self._module.info(connection)
        return found

    def min_rtt(self, connection: stdlib.socket) -> float:
        """Return the least round trip of a connection in seconds; 0: it has no NIC. Raises OSError."""
        return self.info(connection).min_rtt if self._module is softnic.socket else 0.0

    def join(
        self,
        place: tuple[int, int],
        channels: Sequence[Mapping[int, stdlib.socket]],
        process: Mapping[int, stdlib.socket] | None = None,
        lanes: Sequence[tuple[Mapping[int, stdlib.socket], Mapping[int, stdlib.socket]]] = (),
    ) -> NicConnection:
        """Hand the NIC this rank's ENGINE_CONTROL, DATA, PLAIN and TAGGED connections, each by rank.

        `place`: this rank, and the number of ranks, of which some may be connected later (`connect_rank`).

        `process`: the CONTROL ones, which stay the process's and are not probed while ENGINE_CONTROL is. `lanes`: those
        of further lanes, as ENGINE_CONTROL and DATA.

        Raises OSError, and ValueError if they are not a NIC's.
        """
        if self._module is not softnic.socket:
            raise ValueError("NICs execute collectives, and these connections are not a NIC's")
        path = socket_state.stream_of(next(iter(channels[0].values())).fileno()).path
        rank, size = place
        numbers = [_numbers(by_rank, size) for by_rank in [*channels, *([process] if process else ())]]
        fields = dict(zip(("control", "data", "messages", "compressed", "process"), numbers, strict=False))
        further = [(_numbers(words, size), _numbers(data, size)) for words, data in lanes]
        ours, nics = stdlib.socketpair(stdlib.AF_UNIX, stdlib.SOCK_SEQPACKET)
        try:
            socket_state.client(path).call(control.Join(rank, **fields, lanes=further), nics.fileno())
            ours.setblocking(False)
            number = partial(regions.number, path=path)
            return NicConnection(ours, number, shared_heartbeat(path, time.monotonic()), path)
        except BaseException:
            ours.close()
            raise
        finally:
            nics.close()

    def connect_rank(self, beside: stdlib.socket, rank: int, connections: Sequence[stdlib.socket]) -> None:
        """Hand the NIC the connections to one more rank, by channel. `beside` is one that it has. Raises OSError."""
        first = [connections[kind] for kind in (ENGINE_CONTROL, DATA, PLAIN, TAGGED)]
        further = connections[CHANNELS:]
        request = control.ConnectRank(
            _stream(beside),
            rank,
            [_stream(each) for each in first],
            _stream(connections[CONTROL]),
            [(_stream(words), _stream(data)) for words, data in zip(further[::2], further[1::2], strict=True)],
        )
        socket_state.client(socket_state.stream_of(beside.fileno()).path).call(request)

    def start_rank(self, first: stdlib.socket) -> None:
        """Have the NIC use the connections to a rank, of which `first` is the ENGINE_CONTROL one. Raises OSError."""
        request = control.StartRank(_stream(first))
        socket_state.client(socket_state.stream_of(first.fileno()).path).call(request)


def _numbers(by_rank: Mapping[int, stdlib.socket], size: int) -> list[int]:
    """Return the numbers of the NIC's streams below connections, by rank; 0 where there is none."""
    return [_stream(by_rank[rank]) if rank in by_rank else 0 for rank in range(size)]


def _stream(connection: stdlib.socket) -> int:
    return socket_state.stream_of(connection.fileno()).stream
