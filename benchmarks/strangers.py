"""What a flood of strangers' datagrams does to a running stream.

A process that is no peer sends datagrams to a NIC as fast as it can while a stream runs between that NIC and its peer.
On one machine the flooder takes a core from everybody, whatever the NIC does. So the stream is measured three ways in
turn: alone, beside a flooder that sends as much to a socket nobody reads, and beside one that sends to the NIC. The
last of them beside the second is what the NIC's handling of strangers costs; beside the first, what a user sees.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import harness
from softnic.bench.stream import FLOODER, StreamRoute, one_stream
from softnic.cluster.cluster import Cluster
from softnic.cluster.nic_process import node_ip
from softnic.measure.child_process import ChildProcess
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.measure.timing import cpu_s, median, ratio

STARTED_CPU_S = 0.5
"""A flooder that has used so much is flooding."""
ALONE, ELSEWHERE, HERE = "alone", "beside a flood of another socket", "beside a flood of the NIC"


@dataclass(frozen=True)
class FloodRow:
    case: str = column("stream")
    mb_per_s: float = column("MB/s", ".0f")
    of_alone: float = column("of alone")
    of_flood_elsewhere: float = column("of a flood of another socket")
    daemons_cpu_s_per_gb: float = column("CPU s/GB, daemons")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=int, default=500, metavar="N", help="of a stream (500)")
    harness.add_rounds(parser, 5)
    parser.add_argument("--datagram", type=int, default=64, metavar="BYTES", help="of the flood's datagrams (64)")
    parser.add_argument("--gso", action="store_true", help="many datagrams per system call, not one")
    parser.add_argument("--rate", metavar="X", help="of emulated links, as in 1gbit (as fast as the machine)")
    parser.add_argument("--key", action="store_true", help="encrypt the stream's frames")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[FloodRow]]:
    link = {} if given.rate is None else {"rate": given.rate}
    rates: dict[str, list[float]] = {}
    busy: dict[str, list[float]] = {}
    with Cluster(nodes=2, key=given.key, **link) as cluster, _nobody() as elsewhere:
        targets = {ALONE: "", ELSEWHERE: elsewhere, HERE: "{}:{}".format(*cluster.stats(1).info.wire)}
        daemons = [nic.pid for nic in cluster.nics]
        before = _dropped(cluster)
        for number in range(given.rounds):
            for name, target in targets.items():
                what = f"{name}, round {number + 1} of {given.rounds}"
                progress(what)
                with _flood(cluster, target, given.datagram, given.gso):
                    used = cpu_s(daemons)
                    found = one_stream(cluster.spawn, given.megabytes * 10**6, "gaussian:0.01", StreamRoute(node_ip(1)))
                    busy.setdefault(name, []).append((cpu_s(daemons) - used) / found.size * 1e9)
                rates.setdefault(name, []).append(found.mb_per_s)
                progress(Measured(f"{what}: {found.mb_per_s:.0f} MB/s"))
        dropped = ", ".join(f"{name} {count - before[name]}" for name, count in _dropped(cluster).items())
    rows = [
        FloodRow(name, median(own), ratio(own, rates[ALONE]), ratio(own, rates[ELSEWHERE]), median(busy[name]))
        for name, own in rates.items()
    ]
    settings = {name: getattr(given, name) for name in ("megabytes", "rounds", "datagram", "gso", "rate", "key")}
    return [
        MeasurementReport(
            "strangers", "One stream beside floods from an unknown source", columns(FloodRow), rows, settings, [dropped]
        )
    ]


@contextlib.contextmanager
def _nobody() -> Iterator[str]:
    """A UDP socket that is never read, and so full soon."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        yield "{}:{}".format(*bound.getsockname())


@contextlib.contextmanager
def _flood(cluster: Cluster, target: str, datagram: int, gso: bool) -> Iterator[None]:
    """Of this address, from now on; of none where that is empty."""
    if not target:
        yield
        return
    options = ("--to", target, "--seconds", "600", "--datagram", str(datagram), *(() if gso else ("--single",)))
    with ChildProcess(cluster.spawn, 0, FLOODER, "write", *options) as flooder:
        while cpu_s([flooder.pid]) < STARTED_CPU_S:
            time.sleep(0.01)
        yield


def _dropped(cluster: Cluster) -> dict[str, int]:
    names = ("link_dropped_unknown_source", "link_unknown_source_floods", "link_kernel_dropped_datagrams")
    counters = cluster.stats(1).counters
    return {name: counters[name] for name in names}


if __name__ == "__main__":
    sys.exit(harness.main("strangers", __doc__, measured, add_options))
