"""`python -m tests.faults.soak --minutes 10`: real NICs under traffic and faults for a given time.

Node 0 is never harmed: it serves the others' connections all the time, and what its daemon holds at the end is compared
with what it held after the first minute, or the first tenth. The others are killed, stopped and started again, their
programs killed and stopped, their control sockets removed. After each fault, whoever waited has to have had an error in
time, and a new connection has to carry its bytes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from softnic.ipc import control
from tests.daemon.nics import Nic, free_port, read_all, serving

NODES = 4
BYTES = 2_000_000
IN_TIME_S = 5.0
SLACK_S = 1.0
"""For this machine to get round to it."""

SERVER = """
import sys, threading
from softnic import socket
def echo(connection):
    try:
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
    except OSError:
        pass
listening = socket.create_server((sys.argv[1], 7000))
print("ready", flush=True)
while True:
    threading.Thread(target=echo, args=(listening.accept()[0],), daemon=True).start()
"""
"""On node 0, for as long as the soak lasts."""

CLIENT = """
import sys, threading
from softnic import socket
idle = socket.create_connection((sys.argv[1], 7000))
busy = socket.create_connection((sys.argv[1], 7000))
print("ready", flush=True)
def wait():
    try:
        idle.recv(1)
    except OSError as error:
        print("idle", error.errno, error.strerror, flush=True)
threading.Thread(target=wait, daemon=True).start()
try:
    while True:
        busy.sendall(b"x" * 100_000)
        left = 100_000
        while left:
            left -= len(busy.recv(left)) or sys.exit("ended")
except OSError as error:
    print("busy", error.errno, error.strerror, flush=True)
threading.Event().wait(1)
"""
"""On the node that is harmed: a connection that waits and one that works."""


@dataclass(frozen=True)
class Held:
    """Resources that a process holds."""

    kilobytes: int
    descriptors: int
    threads: int

    @classmethod
    def by(cls, pid: int) -> Held:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return cls(int(status["VmRSS"].split()[0]), descriptors, int(status["Threads"]))


class Soak:
    def __init__(self, nics: list[Nic], seed: int) -> None:
        self.nics = nics
        self.random = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.broken: list[str] = []
        self.server = self._program(nics[0], SERVER)
        self.kinds: dict[str, Callable[[Nic, subprocess.Popen[str]], None]] = {
            "program killed": lambda _, program: program.kill(),
            "program stopped": lambda _, program: program.send_signal(signal.SIGSTOP),
            "NIC killed": lambda nic, _: self._harm(nic, signal.SIGKILL),
            "NIC stopped": lambda nic, _: self._harm(nic, signal.SIGSTOP),
            "NIC ended": lambda nic, _: self._harm(nic, signal.SIGTERM),
            "control socket removed": lambda nic, _: Path(nic.path).unlink(),
        }

    def _program(self, nic: Nic, text: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-c", text, self.nics[0].ip],
            env={**os.environ, "SOFTNIC_NIC": nic.path},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert program.stdout is not None
        if program.stdout.readline() != "ready\n":
            self.broken.append(f"a program found no way through {nic.path}")
        return program

    def _harm(self, nic: Nic, number: int) -> None:
        assert nic.process is not None
        nic.process.send_signal(number)

    def once(self) -> None:
        """Injects one fault and checks its consequences."""
        nic = self.random.choice(self.nics[1:])
        kind = self.random.choice(list(self.kinds))
        program = self._program(nic, CLIENT)
        began = time.monotonic()
        self.kinds[kind](nic, program)
        self.faults[kind] += 1
        if kind == "control socket removed":
            self._wait(lambda: Path(nic.path).exists(), kind, began)
            program.kill()
        elif kind.startswith("NIC"):
            assert nic.process is not None
            self._wait(lambda: program.poll() is not None, f"{kind}: its program waits on", began + 1)
            program.kill()
            nic.process.wait()
            nic.start()
        self._wait(lambda: self._connections_from(nic) == 0, f"{kind}: node 0 holds on to its connections", began)
        program.kill()
        program.communicate()
        self._carries(nic, kind)

    def _wait(self, condition: Callable[[], bool], what: str, began: float) -> None:
        while not condition():
            if time.monotonic() - began > IN_TIME_S + SLACK_S:
                self.broken.append(f"after {time.monotonic() - began:.1f} s: {what}")
                return
            time.sleep(0.05)

    def _connections_from(self, nic: Nic) -> int:
        with self.nics[0].client() as client:
            stats: control.NicStats = client.call(control.QueryStats())
        return sum(each.peer is not None and each.peer[0] == nic.ip for each in stats.streams)

    def _carries(self, nic: Nic, kind: str) -> None:
        """Checks that a new connection echoes its data unchanged."""
        data = self.random.randbytes(BYTES)
        try:
            with nic.connect((self.nics[0].ip, 7000)) as connection:
                sent = 0
                while sent < len(data):  # no more under way than an echo can hold
                    part = data[sent : sent + 500_000]
                    connection.sendall(part)
                    if read_all(connection, len(part)) != part:
                        self.broken.append(f"{kind}: bytes were altered")
                    sent += len(part)
        except (OSError, AssertionError) as error:
            self.broken.append(f"{kind}: a new connection failed: {error}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.faults.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        ports = [free_port() for _ in range(NODES)]
        nics = [Nic(Path(directory), number, ports) for number in range(NODES)]
        with serving(nics):
            return _run(Soak(nics, args.seed), 60 * args.minutes)


def _run(soak: Soak, seconds: float) -> int:
    process = soak.nics[0].process
    assert process is not None
    began = time.monotonic()
    early: Held | None = None
    while (passed := time.monotonic() - began) < seconds:
        if early is None and passed >= min(60, seconds / 10):
            early = Held.by(process.pid)
        soak.once()
    late = Held.by(process.pid)
    soak.server.kill()
    soak.server.communicate()
    print(f"{sum(soak.faults.values())} faults in {passed:.0f} s:", dict(sorted(soak.faults.items())))
    for held, when in ((early, "early"), (late, "late")):
        print(f"node 0's NIC, {when}: {held}")
    print(f"promises broken: {len(soak.broken)}", *soak.broken, sep="\n  ")
    return bool(soak.broken)


if __name__ == "__main__":
    sys.exit(main())
