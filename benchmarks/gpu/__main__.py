"""Training on GPUs over softnic, beside Gloo and NCCL, in at most four minutes: `python -m benchmarks.gpu`.

4 ranks on this machine, which share its GPUs. Over Gloo and NCCL they talk by the loopback device and by NVLink or
shared memory; over softnic by one NIC that they share ("loopback"), or each by a NIC of its own on an emulated link of
10 or 25 Gbit/s. Backends take turns. NCCL needs a GPU for each of two ranks; softnic's kernels need Triton.

With `--device cpu` the same is done on tensors of the host, with a model of 0.1 million parameters, and without copies
and kernels.

  python -m benchmarks.gpu --json gpu.json
  python -m benchmarks.gpu --only all_reduce --links 10gbit --bytes 100000000
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import harness
from softnic.cluster.cluster import Cluster
from softnic.cluster.supervisor import ProcessSupervisor
from softnic.measure import timing
from softnic.measure.child_process import ChildProcess, ChildProcesses, rank_processes
from softnic.measure.progress import Measured, as_measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns

RANKS = 4
LOOPBACK = "loopback"
DELAY = "20us"
LIMIT_S = 240.0
"""Of the whole measurement: what has not begun by then is left out."""
SIZES = (4 << 10, 4 << 20, 25_000_000, 100_000_000)
_LONG_BYTES = 1 << 20
"""Tensors from here on are compared with the rate of their link."""
PARTS = ("device", "all_reduce", "ddp", "fsdp2")
REFERENCE = ("gloo", "exact")
Source = tuple[str, str]
"""A backend and its link."""


@dataclass(frozen=True)
class DeviceRow:
    kind: str = column("what")
    what: str = column("of")
    gb_s: float = column("GB/s", ".1f")


@dataclass(frozen=True)
class ExchangeRow:
    what: str = column("what")
    backend: str = column("backend")
    link: str = column("link")
    way: str = column("floats")
    ms: float = column("ms", ".1f")
    """Median over rounds and calls; of training, of a step."""
    of_gloo: float = column("of Gloo's", ".2f")
    of_bytes: float | None = column("of bytes / rate", ".2f")
    """Of the time that the bytes which a rank sends need on its link, in an all-reduce that is not compressed."""
    cpu_ms: float = column("CPU ms a rank", ".1f")
    """Of the rank and its share of the NICs."""
    loss: float | None = column("loss", ".4f", default=None)


class Jobs:
    """Ranks of all backends and links, which are started once and wait for orders."""

    def __init__(self, stack: ExitStack, sources: Sequence[Source], device: str, progress: Progress) -> None:
        self._nics: dict[Source, list[int]] = {}
        self._ranks: dict[Source, ChildProcesses] = {}
        for source in sources:
            progress(f"start of {' '.join(source)}")
            self._ranks[source] = self._started(stack, source, device)

    def _started(self, stack: ExitStack, source: Source, device: str) -> ChildProcesses:
        backend, link = source
        options = ["--backend", backend, "--device", device, "--master", f"tcp://127.0.0.1:{_free_port()}"]

        if backend == "softnic":
            is_shaped = link != LOOPBACK
            shape = (RANKS, link, DELAY) if is_shaped else (1, None, None)
            cluster = stack.enter_context(Cluster(shape[0], rate=shape[1], delay=shape[2], queues="auto"))
            self._nics[source] = [nic.pid for nic in cluster.nics]

            def start(rank: int, argv: Sequence[str], descriptors: Sequence[int]) -> Any:
                return cluster.spawn(rank % cluster.nodes, argv, descriptors)
        else:
            supervisor = ProcessSupervisor()
            stack.callback(supervisor.stop)
            self._nics[source] = []

            def start(rank: int, argv: Sequence[str], descriptors: Sequence[int]) -> Any:  # noqa: ARG001
                return supervisor.start(argv, descriptors, os.environ | {"GLOO_SOCKET_IFNAME": "lo"})

        ranks = rank_processes(start, RANKS, "benchmarks.gpu.rank", *options, numbered=True, limit_s=LIMIT_S)
        return stack.enter_context(ranks)

    def order(self, source: Source, *words: str) -> tuple[list[dict[str, Any]], float]:
        """Give an order. Returns what the ranks report, and the CPU time of NICs for each rank."""
        before = timing.cpu_s(self._nics[source])
        found = self._ranks[source].order(*words)
        return found, (timing.cpu_s(self._nics[source]) - before) / RANKS


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def all_reduces(
    jobs: Jobs, ways: Sequence[tuple[Source, str]], given: argparse.Namespace, until: float, progress: Progress
) -> Iterator[ExchangeRow]:
    for size in given.bytes:
        calls = 3 if size > 1 << 24 else 20
        times: dict[tuple[Source, str], list[float]] = {way: [] for way in ways}
        cpu: dict[tuple[Source, str], list[float]] = {way: [] for way in ways}
        for number in range(given.rounds):
            for source, way in ways:
                if time.monotonic() > until:
                    return
                progress(f"all-reduce of {size} bytes, {' '.join(source)} {way}, round {number + 1}")
                found, nics_s = jobs.order(source, "all_reduce", way, str(size), str(calls))
                slowest = [max(each) for each in zip(*(rank["seconds"] for rank in found), strict=True)]
                times[source, way].append(timing.median(slowest))
                own = timing.median([rank["cpu_s"] for rank in found])
                cpu[source, way].append(own + nics_s / (calls + 2))
        gloo = times[ways[0]]
        for (backend, link), way in ways:
            own_s = times[(backend, link), way]
            ms = timing.median(own_s) * 1e3
            least = _least_s(size, link) if way == "exact" else None
            yield ExchangeRow(
                f"all-reduce {size / 1e6:.3g} MB",
                backend,
                link,
                way,
                ms,
                timing.ratio(own_s, gloo),
                None if least is None else ms / 1e3 / least,
                timing.median(cpu[(backend, link), way]) * 1e3,
            )


def trainings(
    jobs: Jobs,
    what: str,
    ways: Sequence[tuple[Source, str]],
    given: argparse.Namespace,
    until: float,
    progress: Progress,
) -> Iterator[ExchangeRow]:
    gloo_s = None
    for source, way in ways:
        if time.monotonic() > until:
            return
        program = "ddp" if (source[0], way) == REFERENCE else what
        progress(f"{program}, {' '.join(source)} {way}")
        found, nics_s = jobs.order(source, program, way, str(given.steps))
        step_s = max(rank["step_s"] for rank in found)
        gloo_s = gloo_s or step_s
        own = timing.median([rank["cpu_s"] for rank in found]) + nics_s / given.steps
        loss = sum(rank["loss"] for rank in found) / RANKS
        yield ExchangeRow(f"{program} step", *source, way, step_s * 1e3, step_s / gloo_s, None, own * 1e3, loss)


def _least_s(size: int, link: str) -> float | None:
    """Return the time that the bytes of a rank in an exact all-reduce need on its link."""
    if link == LOOPBACK or size < _LONG_BYTES:
        return None
    return 2 * (RANKS - 1) / RANKS * size / (float(link.removesuffix("gbit")) * 1e9 / 8)


def device_rows(progress: Progress) -> list[DeviceRow]:
    """Measure copies and kernels in a process of their own."""
    supervisor = ProcessSupervisor()

    def start(_: int, argv: Sequence[str], descriptors: Sequence[int]) -> Any:
        return supervisor.start(argv, descriptors, os.environ)

    rows: list[DeviceRow] = []
    try:
        with ChildProcess(start, 0, "benchmarks.gpu.device") as child:
            while "gb_s" in (event := child.receive(LIMIT_S)):
                rows += as_measured(
                    [DeviceRow(event["kind"], event["what"], event["gb_s"])], columns(DeviceRow), progress
                )
            progress(Measured(f"{event['name']}, torch {event['torch']}"))
    finally:
        supervisor.stop()
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="of the tensors (cuda)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured (all of it)")
    parser.add_argument("--links", nargs="+", default=[LOOPBACK, "10gbit", "25gbit"], help="of softnic's ranks")
    parser.add_argument("--bytes", nargs="+", type=int, default=list(SIZES), help="of the tensors that are summed")
    parser.add_argument("--codec", default="rht:4", help="of softnic's compressed exchange (rht:4)")
    parser.add_argument(
        "--steps", type=int, default=15, help="of each training (15); 1000 shows what becomes of the loss"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help=f"seconds, after which no more is begun ({LIMIT_S:.0f})"
    )
    harness.add_rounds(parser, 3)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Any]]:
    if given.device == "cuda" and not torch.cuda.is_available():
        raise MeasurementError("torch finds no GPU here; --device cpu measures the same on tensors of the host")
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": harness.python_path()}
    until = time.monotonic() + given.limit
    settings = {name: str(value) for name, value in vars(given).items()}
    reports: list[MeasurementReport[Any]] = []
    if "device" in given.only and given.device == "cuda":
        rows = device_rows(progress)
        title = "Copies, and kernels by bytes of floats"
        reports.append(MeasurementReport("gpu: device", title, columns(DeviceRow), rows, settings))
    parts = [part for part in given.only if part != "device"]
    if parts:
        reports.append(_exchanges(given, parts, until, settings, progress))
    return reports


def _exchanges(
    given: argparse.Namespace, parts: Sequence[str], until: float, settings: dict[str, str], progress: Progress
) -> MeasurementReport[Any]:
    gloo: Source = ("gloo", LOOPBACK)
    nccl: list[Source] = []
    if given.device == "cuda" and torch.cuda.device_count() >= RANKS:
        nccl = [("nccl", LOOPBACK)]
    ours: list[Source] = [("softnic", link) for link in given.links]
    exact_and_codec = [(source, way) for source in ours for way in ("exact", given.codec)]
    exchange = [(gloo, "exact"), *((source, "exact") for source in nccl), *exact_and_codec]
    ddp = [(gloo, "exact"), (gloo, "fp16"), *exchange[1:], *((source, "auto") for source in ours)]
    sharded = [(gloo, "exact"), *exact_and_codec]
    rows: list[ExchangeRow] = []
    notes: list[str] = []
    with ExitStack() as stack:
        jobs = Jobs(stack, [gloo, *nccl, *ours], given.device, progress)
        if "all_reduce" in parts:
            rows += as_measured(all_reduces(jobs, exchange, given, until, progress), columns(ExchangeRow), progress)
        for what, ways in (("ddp", ddp), ("fsdp2", sharded)):
            if what in parts:
                steps = trainings(jobs, what, ways, given, until, progress)
                rows += as_measured(steps, columns(ExchangeRow), progress)
    if time.monotonic() > until:
        notes.append(f"Ended after {given.limit:.0f} s: --only and --links measure a part, --limit gives more time.")
    notes.append("of Gloo's: of the first row of the same part. A step of fsdp2 is compared with one of DDP over Gloo.")
    title = f"{RANKS} ranks, tensors on {given.device}, links with {DELAY} of delay"
    return MeasurementReport("gpu: exchange", title, columns(ExchangeRow), rows, settings, notes)


if __name__ == "__main__":
    sys.exit(harness.main("gpu", __doc__, measured, add_options))
