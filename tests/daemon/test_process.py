"""What a daemon inherits from what starts it: blocked and ignored signals, standard files that are closed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.nics import WAIT_S, Nic, free_port

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def started(directory: Path, closed: tuple[int, ...], blocked: bool, ignored: bool) -> Iterator[Nic]:
    """A daemon whose parent has prepared signals and standard files."""

    def prepare() -> None:
        if blocked:
            signal.pthread_sigmask(signal.SIG_BLOCK, [*ENDING, signal.SIGINT])
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        for number in closed:
            os.close(number)

    nic = Nic(directory, 0, [free_port()], "--verbose")
    ready, told = os.pipe()
    with nic.log.open("ab") as log:
        nic.process = subprocess.Popen(
            [*nic.command, "--ready-fd", str(told)],
            pass_fds=[told],
            stdin=subprocess.DEVNULL,
            stderr=log,
            preexec_fn=prepare,
        )
    os.close(told)
    try:
        nic.wait_ready(ready)
        yield nic
    finally:
        nic.process.kill()
        nic.process.wait()


@pytest.mark.parametrize(
    ("closed", "blocked", "number"),
    [((), True, signal.SIGTERM), ((0, 1), False, signal.SIGHUP), ((0, 1, 2), True, signal.SIGHUP)],
)
def test_a_signal_ends_it_cleanly(
    tmp_path: Path, closed: tuple[int, ...], blocked: bool, number: signal.Signals
) -> None:
    with started(tmp_path, closed, blocked, ignored=False) as nic:
        held = nic.descriptors()
        assert [held[each] for each in closed] == [os.devnull] * len(closed)
        nic.server().close()  # which writes lines to the log
        assert nic.counters()["shortages"] == 0
        assert nic.stop(number) == 0
    assert not Path(nic.path).exists()


def test_nohup_holds(tmp_path: Path) -> None:
    with started(tmp_path, (), blocked=False, ignored=True) as nic:
        assert nic.process is not None
        nic.process.send_signal(signal.SIGHUP)
        assert nic.counters()["failures"] == 0
        assert nic.process.poll() is None
        assert nic.stop() == 0


def test_a_wrong_configuration_with_no_standard_error_has_its_exit_code(tmp_path: Path) -> None:
    nic = Nic(tmp_path, 0, [free_port()], "--mtu", "1")
    done = subprocess.run(nic.command, timeout=WAIT_S, check=False, preexec_fn=lambda: os.close(2))
    assert done.returncode == 2
