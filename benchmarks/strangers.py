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
from statistics import median
from typing import Any

from softnic.bench.stream import FLOODER, Way, one_stream
from softnic.cluster import Cluster, node_ip
from softnic.commands import add_json, deliver_json
from softnic.experiments.child_process import ChildProcess
from softnic.experiments.measure import cpu_s

STARTED_CPU_S = 0.5
"""A flooder that has used so much is flooding."""
ALONE, ELSEWHERE, HERE = "alone", "beside a flood of another socket", "beside a flood of the NIC"


def main() -> int:
    given = _arguments()
    link = {} if given.rate is None else {"rate": given.rate}
    runs: dict[str, list[float]] = {}
    busy: dict[str, list[float]] = {}
    with Cluster(nodes=2, key=given.key, **link) as cluster, _nobody() as elsewhere:
        targets = {ALONE: "", ELSEWHERE: elsewhere, HERE: "{}:{}".format(*cluster.stats(1).info.wire)}
        daemons = [nic.pid for nic in cluster.nics]
        before = _dropped(cluster)
        for _ in range(given.rounds):
            for name, target in targets.items():
                with _flood(cluster, target, given.datagram, given.gso):
                    used = cpu_s(daemons)
                    found = one_stream(cluster.spawn, given.megabytes * 10**6, "gaussian:0.01", Way(node_ip(1)))
                    busy.setdefault(name, []).append((cpu_s(daemons) - used) / found.size * 1e9)
                runs.setdefault(name, []).append(found.mb_per_s)
        dropped = {name: count - before[name] for name, count in _dropped(cluster).items()}
    figures = {
        "mb_per_s": {name: median(each) for name, each in runs.items()},
        "daemons_cpu_s_per_gb": {name: median(each) for name, each in busy.items()},
        "of_flood_elsewhere": median(a / b for a, b in zip(runs[HERE], runs[ELSEWHERE], strict=True)),
        "of_alone": median(a / b for a, b in zip(runs[HERE], runs[ALONE], strict=True)),
        "dropped": dropped,
        "settings": {name: getattr(given, name) for name in ("megabytes", "rounds", "datagram", "gso", "rate", "key")},
    }
    if deliver_json(given.json, figures):
        _show(figures)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.strangers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=500, metavar="N", help="of a stream (500)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="medians of so many (5)")
    parser.add_argument("--datagram", type=int, default=64, metavar="BYTES", help="of the flood's datagrams (64)")
    parser.add_argument("--gso", action="store_true", help="as many a call as the kernel takes, not one by one")
    parser.add_argument("--rate", metavar="X", help="of emulated links, as in 1gbit (as fast as the machine)")
    parser.add_argument("--key", action="store_true", help="seal the stream's frames")
    add_json(parser)
    return parser.parse_args()


def _show(figures: dict[str, Any]) -> None:
    for name, rate in figures["mb_per_s"].items():
        print(f"{name:34} {rate:7.0f} MB/s, daemons {figures['daemons_cpu_s_per_gb'][name]:.2f} CPU s/GB")
    print(f"flood of the NIC / flood of another socket: {figures['of_flood_elsewhere']:.2f}")
    print(f"flood of the NIC / alone: {figures['of_alone']:.2f}")
    print(", ".join(f"{name} {count}" for name, count in figures["dropped"].items()))


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
    sys.exit(main())
