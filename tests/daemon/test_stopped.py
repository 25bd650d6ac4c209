"""Stopped processes: detected in time, reported once per stop, with an error for their waiting peers."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from softnic.ipc import control
from softnicd.process_monitor import INTERVAL_S as POLL_INTERVAL_S
from softnicd.process_monitor import ProcessMonitor, state_of
from tests.daemon.nics import Nic, running, until

TIMEOUT_S = 4.0


class Processes(dict[int, str]):
    """Fake states of processes by process ID, and their monitor in virtual time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.monitor = ProcessMonitor(TIMEOUT_S, lambda pid: self.get(pid, ""))

    def poll(self, after_s: float = POLL_INTERVAL_S) -> list[int]:
        self.now += after_s
        return [pid for pid, _ in self.monitor.poll([*self, 0, *self], self.now)]

    def polls_until_lost(self) -> int:
        return next(count for count in range(1, 100) if self.poll())


def test_a_process_is_lost_within_the_peer_timeout_and_as_long_as_it_is_stopped() -> None:
    processes = Processes()
    processes.update({7: "T", 8: "S", 9: "t", 10: ""})
    polls = processes.polls_until_lost()
    assert TIMEOUT_S - 2 * POLL_INTERVAL_S <= (polls - 1) * POLL_INTERVAL_S <= TIMEOUT_S
    assert processes.poll() == [7]
    processes[7] = "S"
    assert processes.poll() == []
    processes[7] = "T"
    assert processes.polls_until_lost() == polls, "another stop is counted from its start"


def test_a_process_that_continues_in_time_is_not_lost() -> None:
    processes = Processes()
    for _ in range(10):
        processes[7] = "T"
        assert not any(processes.poll() for _ in range(5))
        processes[7] = "R"
        assert processes.poll() == []


def test_time_that_the_nic_itself_was_stopped_does_not_count() -> None:
    processes = Processes()
    processes[7] = "T"
    assert processes.poll() == []
    assert processes.poll(after_s=1000) == []
    assert processes.polls_until_lost() > 2


def test_process_0_is_not_polled() -> None:
    """Streams of processes in other PID namespaces have that number."""
    processes = Processes()
    processes[0] = "T"
    assert not any(processes.poll() for _ in range(50))


LISTENS = """
import sys
from softnic import socket
listening = socket.create_server((sys.argv[1], 0))
print(listening.getsockname()[1], flush=True)
sys.stdin.readline()
"""


def test_connections_that_a_stopped_process_does_not_accept_are_reset_at_each_stop() -> None:
    """Its listening socket stays, and works once the process goes on."""
    with running(2, "--peer-timeout", "1s") as nics:
        command = [sys.executable, "-c", LISTENS, nics[1].ip]
        environment = {**os.environ, "SOFTNIC_NIC": nics[1].path}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                assert process.stdout is not None
                address = (nics[1].ip, int(process.stdout.readline()))
                for stop in (1, 2):
                    process.send_signal(signal.SIGSTOP)
                    waiting = [nics[0].connect(address) for _ in range(5)]
                    with pytest.raises(ConnectionResetError):
                        waiting[-1].recv(1)  # the first are handed to the process already
                    for s in waiting:
                        s.close()
                    assert reported(nics[1], process.pid) == nics[1].counters()["applications_lost"] == stop
                    process.send_signal(signal.SIGCONT)
                    until(lambda: state_of(process.pid) != "T")
                    no_longer_lost(nics[1])
            finally:
                process.kill()


def no_longer_lost(nic: Nic) -> None:
    """Wait until a NIC has polled again."""
    select.select([], [], [], 2 * POLL_INTERVAL_S)
    with nic.client() as client:
        client.call(control.QueryNic())


def reported(nic: Nic, pid: int) -> int:
    """Return the number of stops of a process in the event log of a NIC."""
    with nic.client() as client:
        events = client.call(control.QueryStats()).events
    return sum(event.count for event in events if f"process {pid} has been stopped" in event.text)
