"""softnic beside slirp4netns, pasta, the kernel's TCP, Gloo and Open MPI: `python -m benchmarks.peers`.

All of them run in network namespaces around a bridge, their links carry 1500-byte packets and are shaped by tbf, in the
same run. Needs root, `ip` and `tc`; peers that are not installed are named. For all of them:

  apt-get install iproute2 slirp4netns passt openmpi-bin libopenmpi-dev
  pip install torch mpi4py            # for the interpreter named by --python
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks import harness
from benchmarks.peers import collectives, namespaces, streams
from benchmarks.peers.namespaces import Nics, Star
from softnic.measure.report import MeasurementReport, Progress, columns
from softnic.units import medians_of

HOSTS = 4


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch and mpi4py (this one)")
    parser.add_argument("--what", nargs="+", choices=["streams", "allreduce"], default=["streams", "allreduce"])
    parser.add_argument("--stream-mb", type=int, default=256, help="of a stream (256)")
    parser.add_argument("--mb", type=float, default=100, help="of float32 a rank (100)")
    parser.add_argument("--rates", nargs="+", choices=list(namespaces.SHAPES), default=["1gbit", "10gbit"])
    parser.add_argument("--codecs", nargs="+", default=["bounded:10", "inceptionn:10"])
    parser.add_argument("--nic-codecs", nargs="+", default=["bounded:8"], help="of nonblocking calls (bounded:8)")
    harness.add_rounds(parser, 3)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Any]]:
    harness.require_namespaces()
    harness.set_rank_environment()
    settings = {**namespaces.settings(), "rounds": given.rounds, "megabytes": given.mb, "stream_mb": given.stream_mb}
    reports: list[MeasurementReport[Any]] = []
    with Star(HOSTS) as star, Nics(star) as nics:
        congestion = f"The kernel's TCP uses {settings['kernel_congestion_control']}."
        if "streams" in given.what:
            rows = streams.measure_streams(star, nics, given.stream_mb, given.rounds, progress)
            title = f"One stream between namespaces, packets of 1500 bytes, not shaped; {given.stream_mb} MB"
            notes = [f"Same two programs everywhere. {congestion}"]
            reports.append(
                MeasurementReport("peers: streams", title, columns(streams.StreamRow), rows, settings, notes)
            )
        if "allreduce" in given.what:
            peers = collectives.AllreducePeers(
                given.python, given.mb, given.rounds, tuple(given.rates), tuple(given.codecs), tuple(given.nic_codecs)
            )
            found = collectives.measure_allreduce(star, nics, peers, progress)
            title = f"All-reduce of {given.mb:g} MB over {HOSTS} namespaces, shaped links with packets of 1500 bytes"
            notes = [
                f"{medians_of(given.rounds, 'call').capitalize()}, after one to warm up; the slowest rank's time. "
                f"{congestion} "
                "Open MPI polls, so its CPU time covers waiting. softnic's floats lie in registered memory; "
                "nonblocking: Iallreduce and Wait. times bytes / rate: against the payload that the busiest NIC "
                "sent, at the links' rate. faster than Gloo: exact and in fp16, in this run; CPU: of Gloo's, exact. "
                "CPU of the machine has other programs' in it; that of ranks and daemons lacks the kernel's softirqs. "
                "hdc: gradients of the demo's classifier, instead of Gaussian floats of sigma 0.01."
            ]
            reports.append(
                MeasurementReport("peers: all-reduce", title, columns(collectives.AllreduceRow), found, settings, notes)
            )
    return reports


if __name__ == "__main__":
    sys.exit(harness.main("peers", __doc__, measured, add_options))
