"""softnic beside slirp4netns, pasta, the kernel's TCP, Gloo and Open MPI: `python -m benchmarks.peers`.

All of them run in network namespaces around a bridge, their links carry 1500-byte packets and are shaped by tbf, in the
same run. Needs root, `ip` and `tc`; peers that are not installed are named. For all of them:

  apt-get install iproute2 slirp4netns passt openmpi-bin libopenmpi-dev
  pip install torch mpi4py            # for the interpreter named by --python
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from benchmarks.peers import collectives, namespaces, streams
from benchmarks.peers.namespaces import Nics, Star
from softnic.cluster import ClusterError
from softnic.cluster.netns_lab.host import HostError
from softnic.commands import add_json, deliver_json
from softnic.experiments.report import MeasurementError, Report

HOSTS = 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch and mpi4py (this one)")
    parser.add_argument("--what", nargs="+", choices=["streams", "allreduce"], default=["streams", "allreduce"])
    parser.add_argument("--stream-mb", type=int, default=256, help="of a stream (256)")
    parser.add_argument("--mb", type=float, default=100, help="of float32 a rank (100)")
    parser.add_argument("--rates", nargs="+", choices=list(namespaces.SHAPES), default=list(namespaces.SHAPES))
    parser.add_argument("--codecs", nargs="+", default=["bounded:10", "inceptionn:10"])
    parser.add_argument(
        "--nic-codecs", nargs="+", default=["bounded:8"], help="of the NICs' own all-reduce (bounded:8)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="medians of so many (3)")
    add_json(parser)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if os.geteuid() or shutil.which("ip") is None or shutil.which("tc") is None:
        print("benchmarks.peers: network namespaces need root, ip and tc (apt-get install iproute2)", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    # For the ranks of all: one thread each, the star's link, and this checkout.
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, f"{root}/daemons", *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        reports = _measure(given)
    except (MeasurementError, ClusterError, HostError) as error:
        print(f"benchmarks.peers: {error}", file=sys.stderr)
        return 1
    if deliver_json(given.json, [report.as_json() for report in reports]):
        for report in reports:
            report.show()
    return 0


def _measure(given: argparse.Namespace) -> list[Report[Any]]:
    settings = {**namespaces.settings(), "rounds": given.rounds, "megabytes": given.mb, "stream_mb": given.stream_mb}
    reports: list[Report[Any]] = []
    with Console(stderr=True).status("starting") as status, Star(HOSTS) as star, Nics(star) as nics:

        def progress(what: str) -> None:
            status.update(f"measuring {what}")

        congestion = f"The kernel's TCP uses {settings['kernel_congestion_control']}."
        if "streams" in given.what:
            rows = streams.measure_streams(star, nics, given.stream_mb, given.rounds, progress)
            title = f"One stream between namespaces, packets of 1500 bytes, not shaped; {given.stream_mb} MB"
            notes = [f"Same two programs everywhere. {congestion}"]
            reports.append(Report("peers: streams", title, streams.COLUMNS, rows, settings, notes))
        if "allreduce" in given.what:
            plan = collectives.Plan(
                given.python, given.mb, given.rounds, tuple(given.rates), tuple(given.codecs), tuple(given.nic_codecs)
            )
            found = collectives.measure_allreduce(star, nics, plan, progress)
            title = f"All-reduce of {given.mb:g} MB over {HOSTS} namespaces, shaped links with packets of 1500 bytes"
            notes = [
                f"Medians of {given.rounds} calls, after one to warm up; the slowest rank's time. {congestion} "
                "Open MPI polls, so its CPU time covers waiting. softnic's floats lie in registered memory; its NICs' "
                "all-reduce is Iallreduce, waited for. times bytes / rate: against the payload that the busiest NIC "
                "sent, at the links' rate. faster than Gloo: exact and in fp16, in this run. hdc: gradients of the "
                "demo's classifier, instead of Gaussian floats of sigma 0.01."
            ]
            reports.append(Report("peers: all-reduce", title, collectives.COLUMNS, found, settings, notes))
    return reports


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
