"""Control connections are limited for each process; a refused one gets the reason."""

from __future__ import annotations

import contextlib
import errno
import socket as plain
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from softnic.ipc import control
from softnic.ipc.client import Client
from softnicd.control_server import MAX_PER_PROCESS
from tests.daemon.nics import WAIT_S, Nic, running, until

ROOT = Path(__file__).resolve().parents[2]


def connected(nic: Nic) -> plain.socket:
    connection = plain.socket(plain.AF_UNIX, plain.SOCK_SEQPACKET)
    connection.settimeout(WAIT_S)
    connection.connect(nic.path)
    return connection


@pytest.fixture(scope="module")
def nics() -> Iterator[list[Nic]]:
    """A NIC of its own, because other tests could not connect to it meanwhile."""
    with running(1) as started:
        yield started


@pytest.fixture
def crowd(nics: list[Nic]) -> Iterator[list[plain.socket]]:
    """Open as many idle connections as a process may have."""
    with ExitStack() as stack:
        idle = []
        while (last := stack.enter_context(connected(nics[0]))) and not over(last):
            idle.append(last)
        assert MAX_PER_PROCESS - 8 <= len(idle) <= MAX_PER_PROCESS  # the tests' own checks have some
        yield idle
    until(lambda: not refused(nics[0]))


def over(connection: plain.socket) -> bool:
    """Return whether the NIC refuses this connection; nothing else is sent unsolicited."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(control.encode(control.QueryNic()))
    with contextlib.suppress(ConnectionResetError):
        return isinstance(control.decode_reply(connection.recv(control.MAX_MESSAGE)), control.Failed)
    return True


def refused(nic: Nic) -> bool:
    with contextlib.suppress(OSError), nic.client() as client:
        client.call(control.QueryNic())
        return False
    return True


@pytest.mark.usefixtures("crowd")
def test_one_process_does_not_lock_others_out(nics: list[Nic]) -> None:
    code = f"from softnic.ipc.client import Client; print(Client({nics[0].path!r}).info().name)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, timeout=2 * WAIT_S, check=True
    )
    assert done.stdout == b"node0\n"


def test_one_connection_too_many_is_refused_with_a_reason(nics: list[Nic], crowd: list[plain.socket]) -> None:
    """The NIC may close it before or after the first request."""
    why = f"has {MAX_PER_PROCESS} control connections to this NIC already: close some"
    for _ in range(20):
        client = Client(nics[0].path)
        with contextlib.closing(client), pytest.raises(OSError, match=why) as caught:
            client.call(control.QueryNic())
        assert caught.value.errno == errno.EMFILE
    with connected(nics[0]) as late:
        reply = control.decode_reply(late.recv(control.MAX_MESSAGE))
        assert isinstance(reply, control.Failed)
        assert why in reply.message
        assert late.recv(1) == b""
    crowd.pop().close()
    until(lambda: not refused(nics[0]))
    with nics[0].client() as client:
        assert client.info().name == "node0"


def test_a_refused_client_may_connect_again(nics: list[Nic], crowd: list[plain.socket]) -> None:
    client = Client(nics[0].path)
    with contextlib.closing(client):
        with pytest.raises(OSError, match="close some"):
            client.call(control.QueryNic())
        crowd[0].close()
        crowd[1].close()
        until(lambda: not refused(nics[0]))
        assert client.info().name == "node0"
