"""One stream over a long, lossy path, softnic's TCP beside the kernel's on the same emulated path in the same run.

python -m benchmarks.path, from the root of the checkout, as root.

Two network namespaces with a program between them that delays, limits and loses VXLAN frames
(softnic/cluster/netns_lab/cable.py), in both directions. In turn, both ends are kernels with VXLAN devices and TCP
buffers of up to 64 MiB, and softnic's NICs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from softnic import units
from softnic.cluster.netns_lab.cable import bad_cable
from softnic.cluster.netns_lab.host import NIC_MTU, WIRE_PORT, NetnsHost, missing
from softnic.cluster.nic_process import nic_command, node_ip, run_nic
from softnic.cluster.supervisor import ProcessSupervisor
from softnic.measure import timing
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns, share
from softnic.tcp.algorithms import ALGORITHMS

KERNEL, SOFTNIC = "kernel", "softnic"
BUFFERS = "4096 131072 67108864"
FRAME = (NIC_MTU - 52) / (NIC_MTU + 14)
"""Payload of a full Ethernet frame, as the cable counts it."""
LIMIT_S = 180.0
Process = subprocess.Popen[str]


@dataclass(frozen=True)
class Row:
    loss: str = column("loss")
    who: str = column("TCP")
    congestion: str = column("congestion control")
    mb_per_s: float = column("MB/s", ".1f")
    of_link: float = column("of the link's rate", share)
    """Full frames that its payload takes, as part of what the link lets through."""
    queue_full: float = column("frames its queue dropped", ".0f")
    """Frames that found the bottleneck's queue full."""
    missed: float = column("the cable missed", ".0f")
    """And those that the program in the middle came too late for: the machine's losses, not the path's."""


@dataclass(frozen=True)
class Stream:
    """One of them."""

    bytes_per_s: float
    """From its first byte to its last."""
    dropped: dict[str, int]
    """As `Cable.counters` has them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--delay", default="10ms", help="each way (10ms)")
    parser.add_argument(
        "--queue", metavar="SIZE", help="of the bottleneck, such as 256kb (what the link sends in one round trip)"
    )
    parser.add_argument("--loss", nargs="+", default=["0%", "0.1%"], help="in each direction (0%% and 0.1%%)")
    parser.add_argument("--congestion", nargs="+", default=["cubic", "bbr"], choices=list(ALGORITHMS))
    parser.add_argument("--seconds", type=float, default=10.0, help="that a stream would take at the link's rate (10)")
    harness.add_rounds(parser, 3)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Row]]:
    if absent := missing():
        raise MeasurementError(absent)
    found: dict[tuple[str, str, str], list[Stream]] = {}
    for number in range(given.rounds):
        for loss, congestion, who in itertools.product(given.loss, given.congestion, (KERNEL, SOFTNIC)):
            what = f"{who}, {congestion}, {loss}, round {number + 1} of {given.rounds}"
            progress(what)
            stream = _stream(who, congestion, loss, given, seed=number)
            progress(Measured(f"{what}: {stream.bytes_per_s / 1e6:.1f} MB/s"))
            found.setdefault((loss, who, congestion), []).append(stream)
    link = units.rate_bps(given.rate) / 8
    rows = []
    for (loss, who, congestion), streams in found.items():
        rate = timing.median([stream.bytes_per_s for stream in streams])
        full, missed = (
            timing.median([stream.dropped[name] for stream in streams]) for name in ("dropped_full", "missed")
        )
        rows.append(Row(loss, who, congestion, rate / 1e6, rate / FRAME / link, full, missed))
    settings = {name: value for name, value in vars(given).items() if name not in ("json", "markdown")}
    queue = given.queue or "one round trip"
    title = f"One untagged stream, {given.rate}, {given.delay} each way, a queue of {queue}"
    title += f"; {units.medians_of(given.rounds, 'round')}"
    return [
        MeasurementReport(
            "path", title, columns(Row), rows, settings, ["A stream is cut off after three minutes at most."]
        )
    ]


def _stream(who: str, congestion: str, loss: str, given: argparse.Namespace, seed: int) -> Stream:
    lossless = units.probability(loss) == 0
    size = int(units.rate_bps(given.rate) / 8 * given.seconds * (1 if lossless or congestion == "bbr" else 0.1))
    how = {"rate": given.rate, "delay": given.delay, "limit": given.queue or round_trip(given.rate, given.delay)}
    if not lossless:
        how["loss"] = loss
    with contextlib.ExitStack() as stack:
        left, right = stack.enter_context(NetnsHost()), stack.enter_context(NetnsHost())
        cable = stack.enter_context(bad_cable(left, right, how, seed=seed))
        environments = stack.enter_context(_ends(who, left, right))
        rate = _measured(left, right, who, environments, size, congestion)
        return Stream(rate, cable.counters())


def round_trip(rate: str, delay: str) -> str:
    """Return what the link sends in one, as a size."""
    return f"{round(units.rate_bps(rate) / 8 * 2 * units.time_s(delay))}b"


@contextlib.contextmanager
def _ends(who: str, left: NetnsHost, right: NetnsHost) -> Iterator[list[dict[str, str]]]:
    """What the two programs find in their environment."""
    if who == KERNEL:
        set_up_kernels(left, right)
        yield [dict(os.environ)] * 2
        return
    with nics((left, right), (0, 1)) as controls:
        yield [environment_of(control) for control in controls]


def set_up_kernels(left: NetnsHost, right: NetnsHost) -> None:
    """Make the two hosts nodes 0 and 1 by VXLAN devices, with TCP buffers of up to 64 MiB."""
    for number, host in enumerate((left, right)):
        host.vxlan(number)
        host.set(tcp_rmem=BUFFERS, tcp_wmem=BUFFERS)


@contextlib.contextmanager
def nics(hosts: tuple[NetnsHost, NetnsHost], nodes: tuple[int, int], port: int = WIRE_PORT) -> Iterator[list[Path]]:
    """Run a NIC on each of two hosts, with the numbers of their nodes. Yield their control sockets."""
    supervisor = ProcessSupervisor()
    try:
        yield [
            _nic(supervisor, host, own, other, port) for host, own, other in zip(hosts, nodes, nodes[::-1], strict=True)
        ]
    finally:
        supervisor.stop()


def _nic(supervisor: ProcessSupervisor, host: NetnsHost, own: int, other: int, port: int) -> Path:
    control, log = (host.directory / f"node{own}.{kind}" for kind in ("sock", "log"))
    peers = {node_ip(other): f"{host.peer}:{WIRE_PORT}"}
    argv = [*nic_command(control, node_ip(own), f"{host.address}:{port}", peers), "--mtu", str(NIC_MTU)]
    run_nic(supervisor, host.command(argv), log, f"the NIC of node {own}")
    return control


def environment_of(control: Path) -> dict[str, str]:
    """Return the environment of a program that uses a NIC."""
    return {**os.environ, "SOFTNIC_NIC": str(control)}


def _measured(
    left: NetnsHost, right: NetnsHost, who: str, environments: list[dict[str, str]], size: int, congestion: str
) -> float:
    writer, reader = start_stream(left, right, who, environments, node_ip(1), size, congestion)
    started = float(_told(writer)["started"])
    ended = float(_told(reader)["ended"])
    reader.wait(LIMIT_S)
    writer.wait(LIMIT_S)
    return size / (ended - started)


def start_stream(
    left: NetnsHost,
    right: NetnsHost,
    who: str,
    environments: list[dict[str, str]],
    address: str,
    size: int,
    congestion: str,
) -> tuple[Process, Process]:
    """Start what writes on the left host, and what reads on the right one, at this address."""
    common = ("--way", "nic" if who == SOFTNIC else KERNEL, "--bytes", str(size))

    def start(host: NetnsHost, environment: dict[str, str], role: str, *more: str) -> Process:
        argv = [sys.executable, "-m", "softnic.bench.stream_endpoints", role, *common, *more]
        process: Process = host.start(*argv, env=environment, stdout=subprocess.PIPE, text=True)
        return process

    reader = start(right, environments[1], "read", "--host", address)
    to = f"{address}:{_told(reader)['port']}"
    return start(left, environments[0], "write", "--to", to, "--congestion", congestion), reader


def _told(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    said: dict[str, Any] = json.loads(process.stdout.readline())
    return said


if __name__ == "__main__":
    sys.exit(harness.main("path", __doc__, measured, add_options))
