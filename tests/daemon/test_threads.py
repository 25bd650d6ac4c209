"""One socket used by two threads."""

from __future__ import annotations

import contextlib
import select
import sys
import threading
from collections.abc import Iterator

from softnic import socket
from tests.daemon.nics import WAIT_S, Nic


@contextlib.contextmanager
def other_threads_busy() -> Iterator[None]:
    """Run busy threads that delay and reorder switches between other threads."""
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=spin) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)


def test_a_thread_reads_what_arrives_before_connect_has_returned_in_another(nics: list[Nic]) -> None:
    with nics[0].server() as listening, other_threads_busy():
        for _ in range(100):
            with socket.socket(nic=nics[0].path) as s:
                s.settimeout(WAIT_S)
                thread = threading.Thread(target=s.connect, args=(listening.getsockname(),))
                thread.start()
                listening.accept()[0].close()
                assert select.select([s], [], [], WAIT_S)[0]
                assert s.recv(1) == b""
                thread.join()
