"""Stopped processes: found in time, reported once for each stop, and ended with what their peers wait for."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from tests.daemon.nics import Nic, running, until
from tests.facades.daemon import LOOK_INTERVAL_S, Programs, state_of
from tests.facades.ipc import control

PATIENCE_S = 4.0


class Processes(dict[int, str]):
    """States of processes by their id, and the watch over them in virtual time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.programs = Programs(PATIENCE_S, lambda pid: self.get(pid, ""))

    def look(self, after_s: float = LOOK_INTERVAL_S) -> list[int]:
        self.now += after_s
        return [pid for pid, _ in self.programs.look([*self, 0, *self], self.now)]

    def looks_until_lost(self) -> int:
        return next(count for count in range(1, 100) if self.look())


def test_a_process_is_lost_within_its_patience_and_as_long_as_it_is_stopped() -> None:
    processes = Processes()
    processes.update({7: "T", 8: "S", 9: "t", 10: ""})
    looks = processes.looks_until_lost()
    assert PATIENCE_S - 2 * LOOK_INTERVAL_S <= (looks - 1) * LOOK_INTERVAL_S <= PATIENCE_S
    assert processes.look() == [7]
    processes[7] = "S"
    assert processes.look() == []
    processes[7] = "T"
    assert processes.looks_until_lost() == looks, "another stop is counted from its start"


def test_a_process_that_goes_on_in_time_is_not_lost() -> None:
    processes = Processes()
    for _ in range(10):
        processes[7] = "T"
        assert not any(processes.look() for _ in range(5))
        processes[7] = "R"
        assert processes.look() == []


def test_time_that_the_nic_itself_was_stopped_does_not_count() -> None:
    processes = Processes()
    processes[7] = "T"
    assert processes.look() == []
    assert processes.look(after_s=1000) == []
    assert processes.looks_until_lost() > 2


def test_no_process_0_is_looked_at() -> None:
    """Streams of processes in other PID namespaces have that number."""
    processes = Processes()
    processes[0] = "T"
    assert not any(processes.look() for _ in range(50))


LISTENS = """
import sys
from softnic import socket
listening = socket.create_server((sys.argv[1], 0))
print(listening.getsockname()[1], flush=True)
sys.stdin.readline()
"""


def test_connections_that_a_stopped_process_does_not_accept_are_reset_at_each_stop() -> None:
    """Its listening socket stays, and works once the process goes on."""
    with running(2, "--patience", "1s") as nics:
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
                    assert told(nics[1], process.pid) == nics[1].counters()["programs_lost"] == stop
                    process.send_signal(signal.SIGCONT)
                    until(lambda: state_of(process.pid) != "T")
                    no_longer_lost(nics[1])
            finally:
                process.kill()


def no_longer_lost(nic: Nic) -> None:
    """Waits until the watch of a NIC has looked again."""
    select.select([], [], [], 2 * LOOK_INTERVAL_S)
    with nic.client() as client:
        client.call(control.Hello())


def told(nic: Nic, pid: int) -> int:
    """How many stops of a process the log of a NIC reports."""
    with nic.client() as client:
        events = client.call(control.Stats()).events
    return sum(event.count for event in events if f"program {pid} has been stopped" in event.text)
