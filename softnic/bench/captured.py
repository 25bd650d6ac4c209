"""A capture that runs beside a measurement: `softnic capture` in a process of its own, into a file in memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from softnic.measure.report import MeasurementError

_MEMORY = Path("/dev/shm")
_START_S = 30.0
_END_S = 60.0
_TICK_S = 0.02


@dataclass
class CapturedPackets:
    """What a capture has recorded, known when it has ended."""

    packets: int = 0
    dropped: int = 0
    """Packets that the NICs left out, because the recording process was too slow."""


@contextmanager
def captured(controls: Sequence[Path], snaplen: int = 0) -> Iterator[CapturedPackets]:
    """Capture both sides of the NICs at these control sockets while the context is active; the file is then removed.

    Raises MeasurementError.
    """
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        file, summary = Path(folder, "stream.pcapng"), Path(folder, "summary.json")
        nics = [argument for path in controls for argument in ("--nic", str(path))]
        limit = ["--snaplen", str(snaplen)] if snaplen else []
        command = [sys.executable, "-m", "softnic", "capture", *nics, *limit, "-o", str(file), "--json", str(summary)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
            try:
                _wait_until_started(recorder, file)
                found = CapturedPackets()
                yield found
                recorder.send_signal(signal.SIGINT)
                if recorder.wait(_END_S):
                    raise MeasurementError("softnic capture failed")
            finally:
                recorder.kill()
        result = json.loads(summary.read_text())
        found.packets, found.dropped = result["packets"], result["dropped"]


def _wait_until_started(recorder: subprocess.Popen[bytes], file: Path) -> None:
    """Wait until the NICs capture: the head of the file is written then."""
    until = time.monotonic() + _START_S
    while not file.exists() or not file.stat().st_size:
        if recorder.poll() is not None or time.monotonic() > until:
            raise MeasurementError("softnic capture does not start")
        time.sleep(_TICK_S)
