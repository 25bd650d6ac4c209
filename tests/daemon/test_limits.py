"""Exhausted resources (ports, file descriptors, the control socket), and cleanup after the failed attempt."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import socket as plain
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic import socket
from softnic.ipc import control
from softnic.ipc.client import Client
from softnicd.config import Config
from softnicd.daemon import Daemon
from softnicd.selector import Selector
from tests.daemon.nics import WAIT_S, Nic, free_port, paused, serving


@contextlib.contextmanager
def beside(daemon: Daemon, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Run a daemon in a thread of this process."""
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        daemon.close()
        loop.close()


def take_all_ports(daemon: Daemon) -> int:
    """Reserve every ephemeral port; return one of them."""
    for count in range(1 << 16):
        try:
            port = daemon.first.host.reserve(0)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL or not count:
                raise
            return port
    raise AssertionError("a NIC has more than 65536 ports")


def test_a_connect_without_a_free_port_leaves_no_stream_and_its_descriptor_is_reusable(tmp_path: Path) -> None:
    config = Config(ip="10.77.0.1", control=str(tmp_path / "nic"), wire="127.0.0.1:0")
    selector = Selector()
    loop = asyncio.SelectorEventLoop(selector)
    daemon = Daemon(config, loop, selector)
    taken = take_all_ports(daemon)
    with beside(daemon, loop), contextlib.closing(Client(config.control)) as client:
        for _ in range(2):
            ours, theirs = plain.socketpair()
            with ours, theirs:
                with pytest.raises(OSError, match="no ephemeral port is free") as caught:
                    client.call(control.Connect("10.77.0.1", 80), theirs.fileno())
                assert caught.value.errno == errno.EADDRNOTAVAIL
                assert client.call(control.QueryStats()).streams == []
        loop.call_soon_threadsafe(daemon.first.host.release, taken)
        with socket.socket(nic=config.control) as s:  # whose descriptor has the number of a refused one
            s.settimeout(WAIT_S)
            with pytest.raises(ConnectionRefusedError):
                s.connect(("10.77.0.1", 80))
        assert client.call(control.QueryStats()).streams == []


def test_descriptors_passed_with_requests_are_closed(nics: list[Nic]) -> None:
    """Descriptors of refused requests are closed, and those of regions, which are mapped."""
    with nics[0].client() as client, nics[0].client() as other, memfd(4096) as memory, memfd(0) as empty:
        client.call(control.QueryNic())
        before = nics[0].descriptors()
        for _ in range(3):
            region = client.call(control.Register(), memory).region
            for refused in (control.Register(), control.Bind("10.77.0.2", 0), control.QueryNic()):
                with pytest.raises(OSError, match=r"\w{5}"):
                    client.call(refused, empty)
            with pytest.raises(OSError, match="of this program"):
                other.call(control.Unregister(region))
            client.call(control.Unregister(region))
            with pytest.raises(OSError, match="no region"):
                client.call(control.Unregister(region))
        other.call(control.QueryNic())
        assert len(nics[0].descriptors()) <= len(before) + 1, "that of `other`"


def test_a_descriptor_passed_with_an_empty_packet_is_closed(nics: list[Nic]) -> None:
    with nics[0].client() as client, memfd(0) as brought:
        client.call(control.QueryNic())
        before = len(nics[0].descriptors())
        for _ in range(3):
            with plain.socket(plain.AF_UNIX, plain.SOCK_SEQPACKET) as s:
                s.settimeout(WAIT_S)
                s.connect(nics[0].path)
                plain.send_fds(s, [b""], [brought])
                assert s.recv(1) == b"", "the NIC takes it for the end"
        client.call(control.QueryNic())
        assert len(nics[0].descriptors()) == before


def test_a_full_page_of_streams_may_be_the_last(nics: list[Nic]) -> None:
    with nics[0].client() as client, contextlib.ExitStack() as stack:
        page = client.call(control.QueryStats())
        while not page.more:
            s = stack.enter_context(socket.socket(nic=nics[0].path))
            s.bind(("", 0))
            page = client.call(control.QueryStats())
        s.close()
        assert client.call(control.QueryStats()).streams == page.streams
        assert not client.call(control.QueryStats()).more
        assert client.call(control.QueryStats(page.streams[-1].stream)).streams == []


@contextlib.contextmanager
def memfd(size: int) -> Iterator[int]:
    """Return a memfd as used for regions."""
    with os.fdopen(os.memfd_create("limits", os.MFD_ALLOW_SEALING), "wb") as file:
        file.truncate(size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        yield file.fileno()


def test_accept_without_a_free_descriptor_leaves_the_connection_in_the_backlog(nics: list[Nic]) -> None:
    """As in a kernel: it can be accepted once a descriptor is free."""
    with nics[1].server() as listening, nics[0].connect(listening.getsockname()) as s:
        s.sendall(b"still there")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        spare = os.dup(0)
        os.close(spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare, limits[1]))
        try:
            for _ in range(2):
                with pytest.raises(OSError, match="Too many open files") as caught:
                    listening.accept()
                assert caught.value.errno == errno.EMFILE
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        accepted, peer = listening.accept()
        with accepted:
            assert peer == s.getsockname()
            assert accepted.recv(11) == b"still there"


def test_an_exiting_nic_does_not_remove_the_control_socket_of_another(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    first, second = Nic(tmp_path, 0, ports), Nic(tmp_path, 1, ports)
    second.path = first.path
    second.command[second.command.index("--control") + 1] = first.path
    with serving([first]):
        with paused(first):
            Path(first.path).unlink()
            second.start()
        try:
            assert first.stop() == 0
            with second.client() as client:
                assert client.info().ip == second.ip
        finally:
            assert second.stop() == 0
    assert not Path(first.path).exists()
