"""Hosts whose kernel uses a NIC, for tests, and a check whether this machine supports them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Self

from softnic.cluster.kernel import KernelCluster
from softnic.cluster.supervisor import SupervisedProcess
from softnic.tapnic import namespaces

PATIENCE_S = 300.0


def missing() -> str:
    """Return why network namespaces cannot be created here; empty if they can."""
    with subprocess.Popen(
        namespaces.program("hold"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        number = holder.stdout.readline()
        try:
            if not number:
                return f"no network namespaces here: {holder.stderr.read().strip()}"
            os.close(namespaces.open_tap_in(int(number), "probe0", b"\x02\0\0\0\0\x01", 1500, "10.77.0.1", 24))
        except OSError as error:
            return f"no TAP devices here: {error.strerror}"
        finally:
            holder.stdin.close()
    return ""


class Program:
    """A Python program that runs as a rank; its output is read line by line."""

    def __init__(self, cluster: KernelCluster, rank: int, code: str, *arguments: object) -> None:
        null = os.open(os.devnull, os.O_RDONLY)
        read, write = os.pipe()
        try:
            argv = [sys.executable, "-c", code, *map(str, arguments)]
            self.process: SupervisedProcess = cluster.spawn(rank, argv, [null, write, write])
        finally:
            os.close(null)
            os.close(write)
        self._output: Any = os.fdopen(read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the output; the cluster ends the program itself."""
        self._output.close()

    def line(self) -> str:
        return str(self._output.readline()).rstrip("\n")

    def end(self) -> str:
        """Return the remaining output, and check the exit status."""
        said = str(self._output.read())
        assert self.process.wait(PATIENCE_S) == 0, said
        return said
