"""Kernels with NICs for tests, and whether this machine can have them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Self

from tests.facades.cluster import KernelCluster, SupervisedProcess, namespaces

PATIENCE_S = 300.0


def missing() -> str:
    """Why there can be no kernels of our own here; empty where there can."""
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


class Mixed(KernelCluster):
    """Node 0 has a kernel with a NIC, node 1 a NIC whose sockets are softnic's."""

    def nic_arguments(self, node: int) -> list[str]:
        return super().nic_arguments(node) if node == 0 else []

    def within(self, node: int, argv: Sequence[str]) -> list[str]:
        return super().within(node, argv) if node == 0 else list(argv)


class Program:
    """Python code that runs as a rank, with arguments; its output line by line."""

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
        """Its output is heard no more; the program itself goes with the cluster."""
        self._output.close()

    def line(self) -> str:
        return str(self._output.readline()).rstrip("\n")

    def end(self) -> str:
        """Returns the remaining output, and checks the exit status."""
        said = str(self._output.read())
        assert self.process.wait(PATIENCE_S) == 0, said
        return said
