"""Socket options and ports persist over failed connects and are shared by duplicated descriptors."""

from __future__ import annotations

import errno
import select
import struct

import numpy as np
import pytest

from softnic import codecs, socket
from tests.daemon.nics import WAIT_S, Nic, pair, read_all, running, until

QUICK_ON_LINKS = {
    "test_options_set_before_and_during_a_connect_apply_from_the_first_byte",
    "test_a_send_buffer_set_before_or_during_a_connect_is_that_of_the_connection",
    "test_receiving_zero_bytes_keeps_a_pending_error",
}

GRADIENT = np.random.default_rng(3).normal(0, 0.01, 5000).astype(np.float32)
COMPRESSED = codecs.get("bounded:10").roundtrip(GRADIENT).tobytes()
TOS = socket.IPPROTO_IP, socket.IP_TOS
SEND_BUFFER = socket.SOL_SOCKET, socket.SO_SNDBUF


def settled(connecting: socket.socket) -> object:
    """Wait for a connect to complete; return its errno."""
    poll = select.poll()
    poll.register(connecting, select.POLLOUT)
    assert poll.poll(WAIT_S * 1000)
    return connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


@pytest.mark.parametrize("when", ["before", "during"])
def test_options_set_before_and_during_a_connect_apply_from_the_first_byte(nics: list[Nic], when: str) -> None:
    with nics[1].server() as listening, socket.socket(nic=nics[0].path) as s:
        s.setblocking(False)
        if when == "before":
            s.setsockopt(*TOS, 0x28)
        assert s.connect_ex(listening.getsockname()) == errno.EINPROGRESS
        if when == "during":
            s.setsockopt(*TOS, 0x28)
        assert settled(s) == 0
        s.settimeout(WAIT_S)
        assert s.getsockopt(*TOS) == 0x28
        accepted, _ = listening.accept()
        with accepted:
            s.sendall(GRADIENT.tobytes())
            assert read_all(accepted, GRADIENT.nbytes) == COMPRESSED
            assert accepted.getsockopt(*TOS) == 0, "each end has its own"


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_send_buffer_set_before_or_during_a_connect_is_that_of_the_connection(nics: list[Nic], when: str) -> None:
    with nics[1].server() as listening, socket.socket(nic=nics[0].path) as s:
        s.setblocking(False)
        if when == "before":
            s.setsockopt(*SEND_BUFFER, 50_000)
            assert s.getsockopt(*SEND_BUFFER) == 100_000, "the kernel doubles it"
        assert s.connect_ex(listening.getsockname()) == errno.EINPROGRESS
        if when == "during":
            s.setsockopt(*SEND_BUFFER, 50_000)
        assert settled(s) == 0
        assert s.getsockopt(*SEND_BUFFER) == 100_000
        listening.accept()[0].close()


def test_a_send_buffer_set_during_a_connect_does_not_make_the_socket_writable(nics: list[Nic]) -> None:
    with socket.socket(nic=nics[0].path) as s:
        s.setblocking(False)
        assert s.connect_ex(("10.77.0.99", 9)) == errno.EINPROGRESS  # ARP takes seconds to fail
        s.setsockopt(*SEND_BUFFER, 1_000_000)
        assert select.select([], [s], [], 0)[1] == []


def test_an_accepted_socket_inherits_options_and_may_change_them(nics: list[Nic]) -> None:
    with nics[1].server() as listening:
        listening.setsockopt(*SEND_BUFFER, 40_000)
        listening.setsockopt(*TOS, 0x10)
        with nics[0].connect(listening.getsockname()) as opened:
            first, _ = listening.accept()
            with first:
                assert (first.getsockopt(*SEND_BUFFER), first.getsockopt(*TOS)) == (80_000, 0x10)
                first.setsockopt(*TOS, 0x28)
                assert (listening.getsockopt(*TOS), socket.info(first).tos) == (0x10, 0x28)
                assert opened.getsockopt(*SEND_BUFFER) > 80_000


def test_all_descriptors_of_a_stream_share_its_options(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b, a.dup() as second, socket.fromfd(a.fileno(), a.family, a.type) as third:
        second.setsockopt(*TOS, 0x28)
        third.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for each in (a, second, third):
            assert each.getsockopt(*TOS) == 0x28
            assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        third.sendall(GRADIENT.tobytes())
        assert read_all(b, GRADIENT.nbytes) == COMPRESSED


def test_a_second_connect_has_the_port_and_the_options_of_the_first(nics: list[Nic]) -> None:
    with nics[1].server() as listening:
        address = listening.getsockname()
    with socket.socket(nic=nics[0].path) as s, socket.socket(nic=nics[0].path) as other:
        s.settimeout(WAIT_S)
        s.setsockopt(*TOS, 0x28)
        s.setsockopt(*SEND_BUFFER, 50_000)
        s.bind((nics[0].ip, 0))
        name = s.getsockname()
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                s.connect(address)
            assert s.getsockname() == name
        with socket.create_server(address, nic=nics[1].path) as again:
            s.connect(address)
            accepted, peer = again.accept()
            with accepted:
                assert peer == name == s.getsockname()
                assert s.getsockopt(*SEND_BUFFER) == 100_000
                s.sendall(GRADIENT.tobytes())
                assert read_all(accepted, GRADIENT.nbytes) == COMPRESSED
        with pytest.raises(OSError, match="in use") as caught:
            other.bind(name)
        assert caught.value.errno == errno.EADDRINUSE


def test_a_bound_socket_keeps_its_port_on_a_restarted_nic() -> None:
    with running(2) as couple, couple[1].server() as listening, socket.socket(nic=couple[0].path) as s:
        s.settimeout(WAIT_S)
        s.bind((couple[0].ip, 0))
        name = s.getsockname()
        couple[0].stop()
        couple[0].start()
        s.connect(listening.getsockname())
        accepted, peer = listening.accept()
        with accepted:
            assert peer == name == s.getsockname()


def test_a_connect_without_a_nic_leaves_no_data_for_the_next() -> None:
    with running(2) as couple, couple[1].server() as listening:
        couple[0].stop()
        with socket.socket(nic=couple[0].path) as s:
            s.settimeout(WAIT_S)
            for _ in range(2):
                with pytest.raises(OSError, match="softnicd running") as caught:
                    s.connect(listening.getsockname())
                assert caught.value.errno == errno.ENETDOWN
            couple[0].start()
            s.connect(listening.getsockname())
            s.sendall(b"own bytes")
            accepted, _ = listening.accept()
            accepted.settimeout(WAIT_S)
            s.shutdown(socket.SHUT_WR)
            with accepted:
                assert read_all(accepted) == b"own bytes"


def test_a_refused_connect_leaves_no_data_for_the_next(nics: list[Nic]) -> None:
    with nics[1].server() as listening, socket.socket(nic=nics[0].path) as s:
        s.settimeout(WAIT_S)
        for _ in range(2):
            with pytest.raises(OSError, match="one host"):
                s.connect(("224.0.0.1", 9))
        s.connect(listening.getsockname())
        s.sendall(b"own bytes")
        s.shutdown(socket.SHUT_WR)
        accepted, _ = listening.accept()
        with accepted:
            assert read_all(accepted) == b"own bytes"


def test_connect_ex_returns_the_errno_of_a_timeout(nics: list[Nic]) -> None:
    with socket.socket(nic=nics[0].path) as s:
        s.settimeout(0.05)
        assert s.connect_ex(("10.77.0.97", 9)) == errno.EAGAIN


def test_a_receive_after_a_failed_one(nics: list[Nic]) -> None:
    with nics[1].server() as listening, socket.socket(nic=nics[0].path) as s:
        with pytest.raises(OSError, match="not connected"):
            s.recv(1)
        s.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            s.settimeout(0.01)
            with pytest.raises(TimeoutError):
                s.recv(1)
            s.setblocking(False)
            with pytest.raises(BlockingIOError):
                s.recv_into(bytearray(3))
            s.settimeout(WAIT_S)
            accepted.sendall(b"late")
            assert read_all(s, 4) == b"late"
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with pytest.raises(ConnectionResetError):
            s.recv(1)
        assert [s.recv(1), s.recv(0), s.recvmsg(5)[0], s.recv_into(bytearray(1))] == [b"", b"", b"", 0]


def test_receiving_zero_bytes_keeps_a_pending_error(nics: list[Nic]) -> None:
    """An empty result of recv(0) is not the end of the stream."""
    a, b = pair(nics)
    with a:
        assert a.recv(0) == b""
        b.sendall(b"xy")
        assert read_all(a, 1) == b"x"
        assert a.recv(0) == b""
        assert a.recv(1) == b"y"
        b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        b.close()
        until(lambda: socket.info(a).error == errno.ECONNRESET)
        assert a.recv(0) == b""
        with pytest.raises(ConnectionResetError):
            a.recv(1)
