"""A capture on a full disk: one log line reports it, and the part written is readable."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from softnic.capture.reader import read
from softnic.cluster.nic_process import read_stats
from tests.daemon.nics import WAIT_S, pair, read_all, running, until

LIMIT = 100_000


def test_a_capture_on_a_full_disk_stays_readable(tmp_path: Path) -> None:
    with running(2) as nics:
        file = tmp_path / "job.pcapng"
        command = [sys.executable, "-m", "softnic", "capture", "--nic", nics[0].path, "-o", str(file)]
        recorder = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT)),
        )
        with recorder:
            until(lambda: file.exists() and file.stat().st_size > 0)
            a, b = pair(nics)
            with a, b:
                a.sendall(bytes(300_000))
                read_all(b, 300_000)
                _, said = recorder.communicate(timeout=WAIT_S)
                assert recorder.returncode == 1
                assert said.strip().splitlines()[-1].startswith(f"softnic capture: {file}: File too large: ")
                assert 0 < file.stat().st_size <= LIMIT
                assert len(read(file)) > 10
                a.sendall(b"as before")
                assert read_all(b, 9) == b"as before"
        assert read_stats(Path(nics[0].path)).counters["capture_frames"] > 0
