"""NICs that are killed, stopped, restarted or hindered: every survivor gets an error in time that names the peer."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.cluster.nic_process import read_stats
from softnic.ipc import control
from tests.daemon.nics import TOLD_S, WAIT_S, Nic, pair, read_all, running, until
from tests.slow import slow_after


@pytest.fixture
def nics() -> Iterator[list[Nic]]:
    with running(2) as started:
        yield started


def events(nic: Nic) -> list[str]:
    return [event.text for event in read_stats(Path(nic.path)).events]


@pytest.mark.parametrize("fault", slow_after(1, [signal.SIGKILL, signal.SIGSTOP]))
def test_programs_of_a_lost_nic_and_of_its_peers_learn_of_it(nics: list[Nic], fault: signal.Signals) -> None:
    """Both applications only read, without a timeout of their own."""
    a, b = pair(nics)
    with a, b:
        a.settimeout(None)
        b.settimeout(None)
        assert nics[0].process is not None
        began = time.monotonic()
        nics[0].process.send_signal(fault)
        with pytest.raises(OSError, match=re.escape(nics[0].path)) as here:
            a.recv(1)
        with pytest.raises(OSError, match=re.escape(f"{nics[0].ip}:")) as there:
            b.recv(1)
        assert time.monotonic() - began < TOLD_S
        assert here.value.errno == errno.ENETDOWN
        # One that was stopped is had to end in good order, and says so itself.
        assert there.value.errno == (errno.ETIMEDOUT if fault is signal.SIGKILL else errno.ECONNRESET)
    nics[0].process.wait(WAIT_S)
    if fault is signal.SIGKILL:
        assert any(f"{nics[0].ip} is lost: it has not answered for" in text for text in events(nics[1]))
        assert nics[1].counters()["peers_lost"] == 1
    else:
        assert "it was stopped, and its applications waited for it" in nics[0].log.read_text()


def test_a_nic_that_is_started_again_serves_at_once_and_resets_what_it_does_not_know() -> None:
    with running(2, "--peer-timeout", "60s") as nics:
        a, b = pair(nics)
        with a, b:
            nics[0].stop(signal.SIGKILL)
            nics[0].start()
            with pytest.raises(ConnectionResetError, match=re.escape(nics[0].ip)):
                b.recv(1)  # it waits, and says nothing that could be answered
            c, d = pair(nics)
            with c, d:
                c.sendall(b"again")
                assert read_all(d, 5) == b"again"
        assert "replacing a NIC that did not exit cleanly" in events(nics[0])[0]


def test_a_control_socket_that_is_removed_comes_back(nics: list[Nic]) -> None:
    a, b = pair(nics)
    with a, b:
        Path(nics[0].path).unlink()
        until(Path(nics[0].path).exists)
        assert Path(nics[0].path).stat().st_mode & 0o777 == 0o600
        a.sendall(b"as before")
        assert read_all(b, 9) == b"as before"
    assert nics[0].counters()["control_recreated"] == 1
    assert any("was created again" in text for text in events(nics[0]))


STOPPED = """
import signal, os, sys
from softnic import socket
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
os.kill(os.getpid(), signal.SIGSTOP)
try:
    connection.recv(1)
except OSError as error:
    print(error.errno, error.strerror)
"""


def test_the_peer_of_a_stopped_program_learns_of_it_and_so_does_the_program() -> None:
    with running(2, "--peer-timeout", "1.5s") as nics, nics[1].server() as listening:
        ip, port = listening.getsockname()
        environment = {**os.environ, "SOFTNIC_NIC": nics[0].path}
        program = [sys.executable, "-c", STOPPED, ip, str(port)]
        with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as process:
            connection, _ = listening.accept()
            connection.settimeout(None)
            with connection, pytest.raises(ConnectionResetError, match=re.escape(nics[0].ip)):
                connection.recv(1)
            process.send_signal(signal.SIGCONT)
            said, _ = process.communicate(timeout=WAIT_S)
        assert said.startswith(f"{errno.ECONNABORTED} this process was stopped for ")
        assert any(f"process {process.pid} has been stopped" in text for text in events(nics[0]))
        assert nics[0].counters()["applications_lost"] == 1


def test_a_nic_without_descriptors_refuses_and_goes_on(nics: list[Nic]) -> None:
    a, b = pair(nics)
    assert nics[0].process is not None
    with a, b, nics[0].server() as listening, nics[0].client() as client:
        client.info()  # it is served, and its descriptor counted
        used = len(list(Path(f"/proc/{nics[0].process.pid}/fd").iterdir()))
        limits = resource.prlimit(nics[0].process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(nics[0].process.pid, resource.RLIMIT_NOFILE, (used, limits[1]))
        with pytest.raises(OSError, match="no file descriptor free") as caught:
            nics[0].connect((nics[1].ip, 1))
        assert caught.value.errno == errno.EMFILE
        assert "ulimit -n" in str(caught.value)
        for _ in range(3):
            assert any("no file descriptor free for another stream" in text for text in events(nics[0]))
        with nics[0].client() as other, nics[0].client() as another:  # there is one place: they take turns
            for each in (other, another, other, client):
                assert isinstance(each.call(control.QueryNic()), control.NicInfo)
        assert any("control connections, which take turns" in text for text in events(nics[0]))
        waiting = nics[1].connect(listening.getsockname())  # in the backlog: nobody can be handed it yet
        until(lambda: bool(client.call(control.QueryStats()).counters["shortages"]))
        a.sendall(b"as before")
        assert read_all(b, 9) == b"as before"
        resource.prlimit(nics[0].process.pid, resource.RLIMIT_NOFILE, limits)
        accepted, _ = listening.accept()
        with waiting, accepted:
            accepted.sendall(b"late")
            assert read_all(waiting, 4) == b"late"


def send_for_ever(nic: Nic, address: tuple[str, int]) -> None:
    """Sends to an application that does not read, so that the NIC's buffer has to grow."""
    with nic.connect(address) as connection:
        while True:
            connection.sendall(bytes(1 << 20))


def test_a_nic_without_memory_ends_what_needs_more_and_goes_on(nics: list[Nic]) -> None:
    a, b = pair(nics)
    assert nics[0].process is not None
    pid = nics[0].process.pid
    with a, b, nics[1].server() as listening:
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        limits = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (size, limits[1]))
        with pytest.raises(OSError, match="the NIC has no memory left") as caught:
            send_for_ever(nics[0], listening.getsockname())
        assert caught.value.errno == errno.ENOMEM
        resource.prlimit(pid, resource.RLIMIT_AS, limits)
        a.sendall(b"as before")
        assert read_all(b, 9) == b"as before"
        nics[0].connect(listening.getsockname()).close()
    assert nics[0].counters()["shortages"] > 0
    assert any("no memory left" in text for text in events(nics[0]))


def answers(nic: Nic) -> bool:
    """Whether a NIC's control socket is there, and listens."""
    with contextlib.suppress(OSError), nic.client() as client:
        return isinstance(client.call(control.QueryNic()), control.NicInfo)
    return False


def test_a_log_on_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    with running(1) as [other]:
        nic = Nic(tmp_path, 1, [0, 0])
        nic.command[nic.command.index("--wire") + 1] = "127.0.0.1:0"
        nic.log = Path("/dev/full")
        nic.start()
        try:
            Path(nic.path).unlink()  # which is logged
            until(lambda: answers(nic))
        finally:
            assert nic.stop() == 0
        assert other.alive
