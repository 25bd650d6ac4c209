"""Reconnecting after a failure, and the socket's state after its connection ended, between two real daemons."""

from __future__ import annotations

import errno
import os
import select
import struct
from collections.abc import Callable

import pytest

from softnic import socket
from tests.daemon.nics import WAIT_S, Nic, pair, read_all, running

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def write_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(1 << 16))


def test_a_descriptor_stays_registered_with_epoll_through_refused_connects(nics: list[Nic]) -> None:
    with nics[1].server() as reserved:
        address = reserved.getsockname()
    with socket.socket(nic=nics[0].path) as s, select.epoll() as epoll:
        s.setblocking(False)
        s.bind(("", 0))
        name = s.getsockname()
        epoll.register(s, select.EPOLLOUT)
        for _ in range(3):
            assert s.connect_ex(address) == errno.EINPROGRESS
            assert epoll.poll(WAIT_S) == [(s.fileno(), select.EPOLLOUT)]
            assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
            assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            assert s.connect_ex(("224.0.0.1", 9)) == errno.EHOSTUNREACH  # refused at once
            assert epoll.poll(0) == [(s.fileno(), select.EPOLLOUT)]
            assert s.connect_ex(("10.77.0.99", 0)) == errno.ECONNREFUSED
        with socket.create_server(address, nic=nics[1].path) as listening:
            assert s.connect_ex(address) == errno.EINPROGRESS
            assert epoll.poll(WAIT_S) == [(s.fileno(), select.EPOLLOUT)]
            assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            assert s.getsockname() == (nics[0].ip, name[1])
            accepted, peer = listening.accept()
            with accepted:
                assert peer == s.getsockname()
                s.send(b"the first bytes")
                assert read_all(accepted, 15) == b"the first bytes"
                epoll.modify(s, select.EPOLLIN)
                accepted.sendall(b"!")
                assert epoll.poll(WAIT_S) == [(s.fileno(), select.EPOLLIN)]


def test_an_unbound_socket_connects_after_refused_connects(nics: list[Nic]) -> None:
    with nics[1].server() as reserved:
        address = reserved.getsockname()
    with socket.socket(nic=nics[0].path) as s:
        s.settimeout(WAIT_S)
        for unreachable in (("224.0.0.1", 9), address, ("10.77.0.99", 0), address):
            with pytest.raises(OSError, match=unreachable[0]):
                s.connect(unreachable)
        with socket.create_server(address, nic=nics[1].path) as listening:
            s.connect(address)
            accepted, _ = listening.accept()
            with accepted:
                s.sendall(b"the first bytes")
                assert read_all(accepted, 15) == b"the first bytes"


def test_what_was_written_before_a_connect_never_arrives(nics: list[Nic]) -> None:
    """Also after a connect that was refused, by the NIC or by the peer."""
    with nics[1].server() as listening:
        for bound in (False, True):
            with socket.socket(nic=nics[0].path) as s:
                s.settimeout(WAIT_S)
                copy = os.dup(s.fileno())
                os.write(copy, b"junk")
                if bound:
                    s.bind((nics[0].ip, 0))
                for address in (("224.0.0.1", 9), (nics[1].ip, 9)):
                    with pytest.raises(OSError, match=address[0]):
                        s.connect(address)
                    os.write(copy, b"more")
                s.connect(listening.getsockname())
                accepted, _ = listening.accept()
                with accepted:
                    s.sendall(b"hello")
                    os.write(copy, b", too")
                    assert read_all(accepted, 10) == b"hello, too"
                os.close(copy)


def test_a_socket_waits_for_its_nic() -> None:
    """A connect that failed without a NIC succeeds once it runs."""
    with running(2) as nics:
        path = nics[0].path
        nics[0].stop()
        with nics[1].server() as listening, socket.socket(nic=path) as s, socket.socket(nic=path) as bound:
            calls: list[Callable[[], None]] = [lambda: s.connect(listening.getsockname()), lambda: bound.bind(("", 0))]
            for call in calls * 2:
                with pytest.raises(OSError, match="is softnicd running") as caught:
                    call()
                assert caught.value.errno == errno.ENETDOWN
            nics[0].start()
            bound.bind(("", 0))
            for opened in (s, bound):
                opened.settimeout(WAIT_S)
                opened.connect(listening.getsockname())
                accepted, peer = listening.accept()
                with accepted:
                    assert peer == opened.getsockname()
                    opened.sendall(b"the first bytes")
                    assert read_all(accepted, 15) == b"the first bytes"


def test_a_bound_socket_connects_when_its_nic_has_been_replaced() -> None:
    with running(2) as nics, nics[1].server() as listening, socket.socket(nic=nics[0].path) as s:
        s.bind(("", 0))
        port = s.getsockname()[1]
        nics[0].stop()
        nics[0].start()
        s.settimeout(WAIT_S)
        s.connect(listening.getsockname())
        accepted, peer = listening.accept()
        with accepted:
            assert peer == s.getsockname() == (nics[0].ip, port)
            s.sendall(b"the first bytes")
            assert read_all(accepted, 15) == b"the first bytes"


def test_a_connection_that_was_reset_has_no_peer_name(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a:
        b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        b.close()
        assert select.select([a], [], [], WAIT_S)[0]
        with pytest.raises(OSError, match="not connected") as caught:
            a.getpeername()
        assert caught.value.errno == errno.ENOTCONN
        with pytest.raises(ConnectionResetError):
            a.recv(1)
        assert a.getsockname()[0] == nics[0].ip


def test_a_half_closed_connection_has_a_peer_name(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with b, a:
        b.shutdown(socket.SHUT_WR)
        assert a.recv(1) == b""
        assert a.getpeername() == b.getsockname()
        assert b.getpeername() == a.getsockname()


def test_a_reader_that_has_shut_down_reads_the_end(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        b.sendall(b"early")
        assert select.select([a], [], [], WAIT_S)[0]
        a.shutdown(socket.SHUT_RD)
        assert a.recv(5) == b"early"
        assert a.recv(1) == b""
        a.sendall(b"still goes out")
        assert read_all(b, 14) == b"still goes out"
        b.sendall(b"not read" * 100_000)
        assert a.recv(1) == b""


def test_a_reset_behind_the_end_of_stream_is_an_error_for_writers(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a:
        b.sendall(b"last words")
        b.close()  # its end of stream; data sent from here on is answered by a reset
        assert read_all(a) == b"last words"
        with pytest.raises(BrokenPipeError, match=nics[1].ip):
            write_for_ever(a)
        assert a.recv(1) == b""
