"""The socket contract between two real daemons: connects, refusals, ends and errors match those of TCP."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import select
import signal
import socket as stdlib
import struct
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from softnic import socket
from tests.daemon.nics import WAIT_S, Nic, pair, paused, read_all, until

QUICK_ON_LINKS = {
    "test_bytes_go_both_ways_and_both_ends_have_each_others_address",
    "test_the_error_of_a_refused_connect_names_the_address",
    "test_a_nonblocking_connect_becomes_writable_when_it_completes",
    "test_a_peer_that_resets_is_an_error_in_the_program",
    "test_a_closed_listener_refuses_and_resets_waiting_connections",
    "test_a_connection_that_fails_before_it_is_accepted_is_accepted_and_fails",
    "test_a_full_backlog_holds_back_further_connections",
    "test_an_error_after_shutdown_is_reported_once",
}

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def write_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(1 << 16))


# -- connecting and names


def test_bytes_go_both_ways_and_both_ends_have_each_others_address(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        assert a.getpeername() == b.getsockname()
        assert a.getsockname() == b.getpeername()
        assert a.getsockname()[0] == nics[0].ip
        assert (a.family, a.type, a.proto) == (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        a.sendall(b"there")
        assert read_all(b, 5) == b"there"
        b.sendall(b"and back")
        assert read_all(a, 8) == b"and back"


def test_urgent_data_is_refused_and_never_lost(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        for send in (a.send, a.sendall, lambda data, flags: a.sendmsg([data], [], flags)):
            with pytest.raises(OSError, match="urgent") as error:
                send(b"!", socket.MSG_OOB)
            assert error.value.errno == errno.EOPNOTSUPP


def test_urgent_bytes_sent_on_a_duplicate_arrive_inline(nics: list[Nic]) -> None:
    """One read of a Unix socket ends at the urgent mark, although more bytes follow."""
    a, b = pair(nics)
    with a, b, socket.fromfd(a.fileno(), a.family, a.type) as duplicate:
        with paused(nics[0]):
            a.sendall(b"in ")
            try:
                stdlib.socket.send(duplicate, b"or", stdlib.MSG_OOB)
            except OSError as refused:  # a kernel without urgent data on Unix sockets
                if refused.errno != errno.EOPNOTSUPP:
                    raise
                duplicate.send(b"or")
            a.sendall(b"der")
        assert read_all(b, 8) == b"in order"


def test_descriptors_sent_with_bytes_are_closed_and_the_bytes_arrive(nics: list[Nic]) -> None:
    """TCP ignores SCM_RIGHTS, too. A read of a Unix socket ends after bytes that carry descriptors."""
    a, b = pair(nics)
    with a, b:
        before = len(nics[0].descriptors())
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", a.fileno()))]
        with paused(nics[0]):
            for part in (b"in ", b"or"):
                assert a.sendmsg([part], rights) == len(part)
            a.sendall(b"der")
        assert read_all(b, 8) == b"in order"
        assert len(nics[0].descriptors()) == before


def test_the_error_of_a_refused_connect_names_the_address(nics: list[Nic]) -> None:
    with nics[1].server() as listening:
        address = listening.getsockname()
    with socket.socket(nic=nics[0].path) as s:
        with pytest.raises(ConnectionRefusedError, match=address[0]):
            s.connect(address)
        assert s.connect_ex(address) == errno.ECONNREFUSED, "a second try is a new connect"
        with pytest.raises(OSError, match="not connected"):
            s.recv(1)
        with socket.create_server(address, nic=nics[1].path) as again:
            s.connect(address)
            again.accept()[0].close()
            assert s.recv(1) == b""


def test_a_nonblocking_connect_becomes_writable_when_it_completes(nics: list[Nic]) -> None:
    poll = select.poll()
    with nics[1].server() as listening, socket.socket(nic=nics[0].path) as s:
        s.setblocking(False)
        assert s.connect_ex(listening.getsockname()) == errno.EINPROGRESS
        poll.register(s, select.POLLOUT)
        assert poll.poll(WAIT_S * 1000) == [(s.fileno(), select.POLLOUT)]
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert s.getpeername() == listening.getsockname()
        assert s.connect_ex(listening.getsockname()) == errno.EISCONN
        address = listening.getsockname()
    with socket.socket(nic=nics[0].path) as s:
        s.setblocking(False)
        assert s.connect_ex(address) == errno.EINPROGRESS
        poll = select.poll()
        poll.register(s, select.POLLOUT)
        assert poll.poll(WAIT_S * 1000)
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0, "told once"


def test_a_connecting_socket_accepts_no_bytes_and_reports_that_it_is_connecting(nics: list[Nic]) -> None:
    with socket.socket(nic=nics[0].path) as s:
        s.setblocking(False)
        assert s.connect_ex(("10.77.0.99", 9)) == errno.EINPROGRESS  # no such host: ARP takes seconds to fail
        assert s.connect_ex(("10.77.0.99", 9)) == errno.EALREADY
        with pytest.raises(BlockingIOError):
            s.send(b"too early")
        with pytest.raises(OSError, match="connecting"):
            s.getpeername()
        assert select.select([], [s], [], 0)[1] == []


def test_an_absent_host_is_unreachable_in_bounded_time(nics: list[Nic]) -> None:
    with socket.socket(nic=nics[0].path) as s:
        s.settimeout(WAIT_S)
        with pytest.raises(OSError, match="no route to 10") as caught:
            s.connect(("10.77.0.99", 9))
        assert caught.value.errno == errno.EHOSTUNREACH


def test_a_connect_with_a_timeout_gives_up_in_time(nics: list[Nic]) -> None:
    with socket.socket(nic=nics[0].path) as s:
        s.settimeout(0.05)
        with pytest.raises(TimeoutError):
            s.connect(("10.77.0.98", 9))


def test_names_before_and_after_bind(nics: list[Nic]) -> None:
    with socket.socket(nic=nics[0].path) as s, socket.socket(nic=nics[0].path) as other:
        assert s.getsockname() == ("0.0.0.0", 0)
        s.bind(("", 0))
        address, port = s.getsockname()
        assert address == "0.0.0.0"
        assert port > 0
        with pytest.raises(OSError, match="in use") as caught:
            other.bind((nics[0].ip, port))
        assert caught.value.errno == errno.EADDRINUSE
        with pytest.raises(OSError, match="not this NIC's") as caught:
            other.bind(("192.0.2.1", 0))
        assert caught.value.errno == errno.EADDRNOTAVAIL
        with pytest.raises(OverflowError):
            other.bind(("", 1 << 16))
        with pytest.raises(OSError, match="bound already"):
            s.bind(("", 0))
    with socket.socket(nic=nics[0].path) as other:
        other.bind((nics[0].ip, port))  # free again


def test_a_connection_from_a_bound_port(nics: list[Nic]) -> None:
    with nics[1].server() as listening, socket.socket(nic=nics[0].path) as s:
        s.bind(("", 0))
        port = s.getsockname()[1]
        s.connect(listening.getsockname())
        accepted, peer = listening.accept()
        with accepted:
            assert peer == (nics[0].ip, port) == s.getsockname()


def test_a_nic_connects_to_itself(nics: list[Nic]) -> None:
    data = os.urandom(1 << 20)
    with nics[0].server() as listening:
        opened = nics[0].connect(listening.getsockname())
        accepted, _ = listening.accept()
    with accepted:
        with opened:
            writer = threading.Thread(target=opened.sendall, args=(data,))
            writer.start()
            assert read_all(accepted, len(data)) == data
            writer.join()
        assert accepted.recv(1) == b""


def test_unsupported_kinds_of_sockets() -> None:
    for arguments in (
        (socket.AF_INET6,),
        (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_INET, socket.SOCK_STREAM, 17),
    ):
        with pytest.raises(OSError, match="TCP over IPv4 only"):
            socket.socket(*arguments, nic="/nowhere")


def test_the_error_without_a_nic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SOFTNIC_NIC", raising=False)
    with pytest.raises(OSError, match="SOFTNIC_NIC") as caught:
        socket.socket()
    assert caught.value.errno == errno.ENETDOWN
    monkeypatch.setenv("SOFTNIC_NIC", str(tmp_path / "none.sock"))
    with socket.socket() as s, pytest.raises(OSError, match="is softnicd running") as caught:
        s.connect(("10.77.0.1", 1))
    assert caught.value.errno == errno.ENETDOWN


# -- ends


def test_all_bytes_arrive_when_a_program_closes_right_after_writing(nics: list[Nic]) -> None:
    data = os.urandom(8 << 20)
    a, b = pair(nics)

    def write_and_close() -> None:
        with a:
            a.sendall(data)

    writer = threading.Thread(target=write_and_close)
    writer.start()
    with b:
        assert hashlib.sha256(read_all(b)).digest() == hashlib.sha256(data).digest()
    writer.join()


def test_half_close_leaves_the_other_direction_open(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        a.sendall(b"question")
        a.shutdown(socket.SHUT_WR)
        assert read_all(b) == b"question"
        b.sendall(b"answer" * 100_000)
        b.shutdown(socket.SHUT_WR)
        assert read_all(a) == b"answer" * 100_000
        with pytest.raises(BrokenPipeError):
            a.send(b"more")


def test_a_peer_that_resets_is_an_error_in_the_program(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a:
        with b:
            b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            peer = a.getpeername()
        with pytest.raises(ConnectionResetError, match=peer[0]):
            a.recv(1)
        assert a.recv(1) == b"", "told once"
        with pytest.raises(BrokenPipeError):
            a.sendall(b"x")


def test_a_writer_gets_an_error_after_a_reset(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a:
        b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        b.close()
        with pytest.raises(ConnectionResetError):
            write_for_ever(a)


def test_writing_to_a_peer_that_is_gone_fails(nics: list[Nic]) -> None:
    a, b = pair(nics)
    b.close()
    with a, pytest.raises(ConnectionError):
        write_for_ever(a)


def test_a_program_that_dies_ends_its_connections(nics: list[Nic]) -> None:
    script = "import sys; from softnic import socket; s = socket.create_connection((sys.argv[1], int(sys.argv[2])))"
    script += "; s.sendall(b'last words'); print('said', flush=True); sys.stdin.read()"
    with nics[1].server() as listening:
        command = [sys.executable, "-c", script, *map(str, listening.getsockname())]
        environment = {**os.environ, "SOFTNIC_NIC": nics[0].path}
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            accepted, _ = listening.accept()
            accepted.settimeout(WAIT_S)
            with accepted:
                assert program.stdout is not None
                assert program.stdout.readline() == b"said\n"
                program.send_signal(signal.SIGKILL)
                assert read_all(accepted) == b"last words"


def test_receive_and_accept_time_out(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b, nics[1].server() as listening:
        a.settimeout(0.01)
        with pytest.raises(TimeoutError):
            a.recv(1)
        listening.settimeout(0.01)
        with pytest.raises(TimeoutError):
            listening.accept()
        a.setblocking(False)
        with pytest.raises(BlockingIOError):
            a.recv(1)


# -- listening


def test_a_closed_listener_refuses_and_resets_waiting_connections(nics: list[Nic]) -> None:
    listening = nics[1].server()
    address = listening.getsockname()
    waiting = [nics[0].connect(address) for _ in range(5)]
    listening.close()
    for s in waiting:
        with s, pytest.raises(ConnectionResetError):
            s.recv(1)
    with pytest.raises(ConnectionRefusedError):
        nics[0].connect(address)


def test_a_port_refuses_as_soon_as_its_listener_is_closed(nics: list[Nic]) -> None:
    for _ in range(50):
        listening = nics[1].server()
        address = listening.getsockname()
        listening.close()
        if "--queues" not in nics[1].command:
            with pytest.raises(ConnectionRefusedError):
                nics[0].connect(address)
        else:
            until(partial(is_refused, nics[0], address))  # the other queues hear of it a moment later


def is_refused(nic: Nic, address: tuple[str, int]) -> bool:
    try:
        nic.connect(address).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass
    return False


def test_a_connection_that_fails_before_it_is_accepted_is_accepted_and_fails(nics: list[Nic]) -> None:
    with nics[1].server() as listening:
        held = [nics[0].connect(listening.getsockname()) for _ in range(4)]  # the first go to the program at once
        last = held.pop()
        before = nics[1].counters()["resets_received"]
        failing = last.getsockname()
        last.sendall(b"unheard")
        last.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        last.close()
        until(lambda: nics[1].counters()["resets_received"] != before)
        accepted = {peer: end for end, peer in (listening.accept() for _ in range(4))}  # of queues, in any order
        with pytest.raises(ConnectionResetError):
            read_all(accepted[failing])
        for s in (*held, *accepted.values()):
            s.close()


def test_a_full_backlog_holds_back_further_connections(nics: list[Nic]) -> None:
    before = nics[1].counters()

    def grown(name: str) -> int:
        return nics[1].counters()[name] - before[name]

    with nics[1].server(backlog=1) as listening:
        started = []
        for _ in range(8):
            s = socket.socket(nic=nics[0].path)
            s.setblocking(False)
            s.connect_ex(listening.getsockname())
            started.append(s)
        until(lambda: grown("dropped_backlog") > 0)
        assert 2 <= grown("connections_accepted") < 8
        for _ in started:  # the delayed ones try again and are accepted
            accepted, _ = listening.accept()
            accepted.close()
        assert grown("connections_accepted") == 8
        for s in started:
            s.close()


def test_listening_again_changes_the_backlog(nics: list[Nic]) -> None:
    before = nics[1].counters()["connections_accepted"]
    with nics[1].server(backlog=0) as listening, contextlib.ExitStack() as stack:
        listening.listen(20)
        for _ in range(12):
            s = stack.enter_context(socket.socket(nic=nics[0].path))
            s.setblocking(False)
            s.connect_ex(listening.getsockname())
        until(lambda: nics[1].counters()["connections_accepted"] == before + 12)


def test_listen_again_and_accept_without_listening(nics: list[Nic]) -> None:
    with socket.socket(nic=nics[1].path) as s:
        with pytest.raises(OSError, match="not listening"):
            s.accept()
        s.listen()
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        s.listen(5)
        with pytest.raises(OSError, match="connected"):
            s.connect(("10.77.0.1", 1))
        with pytest.raises(OSError, match="not connected"):
            s.recv(1)
        with nics[0].connect((nics[1].ip, s.getsockname()[1])) as opened:
            accepted, peer = s.accept()
            with accepted:
                assert peer == opened.getsockname()
                assert accepted.getsockname() == opened.getpeername()


def test_tcp_info_after_shutdown_of_both_directions(nics: list[Nic]) -> None:
    """As in a kernel, the state is reported until the descriptor is closed."""
    a, b = pair(nics)
    with a, b:
        with paused(nics[1]):  # acknowledges nothing
            a.sendall(bytes(100_000))
            a.shutdown(socket.SHUT_RDWR)
            until(lambda: socket.info(a).state == "FIN-WAIT-1")
        assert len(read_all(b)) == 100_000
        until(lambda: socket.info(a).state == "FIN-WAIT-2")
        assert (socket.info(a).bytes_sent, socket.info(a).send_queue) == (100_000, 0)
        b.close()
        until(lambda: socket.info(a).state == "CLOSED")
        assert socket.info(a).bytes_sent == 100_000
        assert a.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0] == 7


def test_an_error_after_shutdown_is_reported_once(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a:
        a.shutdown(socket.SHUT_RDWR)
        until(lambda: socket.info(a).state == "FIN-WAIT-2")
        b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        b.close()
        until(lambda: socket.info(a).state == "CLOSED")
        assert socket.info(a).error == errno.ECONNRESET
        assert a.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET
        assert a.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
