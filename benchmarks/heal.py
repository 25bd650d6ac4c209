"""A process joins a job and takes its first step: `python -m benchmarks.heal`.

The state is a transformer of 8.1 million parameters with Adam's, after training on the bytes of a text. It goes over
emulated links: from one to three sources by softnic's transport, as bytes and by exact:32, and from one by torchft's
HTTP transport, whose sockets are the same NICs' by the library of `softnic exec`. Each source is a process on a node of
its own. Needs torch and torchft.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from softnic import preload
from softnic.cluster.cluster import Cluster
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns
from softnic.measure.timing import median, ratio
from softnic.units import medians_of, rate_bps

HTTP, SOFTNIC, EXACT = "torchft HTTP", "softnic", "softnic, exact:32"
CASES = (
    (HTTP, 1), (SOFTNIC, 1), (SOFTNIC, 2), (SOFTNIC, 3), (EXACT, 1), (EXACT, 2), (EXACT, 3),
)  # fmt: skip
_LIMIT_S = 180.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class HealRow:
    transport: str = column("transport")
    sources: int = column("sources", "d")
    received_s: float = column("received, s", ".2f")
    """Of recv_checkpoint."""
    of_http: float = column("of HTTP's", ".2f")
    """Median over rounds of the quotient of the same round."""
    of_rate: float = column("of bytes / rate", ".2f")
    stepped_s: float = column("start to first step, s", ".2f")
    """From the start of the process to the end of its first step."""
    cpu: float = column("CPU of a source, %", ".0f")
    """Of one core, with its NIC, while the state is received; the mean of the sources."""


@dataclass(frozen=True)
class _Figures:
    received_s: float
    stepped_s: float
    cpu: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", default="1gbit", help="of each link (1gbit)")
    parser.add_argument("--steps", type=int, default=40, help="of the training before (40)")
    harness.add_rounds(parser, 3)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[HealRow]]:
    if missing := [name for name in ("torch", "torchft") if importlib.util.find_spec(name) is None]:
        raise MeasurementError(f"not installed: {', '.join(missing)}")
    harness.set_rank_environment()
    found: dict[tuple[str, int], list[_Figures]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory) / "state.pt"
        progress(f"{given.steps} steps of training")
        size = _train(state, given.steps)
        with Cluster(nodes=1 + max(sources for _, sources in CASES), rate=given.rate) as cluster:
            for number in range(given.rounds):
                for transport, sources in CASES:
                    progress(f"round {number + 1}: {transport}, {sources} sources")
                    found[transport, sources].append(_heal(cluster, state, transport, sources))
    ideal_s = size * 8 / rate_bps(given.rate)
    http = [each.received_s for each in found[CASES[0]]]
    made = [
        HealRow(
            transport,
            sources,
            median(received := [each.received_s for each in rounds]),
            ratio(received, http),
            median(received) / ideal_s,
            median([each.stepped_s for each in rounds]),
            100 * median([each.cpu for each in rounds]),
        )
        for (transport, sources), rounds in found.items()
    ]
    rows = as_measured(made, columns(HealRow), progress)
    title = f"{size / 1e6:.0f} MB of state to a member that joins, links of {given.rate}"
    settings: dict[str, Any] = {name: getattr(given, name) for name in ("rate", "steps", "rounds")} | {"bytes": size}
    notes = [f"{medians_of(given.rounds, 'round').capitalize()}; cases by turns.", "Every received state was compared."]
    return [MeasurementReport("heal", title, columns(HealRow), rows, settings, notes)]


def _train(path: Path, steps: int) -> int:
    """Train the model, save its state, and return the bytes of its tensors."""
    import torch

    from benchmarks.heal_member import made, step

    text = torch.frombuffer(bytearray(Path(argparse.__file__).read_bytes()), dtype=torch.uint8)
    model, optimizer = made()
    for _ in range(steps):
        step(model, optimizer, text.long(), 4)
    state: dict[str, Any] = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "text": text,
        "steps": steps,
    }
    torch.save(state, path)
    tensors = [*state["model"].values(), text]
    tensors += [value for each in state["optimizer"]["state"].values() for value in each.values()]
    return sum(tensor.nbytes for tensor in tensors)


def _heal(cluster: Cluster, state: Path, transport: str, sources: int) -> _Figures:
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(_process(cluster, node, ["serve", transport, str(state)]))
            for node in range(1, sources + 1)
        ]
        metadata = [_line(each) for each in started]
        before = [_cpu(cluster, node, each) for node, each in enumerate(started, 1)]
        began = time.time()
        joiner = stack.enter_context(_process(cluster, 0, ["join", transport, str(state), *metadata]))
        result = json.loads(_line(joiner))
        after = [_cpu(cluster, node, each) for node, each in enumerate(started, 1)]
    if not result["same"]:
        raise MeasurementError(f"{transport} has altered the state")
    used = sum(late - early for late, early in zip(after, before, strict=True)) / sources
    return _Figures(result["received_s"], result["stepped_at"] - began, used / result["received_s"])


@contextlib.contextmanager
def _process(cluster: Cluster, node: int, arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a member on a node; the sockets of torchft's HTTP are the NIC's there."""
    environment = os.environ | cluster.env(node)
    if HTTP in arguments:
        environment |= preload.environment(cluster.controls[node])
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.heal_member", *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise MeasurementError(f"a member ended with exit code {process.wait(_LIMIT_S)}")
    return line


def _cpu(cluster: Cluster, node: int, process: subprocess.Popen[str]) -> float:
    """Return the CPU seconds of a source and of its NIC."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    fields = Path(f"/proc/{cluster.nics[node].pid}/stat").read_text().rpartition(")")[2].split()
    return float(_line(process)) + (int(fields[11]) + int(fields[12])) * _TICK_S


if __name__ == "__main__":
    sys.exit(harness.main("heal", __doc__, measured, add_options))
