"""A stream of sealed datagrams through the relay of a meeting server, beside the same stream through a router.

python -m benchmarks.relay, from the root of the checkout, as root.

Three network namespaces in a row. The one in the middle forwards: as a router, by its kernel, and as a server, by the
relay of `softnic meet`. The sender offers datagrams at a constant rate, as batches that the kernel segments, and the
receiver counts what arrives.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from softnic import units
from softnic.cluster.netns_lab.host import NetnsHost, join, missing
from softnic.link.reach.token import Grant, Token
from softnic.measure import timing
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns, share

PORT = 9470
ROUTED, RELAYED = "a router", "the relay"
_ENDPOINT = ("-m", "benchmarks.relay_endpoint")


@dataclass(frozen=True)
class RelayRow:
    by: str = column("forwarded by")
    offered_gbps: float = column("offered, Gbit/s")
    arrived_gbps: float = column("arrived, Gbit/s")
    of_routed: float = column("of the router's", share)
    cpu_s_per_gb: float | None = column("CPU s/GB of the relay")


@dataclass(frozen=True)
class Stream:
    """Bytes and seconds of one stream, and CPU seconds of the server."""

    offered: int
    arrived: int
    seconds: float
    cpu_s: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", default="1gbit", help="of datagrams, as offered (1gbit)")
    parser.add_argument("--size", type=int, default=1450, metavar="BYTES", help="of datagrams (1450)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each stream (5)")
    harness.add_rounds(parser, 3)


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[RelayRow]]:
    if absent := missing():
        raise MeasurementError(absent)
    found: dict[str, list[Stream]] = {ROUTED: [], RELAYED: []}
    with _hosts() as (left, middle, right), _server(middle) as (server, secret):
        for number in range(given.rounds):
            for by, streams in found.items():
                what = f"{by}, round {number + 1} of {given.rounds}"
                progress(what)
                one = _stream(given, by, (left, right), server, secret)
                streams.append(one)
                progress(Measured(f"{what}: {units.text_rate(8 * one.arrived / one.seconds)}"))
    rates = {by: [8e-9 * each.arrived / each.seconds for each in streams] for by, streams in found.items()}
    cpu = [each.cpu_s / each.arrived * 1e9 for each in found[RELAYED]]
    rows = [
        RelayRow(
            by,
            timing.median([8e-9 * each.offered / each.seconds for each in streams]),
            timing.median(rates[by]),
            timing.ratio(rates[by], rates[ROUTED]),
            timing.median(cpu) if by == RELAYED else None,
        )
        for by, streams in found.items()
    ]
    settings = {name: value for name, value in vars(given).items() if name not in ("json", "markdown")}
    title = f"Datagrams of {given.size} bytes through the relay; {units.medians_of(given.rounds, 'round')}"
    return [MeasurementReport("relay", title, columns(RelayRow), rows, settings)]


@contextlib.contextmanager
def _hosts() -> Iterator[tuple[NetnsHost, NetnsHost, NetnsHost]]:
    with NetnsHost() as left, NetnsHost() as middle, NetnsHost() as right:
        join(left, middle, net=0)
        join(right, middle, net=1, devices=("eth0", "eth1"))
        middle.set(ip_forward=1)
        for host in (left, right):
            host.run("ip", "route", "add", "default", "via", host.peer)
        yield left, middle, right


@contextlib.contextmanager
def _server(host: NetnsHost) -> Iterator[tuple[subprocess.Popen[Any], Path]]:
    secret = host.directory / "meeting.secret"
    options = ("--listen", f"[::]:{PORT}", "--secret", str(secret), "--relay-rate", "100gbit")
    environment = os.environ | {"PYTHONPATH": harness.python_path()}
    process = host.start(
        sys.executable, "-m", "softnic", "meet", *options, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "listens" in line:
            break
    else:
        raise MeasurementError("softnic meet ended")
    yield process, secret


def _stream(
    given: argparse.Namespace, by: str, hosts: tuple[NetnsHost, NetnsHost], server: subprocess.Popen[Any], secret: Path
) -> Stream:
    grant = Grant(os.urandom(16), 2, int(time.time()) + 3600)
    key = bytes.fromhex(secret.read_text())
    ends = []
    for host in hosts:
        token = Token.make(key, [(host.peer, PORT)], grant, bytes(32)).text()
        environment = os.environ | {"PYTHONPATH": harness.python_path(), "SOFTNIC_TOKEN": token}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        ends.append(host.start(sys.executable, *_ENDPOINT, host.address, env=environment, **pipes))
    sender, receiver = ends
    ways = [_answer(each).split() for each in ends]  # where each reaches the other: directly, and by the relay
    to = ways[0][1 if by == RELAYED else 0]
    pid = int(server.pid)
    before = timing.cpu_s([pid])
    _ask(receiver, "receive")
    _answer(receiver)
    _ask(sender, f"send {to} {units.rate_bps(given.rate)} {given.size} {given.seconds}")
    offered, seconds = _answer(sender).split()
    time.sleep(0.2)
    _ask(receiver, "end")
    arrived = int(_answer(receiver))
    cpu = timing.cpu_s([pid]) - before
    for each in ends:
        each.communicate(timeout=10)
    if not arrived:
        raise MeasurementError(f"nothing arrived through {by} at {to}")
    return Stream(int(offered), arrived, float(seconds), cpu)


def _ask(process: subprocess.Popen[Any], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[Any]) -> str:
    assert process.stdout is not None
    line: str = process.stdout.readline()
    if not line:
        raise MeasurementError("an end of the stream failed")
    return line


if __name__ == "__main__":
    sys.exit(harness.main("relay", __doc__, measured, add_options))
