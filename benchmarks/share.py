"""A stream of softnic's beside one of the kernel's CUBIC on the same emulated link: what each of them gets.

python -m benchmarks.share, from the root of the checkout, as root.

Two network namespaces, each with the kernel's VXLAN device and a NIC, with a program between them that delays and
limits what both send (softnic/cluster/netns_lab/cable.py). One stream begins, the other one joins it, and after a while
the frames of both are counted where they arrive.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.path import KERNEL, SOFTNIC, environment_of, nics, round_trip, set_up_kernels, start_stream
from softnic import units
from softnic.cluster.netns_lab.cable import bad_cable
from softnic.cluster.netns_lab.host import WIRE_PORT, NetnsHost, missing
from softnic.cluster.nic_process import node_ip
from softnic.ipc.client import Client
from softnic.measure import timing
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns, share

NIC_PORT = WIRE_PORT + 1
"""Of the NICs: the kernels' VXLAN devices have the usual one."""
NODES = {KERNEL: (0, 1), SOFTNIC: (2, 3)}
"""The node that sends, and the one that receives, of each."""
ENDLESS = 10**15
"""Bytes."""
ALONE_S, JOINED_S = 3.0, 10.0
"""For which the first stream is alone, and for which both have time to find their shares."""


@dataclass(frozen=True)
class Row:
    rate: str = column("link")
    round_trip_ms: float = column("round trip, ms", ".0f")
    congestion: str = column("softnic's congestion control")
    first: str = column("began first")
    softnic: float = column("softnic, of the link", share)
    kernel: float = column("the kernel's CUBIC", share)
    missed: float = column("the cable missed", ".0f")
    """Frames that the program in the middle came too late for: the machine's losses, not the path's."""


@dataclass(frozen=True)
class Shares:
    """What arrived of each, as part of what the link lets through."""

    softnic: float
    kernel: float
    missed: int


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--delay", nargs="+", default=["10ms", "25ms", "50ms"], help="each way (10ms, 25ms and 50ms)")
    parser.add_argument("--congestion", nargs="+", default=["auto"], help="of softnic's stream (auto)")
    parser.add_argument("--seconds", type=float, default=30.0, help="in which frames are counted (30)")
    harness.add_rounds(parser, 3)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Row]]:
    if absent := missing():
        raise MeasurementError(absent)
    found: dict[tuple[str, str, str], list[Shares]] = {}
    for number in range(given.rounds):
        for delay, congestion, first in itertools.product(given.delay, given.congestion, (KERNEL, SOFTNIC)):
            what = f"{delay}, {congestion}, {first} first, round {number + 1} of {given.rounds}"
            progress(what)
            shares = _shares(given, delay, congestion, first, seed=number)
            progress(Measured(f"{what}: softnic {shares.softnic:.2f}, the kernel {shares.kernel:.2f}"))
            found.setdefault((delay, congestion, first), []).append(shares)
    rows = []
    for (delay, congestion, first), each in found.items():
        names = ("softnic", "kernel", "missed")
        medians = (timing.median([getattr(one, name) for one in each]) for name in names)
        rows.append(Row(given.rate, 2e3 * units.time_s(delay), congestion, first, *medians))
    settings = {name: value for name, value in vars(given).items() if name not in ("json", "markdown")}
    title = f"Two untagged streams on a link of {given.rate} whose queue holds a round trip"
    title += f", counted for {given.seconds:g} s; {units.medians_of(given.rounds, 'round')}"
    return [MeasurementReport("share", title, columns(Row), rows, settings)]


def _shares(given: argparse.Namespace, delay: str, congestion: str, first: str, seed: int) -> Shares:
    how = {"rate": given.rate, "delay": delay, "limit": round_trip(given.rate, delay)}
    with contextlib.ExitStack() as stack:
        left, right = stack.enter_context(NetnsHost()), stack.enter_context(NetnsHost())
        ports = (WIRE_PORT, NIC_PORT)
        cable = stack.enter_context(bad_cable(left, right, how, seed=seed, ports=ports))
        set_up_kernels(left, right)
        controls = stack.enter_context(nics((left, right), NODES[SOFTNIC], NIC_PORT))
        client = stack.enter_context(contextlib.closing(Client(controls[1])))
        for who in sorted(NODES, key=lambda each: each != first):
            stack.enter_context(_stream(who, left, right, controls, congestion if who == SOFTNIC else "cubic"))
            time.sleep(ALONE_S if who == first else JOINED_S)
        before, began = _arrived(client, right), time.monotonic()
        time.sleep(given.seconds)
        after, seconds = _arrived(client, right), time.monotonic() - began
        link = units.rate_bps(given.rate) / 8 * seconds
        softnic, kernel = ((now - then) / link for now, then in zip(after, before, strict=True))
        return Shares(softnic, kernel, cable.counters()["missed"])


@contextlib.contextmanager
def _stream(who: str, left: NetnsHost, right: NetnsHost, controls: list[Path], congestion: str) -> Iterator[None]:
    """Run both ends of a stream."""
    environments = [environment_of(control) for control in controls]
    processes = start_stream(left, right, who, environments, node_ip(NODES[who][1]), ENDLESS, congestion)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _arrived(client: Client, host: NetnsHost) -> tuple[int, int]:
    """Ethernet bytes that have come to the NIC, and to the kernel's device."""
    [device] = json.loads(host.run("ip", "-json", "-stats", "link", "show", "vx0"))
    return client.stats().counters["rx_wire_bytes"], device["stats64"]["rx"]["bytes"]


if __name__ == "__main__":
    sys.exit(harness.main("share", __doc__, measured, add_options))
