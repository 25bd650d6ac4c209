"""Listening descriptors, and connections that no program accepted."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from softnic import socket
from softnic.cluster.nic_process import read_stats
from softnic.ipc import control
from tests.daemon.nics import WAIT_S, Nic, read_all, until


def connections(nic: Nic) -> list[control.StreamInfo]:
    return [info for info in read_stats(Path(nic.path)).streams if info.peer]


def test_a_listener_is_readable_when_a_connection_waits_and_never_writable(nics: list[Nic]) -> None:
    poll = select.poll()
    with nics[1].server() as listening:
        poll.register(listening, select.POLLIN | select.POLLOUT)
        assert poll.poll(0) == []
        with nics[0].connect(listening.getsockname()):
            assert poll.poll(WAIT_S * 1000) == [(listening.fileno(), select.POLLIN)]
            listening.listen(7)
            listening.accept()[0].close()
        assert poll.poll(0) == []


def test_a_backlog_of_none_admits_one(nics: list[Nic]) -> None:
    """As in Linux, though the descriptor has space for more."""
    before = nics[1].counters()["dropped_backlog"]
    with nics[1].server(backlog=0) as listening, socket.socket(nic=nics[0].path) as second:
        with nics[0].connect(listening.getsockname()):
            second.setblocking(False)
            assert second.connect_ex(listening.getsockname()) == errno.EINPROGRESS
            until(lambda: nics[1].counters()["dropped_backlog"] > before)
            assert [info.state for info in connections(nics[0])].count("SYN-SENT") == 1
            listening.accept()[0].close()
        with nics[0].connect(listening.getsockname()):
            listening.accept()[0].close()


def test_a_listener_that_was_shut_down_accepts_nothing(nics: list[Nic]) -> None:
    with nics[1].server() as listening:
        address = listening.getsockname()
        listening.shutdown(socket.SHUT_RDWR)
        with pytest.raises(OSError, match="shut down") as caught:
            listening.accept()
        assert caught.value.errno == errno.EINVAL
        with pytest.raises(ConnectionRefusedError):
            nics[0].connect(address)


def test_what_reads_a_listener_s_descriptor_loses_no_connection(nics: list[Nic]) -> None:
    """Unless it takes bytes of the peer with it, which are then missing: that connection is reset."""
    with nics[1].server() as listening:
        copy = os.dup(listening.fileno())
        with nics[0].connect(listening.getsockname()) as client:
            assert select.select([listening], [], [], WAIT_S)[0]
            assert len(os.read(copy, 64)) == 1
            accepted, peer = listening.accept()
            with accepted:
                assert peer == client.getsockname()
                client.sendall(b"and its bytes")
                assert read_all(accepted, 13) == b"and its bytes"
        with nics[0].connect(listening.getsockname()) as lost, nics[0].connect(listening.getsockname()) as client:
            lost.sendall(b"gone")
            client.sendall(b"stays")
            until(lambda: {(4, 0), (5, 0)} <= {(i.bytes_received, i.receive_queue) for i in connections(nics[1])})
            assert os.read(copy, 64)
            with pytest.raises(ConnectionResetError):
                lost.recv(1)
            accepted, _ = listening.accept()
            with accepted:
                assert read_all(accepted, 5) == b"stays"
        os.close(copy)


def test_nothing_is_written_into_a_listener(nics: list[Nic]) -> None:
    with nics[1].server() as listening:
        copy = os.dup(listening.fileno())
        with pytest.raises(BrokenPipeError):
            os.write(copy, b"junk")
        os.close(copy)
        with nics[0].connect(listening.getsockname()):
            listening.accept()[0].close()


def test_unaccepted_connections_are_reset_when_the_program_dies(nics: list[Nic]) -> None:
    script = "import os, sys; from softnic import socket; s = socket.create_server((sys.argv[1], 0))\n"
    script += "print(s.getsockname()[1], flush=True); s.accept(); print('accepted', flush=True); sys.stdin.read()"
    environment = {**os.environ, "SOFTNIC_NIC": nics[1].path}
    command = [sys.executable, "-c", script, nics[1].ip]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        address = nics[1].ip, int(program.stdout.readline())
        accepted, *waiting = [nics[0].connect(address) for _ in range(4)]
        assert program.stdout.readline() == b"accepted\n"
        program.kill()
    with accepted:
        assert accepted.recv(1) == b""
    for s in waiting:
        with s, pytest.raises(ConnectionResetError):
            s.recv(1)
