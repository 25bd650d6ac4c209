"""On a full link, flows that open or close have their turns among the others."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.nics import WAIT_S, Nic, read_all, running

LINK = ("--rate", "10mbit", "--delay", "50us")


@contextmanager
def filled(nics: list[Nic], server: socket.socket, size: int) -> Iterator[list[threading.Thread]]:
    """Fill the links of both directions with `size` bytes; yields the threads that read them."""
    here = nics[0].connect(server.getsockname())
    there, _ = server.accept()
    with here, there:
        ends = (here, there)
        writers = [threading.Thread(target=end.sendall, args=(bytes(size),)) for end in ends]
        readers = [threading.Thread(target=read_all, args=(end, size)) for end in ends]
        for thread in (*writers, *readers):
            thread.start()
        yield readers
        for thread in (*writers, *readers):
            thread.join()


def test_a_connection_opens_and_closes_on_a_full_link() -> None:
    with running(2, *LINK) as nics, nics[1].server() as server, filled(nics, server, 2 << 20) as readers:
        for number in range(3):
            with nics[0].connect(server.getsockname()) as a:
                b, _ = server.accept()
                with b:
                    a.sendall(b"%d" % number)
                    assert read_all(b, 1) == b"%d" % number
        assert all(reader.is_alive() for reader in readers), "they waited for the link to be free"


@pytest.mark.slow
def test_ranks_on_slow_links_do_not_lose_each_other(tmp_path: Path) -> None:
    """Their control connections are idle, and answer keepalive probes while the links are full."""
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nfrom softnic import MPI\n"
        "data = np.zeros(1_150_000, np.float32)\n"
        "for _ in range(3):\n    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, data)\n"
        "assert not data.any()\n"
    )
    run = [sys.executable, "-m", "softnic", "run", "-n", "2", *LINK, "--", sys.executable, str(program)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
