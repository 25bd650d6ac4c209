"""The stall watchdog ends a hung NIC, is restarted when it is killed, and does not mistake a loaded host for a hang."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from softnic.ipc import control
from softnicd.process_monitor import state_of
from tests.daemon.nics import WAIT_S, Nic, free_port, serving, until

ROOT = Path(__file__).resolve().parents[2]
PLANTED = """
import sys, time
sys.path.insert(0, {root!r})
from softnicd.__main__ import main
from softnicd.daemon import Daemon

def hang(*args):
    {hang}

Daemon.add_peer = hang
sys.exit(main())
"""
"""A NIC with a defect: its event loop hangs when a peer is added."""

STARVED = """
import asyncio, os, threading, time
from softnicd.stall_watchdog import StallWatchdog

def wait():
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
    began = time.monotonic()
    while time.monotonic() < began + 4:
        pass
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_OTHER, os.sched_param(0))

def wait_for_a_thread():
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()

async def run(act):
    loop = asyncio.get_running_loop()
    watchdog.run_on(loop, print)
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    act()
    os.sched_setaffinity(0, everywhere)
    print("computed", flush=True)

watchdog = StallWatchdog("starved", None, 2.0)
watchdog.start()
asyncio.run(run({act}))
"""
"""Blocks its event loop for twice the bound while it gets almost no CPU time."""


@contextlib.contextmanager
def nic(directory: Path, *flags: str, hang: str = "raise OSError") -> Iterator[Nic]:
    started = Nic(directory, 0, [free_port()], *flags)
    started.command[1:3] = ["-c", PLANTED.format(hang=hang, root=str(ROOT))]
    with serving([started]):
        yield started


def watchdogs(nic: Nic) -> list[int]:
    assert nic.process is not None
    pid = nic.process.pid
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in children if name_of(child) == "softnicd-wdog\n"]


def name_of(pid: int) -> str:
    """Return the name of a process; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("hang", ["time.sleep(3600)", "while True: pass"])
def test_a_nic_with_a_hung_event_loop_is_ended(tmp_path: Path, hang: str) -> None:
    with nic(tmp_path, "--watchdog", "2s", hang=hang) as hung:
        with hung.client() as client, pytest.raises(OSError, match=hung.path):
            client.call(control.AddPeer("10.77.0.9", "127.0.0.1", 9))
        assert hung.process is not None
        assert hung.process.wait(WAIT_S) == -signal.SIGKILL
        assert "its event loop, or a queue, has hung for 2 s: it ends now" in hung.log.read_text()


@pytest.mark.parametrize("hang", ["time.sleep(3600)", "exec('while True: pass')"])
def test_a_nic_with_a_hung_queue_is_ended(tmp_path: Path, hang: str) -> None:
    hang = f"args[0].queues[1].post(lambda: {hang})"
    with nic(tmp_path, "--watchdog", "2s", "--queues", "2", hang=hang) as hung:
        with hung.client() as client:
            client.call(control.AddPeer("10.77.0.9", "127.0.0.1", 9))
        assert hung.process is not None
        assert hung.process.wait(WAIT_S) == -signal.SIGKILL
        assert "its event loop, or a queue, has hung for 2 s: it ends now" in hung.log.read_text()


def test_a_nic_with_idle_queues_is_not_ended(tmp_path: Path) -> None:
    with nic(tmp_path, "--watchdog", "2s", "--queues", "3") as idle:
        time.sleep(3)
        assert idle.alive


def test_off_disables_it(tmp_path: Path) -> None:
    with nic(tmp_path, "--watchdog", "off", "--peer-timeout", "off") as alone:
        assert watchdogs(alone) == []


@pytest.mark.slow
@pytest.mark.parametrize("act", ["wait", "wait_for_a_thread"])
def test_time_without_a_cpu_is_not_a_hang(act: str) -> None:
    cpu = min(os.sched_getaffinity(0))
    others = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", others]) as hog:
        try:
            code = STARVED.replace("{act}", act).replace("{cpu}", f"{{{cpu}}}")
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, timeout=4 * WAIT_S, stdout=subprocess.PIPE, check=False
            )
        finally:
            hog.kill()
    assert (done.returncode, done.stdout) == (0, b"computed\n")


@pytest.mark.slow
def test_a_nic_that_runs_between_two_stops_is_only_slow(tmp_path: Path) -> None:
    """Tools such as cpulimit stop and continue a process, which the watchdog finds stopped nearly every time."""
    with nic(tmp_path, "--peer-timeout", "2s") as throttled:
        assert throttled.process is not None
        until_s = time.monotonic() + 5
        while time.monotonic() < until_s and throttled.process.poll() is None:
            throttled.process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            throttled.process.send_signal(signal.SIGCONT)
            time.sleep(0.005)
        assert throttled.process.poll() is None, throttled.log.read_text()


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_stopped_watchdog_is_replaced_by_one_that_works(tmp_path: Path, fault: signal.Signals) -> None:
    with nic(tmp_path, "--peer-timeout", "2s") as lonely:
        [first] = watchdogs(lonely)
        os.kill(first, fault)
        until(lambda: watchdogs(lonely) not in ([first], []))
        assert state_of(first) == "", "a zombie"
        assert lonely.process is not None
        lonely.process.send_signal(signal.SIGSTOP)
        lonely.process.wait(WAIT_S)
        assert "it was stopped, and its applications waited for it" in lonely.log.read_text()


def test_a_replacement_shares_none_of_its_nics_memory(tmp_path: Path) -> None:
    with nic(tmp_path) as large:
        [first] = watchdogs(large)
        os.kill(first, signal.SIGKILL)
        until(lambda: watchdogs(large) not in ([first], []))
        [second] = watchdogs(large)
        until(lambda: resident_kib(second) < 4 << 10)
        assert large.process is not None
        assert resident_kib(large.process.pid) > 16 << 10


def resident_kib(pid: int) -> int:
    """Return the resident anonymous memory, shared or not."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1])
