"""Memory that another process changes continuously, as a faulty program may change memory that its NIC is sending."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

WORDS = 160
QUIET, LOUD = np.zeros(WORDS, np.float32), np.full(WORDS, 1.1, np.float32)
LOUD[:16] = 0.01
LOUD[40:48] = np.inf
_CHANGES = """
import mmap, sys
memory = mmap.mmap(int(sys.argv[1]), int(sys.argv[2]))
states = [bytes.fromhex(text) for text in sys.argv[3:]]
size = len(states[0])
print(flush=True)
while True:
    for state in states:
        memory[:size] = state
"""


@contextmanager
def changing() -> Iterator[mmap.mmap]:
    """Yield WORDS words that alternate between QUIET and LOUD at any time."""
    descriptor = os.memfd_create("changing")
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        arguments = [str(descriptor), str(mmap.PAGESIZE), QUIET.tobytes().hex(), LOUD.tobytes().hex()]
        command = [sys.executable, "-S", "-c", _CHANGES, *arguments]
        with subprocess.Popen(command, pass_fds=[descriptor], stdout=subprocess.PIPE) as changer:
            try:
                assert changer.stdout is not None
                changer.stdout.readline()
                yield memory
            finally:
                changer.kill()
    finally:
        os.close(descriptor)
