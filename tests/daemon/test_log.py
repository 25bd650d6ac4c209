"""A log without a reader does not block the daemon."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

from softnic.ipc import control
from tests.daemon.nics import Nic, free_port, until


@contextlib.contextmanager
def logging_to_a_pipe(directory: Path) -> Iterator[tuple[Nic, int]]:
    """A NIC that logs to a full pipe, and the read end of the pipe."""
    reading, writing = os.pipe()
    ready, told = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, bytes(1 << 12)):
            pass
    os.set_blocking(writing, True)
    nic = Nic(directory, 0, [free_port()])
    nic.process = subprocess.Popen(
        [*nic.command, "--verbose", "--ready-fd", str(told)], pass_fds=[told], stderr=writing
    )
    try:
        os.close(told)
        nic.wait_ready(ready)
        yield nic, reading
        assert nic.stop() == 0
    finally:
        nic.process.kill()
        nic.process.wait()
        os.close(reading)
        os.close(writing)


def listen(nic: Nic) -> None:
    """Cause a line in the log: a stream listens."""
    nic.server().close()
    with nic.client() as client:
        assert isinstance(client.call(control.QueryNic()), control.NicInfo)


def test_a_full_pipe_does_not_block_the_nic(tmp_path: Path) -> None:
    with logging_to_a_pipe(tmp_path) as (nic, reading):
        listen(nic)
        os.set_blocking(reading, False)
        with contextlib.suppress(BlockingIOError):
            while not os.read(reading, 1 << 16).strip(b"\0"):
                pass
        listen(nic)
        until(lambda: select.select([reading], [], [], 0)[0] == [reading])
        said = os.read(reading, 1 << 16).decode()
    assert "lines of this log were dropped: writing them would have blocked" in said
    assert "listens at port" in said
