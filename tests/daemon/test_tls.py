"""TLS over NICs: the idioms of ssl's documentation, and connection information of a wrapped socket."""

from __future__ import annotations

import errno
import os
import select
import socket as stdlib
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from softnic import codecs, socket
from tests.daemon.nics import WAIT_S, Nic, pair, read_all, until

FLOATS = np.random.default_rng(3).normal(0, 0.01, 4096).astype(np.float32)
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's and a client's context with anonymous keys, which need no certificates."""
    server_side, client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_side.check_hostname = False
    client_side.verify_mode = ssl.CERT_NONE
    for context in (server_side, client_side):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    return server_side, client_side


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Runs `work` in a thread during the block, and reraises its exception."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(WAIT_S)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


@contextmanager
def secured(nics: list[Nic]) -> Iterator[tuple[socket.SSLSocket, socket.SSLSocket]]:
    """Return both ends of a TLS connection between the first two nodes."""
    server_side, client_side = contexts()
    a, b = pair(nics)
    wrapped: list[ssl.SSLSocket] = []
    with beside(lambda: wrapped.append(server_side.wrap_socket(b, server_side=True))):
        opened = client_side.wrap_socket(a)
    accepted = wrapped[0]
    assert isinstance(opened, socket.SSLSocket)
    assert isinstance(accepted, socket.SSLSocket)
    with opened, accepted:
        yield opened, accepted


def test_a_socket_is_wrapped_before_it_connects(nics: list[Nic]) -> None:
    """The idiom of ssl's documentation, with a listening socket that is wrapped too."""
    server_side, client_side = contexts()

    def serve() -> None:
        accepted, peer = secure_listener.accept()
        with accepted:
            assert isinstance(accepted, socket.SSLSocket)
            assert accepted.getpeername() == peer
            accepted.sendall(read_all(accepted, 8)[::-1])

    with (
        server_side.wrap_socket(nics[1].server(), server_side=True) as secure_listener,
        client_side.wrap_socket(socket.socket(nic=nics[0].path)) as s,
        beside(serve),
    ):
        s.settimeout(WAIT_S)
        s.connect(secure_listener.getsockname())
        assert s.cipher() is not None
        s.sendall(b"to there")
        assert read_all(s, 8) == b"ereht ot"


def test_a_wrapped_socket_connects_without_blocking(nics: list[Nic]) -> None:
    server_side, client_side = contexts()
    with nics[1].server() as listening:
        raw = socket.socket(nic=nics[0].path)
        raw.setblocking(False)

        def serve() -> None:
            server_side.wrap_socket(listening.accept()[0], server_side=True).close()

        with client_side.wrap_socket(raw, do_handshake_on_connect=False) as s, beside(serve):
            assert s.connect_ex(listening.getsockname()) == errno.EINPROGRESS
            s.settimeout(WAIT_S)
            assert select.select([], [s], [], WAIT_S)[1]
            assert s.getpeername() == listening.getsockname()
            s.do_handshake()
            assert s.recv(1) == b""


def test_a_refused_connect_of_a_wrapped_socket_raises(nics: list[Nic]) -> None:
    with nics[1].server() as listening:
        address = listening.getsockname()
    with contexts()[1].wrap_socket(socket.socket(nic=nics[0].path)) as s:
        with pytest.raises(ConnectionRefusedError, match=address[0]):
            s.connect(address)
        assert s.connect_ex(address) == errno.ECONNREFUSED


def test_a_wrapped_socket_has_names_options_and_info(nics: list[Nic]) -> None:
    data = os.urandom(1_000_000)
    with secured(nics) as (a, b):
        assert a.getsockname() == b.getpeername()
        assert a.getpeername() == b.getsockname()
        assert nics[0].ip in repr(a)
        a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert a.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        with beside(lambda: a.sendall(data)):
            assert read_all(b, len(data)) == data
        until(lambda: socket.info(a).bytes_sent >= len(data))  # acknowledged
        assert a.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0] == 1


@pytest.mark.parametrize("codec", ["raw", "exact:32", "exact:16"])
def test_a_tagged_tls_stream_arrives_with_a_lossless_codec(nics: list[Nic], codec: str) -> None:
    """Also records whose length is no multiple of 4, which wait for nothing."""
    with secured(nics) as (a, b):
        a.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, codec)
        a.setsockopt(socket.SOL_NIC, socket.NIC_BLOCKS, 0)
        a.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
        for size in (1, 2, 3, 5, 100_001):
            data = os.urandom(size)
            a.sendall(data)
            assert read_all(b, size) == data
        assert socket.info(a).offload_original_bytes >= 100_000


def test_a_lossy_codec_on_a_tls_stream_is_detected_by_the_peer(nics: list[Nic]) -> None:
    with secured(nics) as (a, b):
        a.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
        a.sendall(os.urandom(4096))
        a.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)
        with pytest.raises(ssl.SSLError):
            read_all(b, 4096)


def test_floats_are_compressed_after_unwrap(nics: list[Nic]) -> None:
    with secured(nics) as (a, b):
        with beside(b.unwrap):
            a.unwrap()
        a.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
        a.sendall(FLOATS.tobytes())
        assert read_all(b, FLOATS.nbytes) == codecs.get("bounded:10").roundtrip(FLOATS).tobytes()
        assert socket.info(a).ratio > 2


def test_a_reset_is_an_error_where_ssl_does_not_suppress_it(nics: list[Nic]) -> None:
    calls: list[Callable[[socket.SSLSocket], object]]
    calls = [lambda s: s.recv(1), lambda s: s.recv_into(bytearray(1)), lambda s: s.unwrap()]
    for call in calls:
        with secured(nics) as (a, b):
            peer = a.getpeername()[0]
            a.suppress_ragged_eofs = False  # type: ignore[attr-defined]
            b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            b.close()
            with pytest.raises(ConnectionResetError, match=peer):
                call(a)


def test_a_reset_ends_reading_as_with_kernel_sockets(nics: list[Nic]) -> None:
    """OpenSSL's result of a failed read has no errno: ssl takes it for an end of stream without close_notify."""
    with secured(nics) as (a, b):
        b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        b.close()
        assert a.recv(1) == b""


def test_ssl_decides_about_an_end_of_stream_without_close_notify(nics: list[Nic]) -> None:
    with secured(nics) as (a, b):
        b.shutdown(socket.SHUT_RDWR)
        b.close()
        assert a.recv(1) == b""
    with secured(nics) as (a, b):
        b.shutdown(socket.SHUT_RDWR)
        b.close()
        a.suppress_ragged_eofs = False  # type: ignore[attr-defined]
        with pytest.raises(ssl.SSLEOFError):
            a.recv(1)


def test_wrapping_with_a_class_that_is_not_softnics_fails_immediately(nics: list[Nic]) -> None:
    class Own(ssl.SSLSocket):
        pass

    context = contexts()[1]
    context.sslsocket_class = Own
    with pytest.raises(OSError, match=r"\w"):
        context.wrap_socket(socket.socket(nic=nics[0].path))

    class Derived(socket.SSLSocket):
        pass

    context.sslsocket_class = Derived
    with nics[1].server() as listening, context.wrap_socket(socket.socket(nic=nics[0].path)) as s:
        s.settimeout(0.05)  # nobody answers the handshake
        with pytest.raises(TimeoutError):
            s.connect(listening.getsockname())
        assert isinstance(s, Derived)


def test_a_kernels_socket_is_wrapped_by_the_standard_ssl_class() -> None:
    server_side, client_side = contexts()
    left, right = stdlib.socketpair()
    with beside(lambda: server_side.wrap_socket(left, server_side=True).close()), client_side.wrap_socket(right) as s:
        assert type(s) is ssl.SSLSocket
