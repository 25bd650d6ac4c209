"""Options of the kernel's TCP and IP on a NIC's sockets: SO_REUSEPORT, SO_LINGER with seconds, TCP_CORK and others."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from softnic import socket
from tests.daemon.nics import WAIT_S, Nic, pair, paused, read_all, running, until


@pytest.fixture(scope="module")
def nics() -> Iterator[list[Nic]]:
    with running(2) as nics:
        yield nics


def listening(nic: Nic, port: int = 0, *, reuse_port: bool = False) -> socket.socket:
    server = socket.create_server((nic.ip, port), nic=nic.path, reuse_port=reuse_port)
    server.settimeout(WAIT_S)
    return server


class TestReusePort:
    def test_listeners_share_a_port_and_its_connections(self, nics: list[Nic]) -> None:
        with listening(nics[1], reuse_port=True) as first:
            port = first.getsockname()[1]
            with listening(nics[1], port, reuse_port=True) as second, contextlib.ExitStack() as stack:
                for _ in range(24):
                    stack.enter_context(socket.create_connection((nics[1].ip, port), WAIT_S, nic=nics[0].path))
                counts = [accepted(stack, server) for server in (first, second)]
            assert min(counts) > 0
            assert sum(counts) == 24

    def test_all_have_to_share_it(self, nics: list[Nic]) -> None:
        with listening(nics[1], reuse_port=True) as first, pytest.raises(OSError, match="in use") as refused:
            listening(nics[1], first.getsockname()[1])
        assert refused.value.errno == errno.EADDRINUSE
        with listening(nics[1]) as alone, pytest.raises(OSError, match="in use"):
            listening(nics[1], alone.getsockname()[1], reuse_port=True)

    def test_a_port_is_free_once_all_have_closed_it(self, nics: list[Nic]) -> None:
        with listening(nics[1], reuse_port=True) as first:
            port = first.getsockname()[1]
            listening(nics[1], port, reuse_port=True).close()
            with socket.create_connection((nics[1].ip, port), WAIT_S, nic=nics[0].path):
                first.accept()[0].close()
        listening(nics[1], port).close()


def accepted(stack: contextlib.ExitStack, server: socket.socket) -> int:
    """Accept all connections that wait; return their number."""
    server.settimeout(0.5)
    count = 0
    with contextlib.suppress(TimeoutError):
        while True:
            stack.enter_context(server.accept()[0])
            count += 1
    return count


class TestLinger:
    def test_close_returns_when_the_peer_has_acknowledged_everything(self, nics: list[Nic]) -> None:
        a, b = pair(nics)
        with b:
            a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
            assert struct.unpack("ii", a.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (1, 60)
            data = os.urandom(20 << 20)  # more than all buffers hold
            a.sendall(data[: 1 << 20])
            reader = threading.Thread(target=lambda: got.append(read_all(b)))
            got: list[bytes] = []
            reader.start()
            a.sendall(data[1 << 20 :])
            a.close()
            reader.join(WAIT_S)
        assert got == [data]

    def test_close_gives_up_after_the_time(self, nics: list[Nic]) -> None:
        a, b = pair(nics)
        with b, paused(nics[1]):
            a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1))
            a.sendall(b"nobody acknowledges this")
            begun = time.monotonic()
            a.close()
            assert 0.9 < time.monotonic() - begun < WAIT_S

    def test_a_duplicate_keeps_the_connection_open(self, nics: list[Nic]) -> None:
        a, b = pair(nics)
        with b, a.dup() as other:
            a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1000))
            a.close()
            other.sendall(b"still open")
            assert read_all(b, 10) == b"still open"
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))


def test_a_cork_holds_a_short_segment_back_until_it_is_removed(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        a.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        begun = time.monotonic()
        a.sendall(b"head")
        assert read_all(b, 4) == b"head"
        assert time.monotonic() - begun > 0.15, "200 ms, as in Linux"
        a.sendall(b"er")
        a.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        assert read_all(b, 2) == b"er"
        a.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        a.sendall(bytes(1 << 20))
        a.shutdown(socket.SHUT_WR)
        assert len(read_all(b)) == 1 << 20


def test_a_deferred_connection_is_accepted_when_it_has_data(nics: list[Nic]) -> None:
    with listening(nics[1]) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1000)
        with (
            socket.create_connection(server.getsockname(), nic=nics[0].path) as silent,
            socket.create_connection(server.getsockname(), nic=nics[0].path) as client,
        ):
            client.sendall(b"request")
            accepted, peer = server.accept()
            with accepted:
                assert peer == client.getsockname()
                assert accepted.recv(7) == b"request"
            silent.sendall(b"late")
            accepted, peer = server.accept()
            with accepted:
                assert peer == silent.getsockname()


def test_a_deferred_connection_is_accepted_after_the_time(nics: list[Nic]) -> None:
    with listening(nics[1]) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        with socket.create_connection(server.getsockname(), nic=nics[0].path):
            begun = time.monotonic()
            server.accept()[0].close()
            assert time.monotonic() - begun > 0.5


def test_maxseg_limits_both_directions(nics: list[Nic]) -> None:
    with listening(nics[1]) as server, socket.socket(nic=nics[0].path) as client:
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) == 536
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 600)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            for end in (client, accepted):
                assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) == 600 - 12  # timestamps
                end.sendall(bytes(100_000))
            assert len(read_all(client, 100_000)) == len(read_all(accepted, 100_000)) == 100_000
            assert socket.info(client).wire_bytes_sent > 100_000 / 588 * 640
        with pytest.raises(OSError, match="max_segment is a number from 88 to 32767"):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1)


@pytest.mark.parametrize("name", ["TCP_QUICKACK", "TCP_CORK", "TCP_DEFER_ACCEPT"])
def test_an_option_is_read_as_it_was_set(nics: list[Nic], name: str) -> None:
    a, b = pair(nics)
    with a, b:
        option = getattr(socket, name)
        assert a.getsockopt(socket.IPPROTO_TCP, option) == 0
        a.setsockopt(socket.IPPROTO_TCP, option, 1)
        assert a.getsockopt(socket.IPPROTO_TCP, option) == 1
        a.setsockopt(socket.IPPROTO_TCP, option, 0)
        a.sendall(b"x")
        assert b.recv(1) == b"x"


def test_the_time_to_live_is_read_as_it_was_set(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        assert a.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 64
        a.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 3)
        assert a.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 3
        a.sendall(b"x")
        assert b.recv(1) == b"x"
        a.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, -1)
        assert a.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 64
        for value in (0, 256):
            with pytest.raises(OSError, match="ttl is a number from 1 to 255"):
                a.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, value)


def test_urgent_data_is_refused_by_name(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        for call in (
            lambda: a.send(b"!", socket.MSG_OOB),
            lambda: a.sendmsg([b"!"], [], socket.MSG_OOB),
            lambda: a.recv(1, socket.MSG_OOB),
            lambda: a.recv_into(bytearray(1), 1, socket.MSG_OOB),
        ):
            with pytest.raises(OSError, match="MSG_OOB") as refused:
                call()
            assert refused.value.errno == errno.EOPNOTSUPP


def test_what_arrived_before_a_reset_can_be_read(nics: list[Nic]) -> None:
    """More than the descriptor holds: the rest waits in the NIC."""
    a, b = pair(nics)
    with b:
        data = b""
        with a:
            while not socket.info(b).receive_queue:
                data += os.urandom(1 << 14)
                a.sendall(data[-(1 << 14) :])
                until(lambda: socket.info(a).send_queue == 0)
            a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: socket.info(b).state == "CLOSED")
        with pytest.raises(ConnectionResetError):
            b.send(b"x")
        assert read_all(b, len(data)) == data
        with pytest.raises(ConnectionResetError):
            b.recv(1)


@pytest.mark.parametrize(
    ("level", "name", "default", "value", "kept"),
    [
        (socket.IPPROTO_TCP, socket.TCP_SYNCNT, 6, 3, 3),
        (socket.IPPROTO_TCP, socket.TCP_LINGER2, 60, 200, 120),
        (socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, 0, 1, 1152),
        (socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 0, 1 << 20, 1 << 20),
        (socket.IPPROTO_IP, 10, 1, 2, 2),  # IP_MTU_DISCOVER
        (socket.IPPROTO_IP, 11, 0, 255, 1),  # IP_RECVERR
    ],
)
def test_options_without_effect_are_kept(
    nics: list[Nic], level: int, name: int, default: int, value: int, kept: int
) -> None:
    with socket.socket(nic=nics[0].path) as s:
        assert s.getsockopt(level, name) == default
        s.setsockopt(level, name, value)
        assert s.getsockopt(level, name) == kept
        s.bind((nics[0].ip, 0))  # the NIC has it now
        assert s.getsockopt(level, name) == kept
        with socket.socket(fileno=os.dup(s.fileno()), nic=nics[0].path) as same:
            assert same.getsockopt(level, name) == kept
    with socket.socket(nic=nics[0].path) as s, pytest.raises(OSError, match="syn_count is a number from 1 to 127"):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 0)
