"""A node's loopback addresses and names, and streams whose file descriptors come from other processes."""

from __future__ import annotations

import errno
import os
import socket as stdlib
import subprocess
import sys

import pytest

from softnic import socket
from softnic.ipc import control
from tests.daemon.nics import WAIT_S, Nic, read_all


@pytest.fixture
def nic(nics: list[Nic], monkeypatch: pytest.MonkeyPatch) -> Nic:
    """The first node, set as SOFTNIC_NIC."""
    monkeypatch.setenv("SOFTNIC_NIC", nics[0].path)
    return nics[0]


def accepted_names(listening: socket.socket, target: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Connects and returns the hosts of both ends, (local, peer), as the client and as the server sees them."""
    with socket.create_connection((target, listening.getsockname()[1]), timeout=WAIT_S) as client:
        server, peer = listening.accept()
        with server:
            assert peer == server.getpeername() == client.getsockname()
            assert socket.info(client).peer == client.getpeername()
            client.sendall(b"own node")
            assert read_all(server, 8) == b"own node"
            ends = client.getsockname(), client.getpeername(), server.getsockname(), server.getpeername()
            names = [name[0] for name in ends]
            return (names[0], names[1]), (names[2], names[3])


@pytest.mark.usefixtures("nic")
@pytest.mark.parametrize("bound", ["127.0.0.1", ""])
def test_a_node_reaches_itself_at_its_loopback_address(bound: str) -> None:
    with socket.create_server((bound, 0)) as listening:
        listening.settimeout(WAIT_S)
        assert listening.getsockname()[0] == (bound or "0.0.0.0")
        for target in ("127.0.0.1", "localhost"):
            assert accepted_names(listening, target) == (("127.0.0.1", "127.0.0.1"),) * 2


def test_a_node_s_own_address_is_not_the_loopback_address(nic: Nic) -> None:
    with nic.server() as listening:
        assert accepted_names(listening, nic.ip) == ((nic.ip, nic.ip),) * 2


def test_a_server_at_the_loopback_address_refuses_other_nodes(nics: list[Nic]) -> None:
    with socket.create_server(("127.0.0.1", 0), nic=nics[0].path) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            nics[1].connect((nics[0].ip, port))
        with nics[0].connect(("127.0.0.1", port)) as s:
            assert s.getpeername() == ("127.0.0.1", port)


def test_a_socket_at_the_loopback_address_does_not_reach_other_nodes(nics: list[Nic]) -> None:
    with nics[1].server() as listening, socket.socket(nic=nics[0].path) as s:
        s.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="reaches only its own node") as caught:
            s.connect(listening.getsockname())
        assert caught.value.errno == errno.EINVAL


def test_nodes_have_names(nics: list[Nic]) -> None:
    with nics[0].client() as client:
        for name in ("node0", "NODE0", "node0.softnic", nics[0].ip):
            assert client.call(control.Resolve(name)) == control.Resolved("node0", nics[0].ip)
        with pytest.raises(OSError, match="no node 'node7'") as caught:
            client.call(control.Resolve("node7"))
        assert caught.value.errno == errno.ENOENT


CHILD = """
import os, sys
from softnic import socket
listening = socket.socket(fileno=int(sys.argv[1]))
connected = socket.socket(fileno=int(sys.argv[2]))
accepted, peer = listening.accept()
with accepted, connected:
    assert peer == accepted.getpeername()
    assert accepted.getsockname()[1] == listening.getsockname()[1]
    assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert connected.getsockopt(socket.SOL_NIC, socket.NIC_CODEC, 20) == b"bfp:7"
    accepted.sendall(b"from the child")
    connected.sendall(repr(connected.getpeername()).encode())
"""


def test_a_process_uses_sockets_that_it_inherits_by_exec(nics: list[Nic], nic: Nic) -> None:
    with nic.server() as listening, nics[1].server() as other, nic.connect(other.getsockname()) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_NIC, socket.NIC_CODEC, "bfp:7")
        peer, _ = other.accept()
        fds = listening.fileno(), connected.fileno()
        command = [sys.executable, "-c", CHILD, *map(str, fds)]
        environment = {**os.environ, "SOFTNIC_NIC": nic.path}
        with subprocess.Popen(command, pass_fds=fds, env=environment) as child, peer:
            with nics[1].connect(listening.getsockname()) as client:
                assert read_all(client, 14) == b"from the child"
            name = repr(other.getsockname()).encode()
            assert read_all(peer, len(name)) == name
            assert child.wait(WAIT_S) == 0


@pytest.mark.usefixtures("nic")
def test_a_unix_socket_of_the_application_is_not_a_stream() -> None:
    here, there = stdlib.socketpair()
    with here, there, pytest.raises(OSError, match="not a NIC's stream") as caught:
        socket.socket(fileno=here.fileno())
    assert caught.value.errno == errno.ENOTSOCK
