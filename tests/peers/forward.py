"""Relays between a NIC's sockets and its host's, for programs without softnic support."""

from __future__ import annotations

import contextlib
import errno
import socket as plain
import threading
from collections.abc import Callable, Iterator

from tests.hosts import HostedNic
from tests.peers.sides import LIMIT_S, Address

Connect = Callable[[], plain.socket]
_LOCAL = "127.0.0.1"


def inwards(nic: HostedNic, port: int) -> contextlib.AbstractContextManager[Address]:
    """Forwards a port of the NIC, which is yielded, to `port` on its host's loopback."""

    def connect() -> plain.socket:
        with nic.host.entered():
            return plain.create_connection((_LOCAL, port))

    return _relay(nic.server(), connect)


def outwards(nic: HostedNic, address: Address) -> contextlib.AbstractContextManager[Address]:
    """Forwards a port on the host's loopback, which is yielded, to `address` through the NIC."""
    with nic.host.entered():
        server = plain.create_server((_LOCAL, 0))
    return _relay(server, lambda: nic.connect(address))


@contextlib.contextmanager
def _relay(server: plain.socket, connect: Connect) -> Iterator[Address]:
    pipes: list[threading.Thread] = []
    ended = threading.Event()
    accepting = threading.Thread(target=_accept, args=(server, connect, pipes, ended))
    server.settimeout(0.05)
    accepting.start()
    try:
        yield server.getsockname()
    finally:
        ended.set()
        accepting.join()
        server.close()
        for pipe in pipes:
            pipe.join(LIMIT_S)
            assert not pipe.is_alive(), "a connection stands still"


def _accept(server: plain.socket, connect: Connect, pipes: list[threading.Thread], ended: threading.Event) -> None:
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            near = server.accept()[0]
            far = connect()
            for end in (near, far):
                end.settimeout(LIMIT_S)
            pipes.append(threading.Thread(target=_both_ways, args=(near, far), daemon=True))
            pipes[-1].start()


def _both_ways(near: plain.socket, far: plain.socket) -> None:
    with near, far:
        back = threading.Thread(target=_pipe, args=(far, near), daemon=True)
        back.start()
        _pipe(near, far)
        back.join()


def _pipe(source: plain.socket, target: plain.socket) -> None:
    """Copies from source to target; a reset on one side ends the other."""
    try:
        while part := source.recv(1 << 18):
            target.sendall(part)
        target.shutdown(plain.SHUT_WR)
    except OSError as error:
        if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
            raise
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(plain.SHUT_RDWR)
