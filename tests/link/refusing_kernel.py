"""A kernel that refuses frames (refusing_kernel.c), for processes that a test starts."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
LIBRARY = "REFUSING_KERNEL"
SEED = "REFUSING_KERNEL_SEED"


def built(directory: Path) -> Path:
    """Return the library, compiled."""
    library = directory / "refusing_kernel.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


def run_with(library: Path, arguments: Sequence[str], **environment: str) -> None:
    """Run a Python process with this kernel. Raise AssertionError with what it wrote if it fails."""
    preload = " ".join(part for part in (os.environ.get("LD_PRELOAD"), str(library)) if part)
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "LD_PRELOAD": preload, LIBRARY: str(library), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class RefusingKernel:
    """The kernel of this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ[LIBRARY])
        self._library.refusals_left.restype = ctypes.c_size_t

    def refuse_as(self, answers: Sequence[int]) -> None:
        """Answer the next calls so: the messages accepted, or -errno."""
        self.script = (ctypes.c_int * len(answers))(*answers)
        self._library.refuse_as(self.script, ctypes.c_size_t(len(answers)))

    @property
    def left(self) -> int:
        """Number of answers not yet given."""
        return int(self._library.refusals_left())
