"""Closing a connection with unsent data: all written bytes arrive first, on any link."""

from __future__ import annotations

import contextlib
import errno
import os
import socket as plain
import struct

import pytest

from softnic import socket
from softnic.ipc import control
from tests.daemon.nics import WAIT_S, Nic, pair, paused, read_all, running, until

QUICK_ON_LINKS = {
    "test_written_bytes_arrive_although_the_writer_left_data_unread",
    "test_leaving_bytes_unread_resets_if_nothing_is_in_flight",
    "test_a_reset_on_close_does_not_wait_for_written_data",
}


def test_written_bytes_arrive_although_the_writer_left_data_unread(nics: list[Nic]) -> None:
    """They are not discarded by a reset, although RFC 1122 (section 4.2.2.13) asks for one."""
    data = os.urandom(300_000)
    a, b = pair(nics)
    with b:
        with a:
            b.sendall(b"nobody reads this")
            until(lambda: socket.info(a).bytes_received > 0)
            a.sendall(data)
        assert read_all(b) == data


def test_leaving_bytes_unread_resets_if_nothing_is_in_flight(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with b:
        with a:
            b.sendall(b"nobody reads this")
            until(lambda: socket.info(a).bytes_received > 0)
        with pytest.raises(ConnectionResetError):
            b.recv(1)


def test_leaving_bytes_unread_that_the_nic_still_holds_resets(nics: list[Nic]) -> None:
    """The bytes did not fit into the descriptor and wait in TCP."""
    a, b = pair(nics)
    with b:
        with a:
            b.setblocking(False)
            until(lambda: waits_in_tcp(a, b))
        b.settimeout(WAIT_S)
        with pytest.raises(ConnectionResetError):
            b.recv(1)


def test_leaving_bytes_unread_resets_although_the_descriptor_is_empty(nics: list[Nic]) -> None:
    """The program closes before the NIC has moved what waits in TCP."""
    a, b = pair(nics)
    with b:
        with a:
            b.setblocking(False)
            until(lambda: waits_in_tcp(a, b))
            a.setblocking(False)
            with paused(nics[0]), contextlib.closing(a):
                assert drained(a) > 0
        b.settimeout(WAIT_S)
        with pytest.raises(ConnectionResetError):
            b.recv(1)


def drained(connection: socket.socket) -> int:
    """Read all available bytes from the descriptor; return their number."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while part := connection.recv(1 << 20):
            count += len(part)
    return count


def waits_in_tcp(reader: socket.socket, writer: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        writer.send(bytes(1 << 16))
    return socket.info(reader).receive_queue > 0


def test_a_reset_on_close_does_not_wait_for_written_data(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with b:
        with a:
            a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            a.sendall(bytes(300_000))
        with pytest.raises(ConnectionResetError):
            read_all(b)


def test_data_after_shutdown_of_reading_is_discarded(nics: list[Nic]) -> None:
    """The peer is never blocked, however much it writes."""
    a, b = pair(nics)
    with a, b:
        a.shutdown(socket.SHUT_RD)
        b.sendall(bytes(24 << 20))  # more than all buffers hold
        a.sendall(b"the other way is open")
        assert read_all(b, 21) == b"the other way is open"


def test_end_of_stream_reaches_a_program_that_kept_the_nics_descriptor(nics: list[Nic]) -> None:
    """By mistake, or because it forked before it handed the descriptor over."""
    with nics[1].server() as listening, nics[0].client() as client:
        ours, nics_end = plain.socketpair()
        with ours, nics_end:
            ours.settimeout(WAIT_S)
            client.call(control.Connect(*listening.getsockname()), nics_end.fileno())
            accepted, _ = listening.accept()
            with accepted:
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert ours.recv(1) == b""
            with pytest.raises(BrokenPipeError):
                ours.send(b"x")


KEEPALIVE = [(socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 1)]


@pytest.mark.parametrize("option", ["keepalive", "user timeout"])
def test_a_silent_peer_ends_a_connection_by_its_socket_options(option: str) -> None:
    """Not when the NIC's own peer timeout expires, which is off here."""
    with running(2, "--peer-timeout", "off", "--watchdog", "off") as nics:
        a, b = pair(nics)
        with a, b:
            if option == "keepalive":
                for name, value in KEEPALIVE:
                    a.setsockopt(socket.IPPROTO_TCP, name, value)
                a.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            else:
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000)
            with paused(nics[1]):
                if option == "user timeout":
                    a.sendall(b"nobody acknowledges this")
                with pytest.raises(OSError, match=nics[1].ip) as caught:
                    a.recv(1)
                assert caught.value.errno == errno.ETIMEDOUT
