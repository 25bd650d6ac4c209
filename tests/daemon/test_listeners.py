"""Listening descriptors, and connections that no program accepted."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys

import pytest

from softnic import socket
from tests.daemon.nics import WAIT_S, Nic


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


def test_a_listener_that_was_shut_down_accepts_nothing(nics: list[Nic]) -> None:
    with nics[1].server() as listening:
        address = listening.getsockname()
        listening.shutdown(socket.SHUT_RDWR)
        with pytest.raises(OSError, match="shut down") as caught:
            listening.accept()
        assert caught.value.errno == errno.EINVAL
        with pytest.raises(ConnectionRefusedError):
            nics[0].connect(address)


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
