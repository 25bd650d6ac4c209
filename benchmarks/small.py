"""Latency of a small all-reduce under torchrun, over softnic beside Gloo: `python -m benchmarks.small`.

The ranks run on this host, as `torchrun --nproc-per-node 4` starts them: softnic's share one NIC, Gloo's use the
loopback device. The same processes call both backends by turns. Needs torch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.small_rank import BACKENDS
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns
from softnic.measure.timing import median, ratio
from softnic.units import counted, medians_of

LIMIT_S = 600.0
"""Of the whole measurement."""


@dataclass(frozen=True)
class SmallRow:
    backend: str = column("backend")
    p50_us: float = column("p50, us", ".0f")
    """Of a call; median over ranks, and over rounds."""
    of_gloo: float = column("of Gloo's", ".3f")
    """Median over rounds of the quotient of the same round."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", type=int, default=4, dest="ranks", help="ranks (4)")
    parser.add_argument("--bytes", type=int, default=1024, help="of the float32 tensor (1024)")
    parser.add_argument("--calls", type=int, default=200, help="of each backend in a round (200)")
    harness.add_rounds(parser, 5)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[SmallRow]]:
    progress(f"all_reduce of {given.bytes} bytes, {given.ranks} ranks")
    rounds = _under_torchrun(given)
    taken = {backend: [figures[backend] for figures in rounds] for backend in BACKENDS}
    gloo = taken[BACKENDS[0]]
    made = [SmallRow(backend, median(own) * 1e6, ratio(own, gloo)) for backend, own in taken.items()]
    rows = as_measured(made, columns(SmallRow), progress)
    settings = {name: getattr(given, name) for name in ("ranks", "bytes", "calls", "rounds")}
    title = f"all_reduce of {given.bytes} bytes, {given.ranks} ranks of torchrun on this host"
    notes = [f"{medians_of(given.rounds, 'round').capitalize()} of {counted(given.calls, 'call')}; backends by turns."]
    return [MeasurementReport("small", title, columns(SmallRow), rows, settings, notes)]


def _under_torchrun(given: argparse.Namespace) -> list[dict[str, float]]:
    """Run the ranks and return what the first wrote. Raises MeasurementError if they fail."""
    harness.set_rank_environment()
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "rounds.json"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        torchrun += ["--nproc-per-node", str(given.ranks), "-m", "benchmarks.small_rank"]
        torchrun += ["--bytes", str(given.bytes), "--calls", str(given.calls), "--rounds", str(given.rounds)]
        try:
            done = subprocess.run(
                [*torchrun, "--output", str(output)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"torchrun did not end within {LIMIT_S:.0f} s") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise MeasurementError(f"torchrun ended with exit code {done.returncode}: {last}")
        rounds: list[dict[str, float]] = json.loads(output.read_text())
    return rounds


if __name__ == "__main__":
    sys.exit(harness.main("small", __doc__, measured, add_options))
