"""Programs may keep copies of descriptors handed to the NIC and make them blocking; the NIC never blocks on one.

A copy shares the open file description, and O_NONBLOCK with it (dup(2)).
"""

from __future__ import annotations

import socket as plain
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.cluster.nic_process import read_stats
from softnic.ipc import control
from tests.daemon.nics import WAIT_S, Nic, read_all, running, until


@pytest.fixture
def nics() -> Iterator[list[Nic]]:
    """Not shared with other tests: one of them might be blocked afterwards."""
    with running(2) as started:
        yield started


def answers(nic: Nic) -> bool:
    """Check that the NIC answers; raises OSError if it does not."""
    with nic.client() as client:
        return isinstance(client.call(control.QueryNic()), control.NicInfo)


def test_the_nics_end_of_a_capture(nics: list[Nic]) -> None:
    ours, theirs = plain.socketpair()
    with ours, theirs, nics[0].client() as client, nics[1].server() as server:
        client.call(control.Capture(0, 1), theirs.fileno())
        theirs.setblocking(True)
        with nics[0].connect(server.getsockname()) as a:
            b, _ = server.accept()
            with b:
                for _ in range(8):  # more than the capture's socket takes; nobody reads it
                    a.sendall(bytes(1 << 18))
                    read_all(b, 1 << 18)
                assert read_stats(Path(nics[0].path)).counters["capture_frames"]
                assert answers(nics[0])
        assert nics[0].stop() == 0


def test_the_nics_end_of_a_stream(nics: list[Nic]) -> None:
    ours, theirs = plain.socketpair()
    with ours, theirs, nics[0].client() as client, nics[1].server() as server:
        ours.settimeout(WAIT_S)
        opened = client.call(control.Connect(*server.getsockname()), theirs.fileno())
        theirs.setblocking(True)
        b, _ = server.accept()
        with b:
            while not client.call(control.QueryStream(opened.stream)).receive_queue:  # nobody reads `ours`: it is full
                b.send(bytes(1 << 16))
            assert answers(nics[0])
            ours.sendall(b"and back")
            assert read_all(b, 8) == b"and back"
        assert nics[0].stop() == 0


def test_the_nics_end_of_a_group_socket(nics: list[Nic]) -> None:
    ours, theirs = plain.socketpair(plain.AF_UNIX, plain.SOCK_SEQPACKET)
    words, data = plain.socketpair(), plain.socketpair()
    with ours, theirs, nics[0].client() as client, nics[1].server() as server:
        numbers = []
        for _, end in (words, data):
            numbers.append(client.call(control.Connect(*server.getsockname()), end.fileno()).stream)
            server.accept()[0].detach()
        until(lambda: all(client.call(control.QueryStream(number)).state == "ESTABLISHED" for number in numbers))
        theirs.setblocking(True)
        client.call(control.Join(0, [0, numbers[0]], [0, numbers[1]]), theirs.fileno())
        ours.send(b"no message")
        assert answers(nics[0])
        until(lambda: nics[0].counters()["work_requests_malformed"] == 1)
        assert answers(nics[0])
        for end in (*words, *data):
            end.close()
        assert nics[0].stop() == 0
