"""One stream of a kernel's TCP through two NICs that are the kernels', beside a loop that only copies packets from one
TAP device to another: what such a device gives at most to whoever reads it in Python.

python -m benchmarks.tap [--seconds 2] [--rounds 5] [--mtu 1500] [--codec bounded:10] [--congestion cubic]
    [--json FILE]

The kernels' congestion control is CUBIC, whatever the system's own is: BBR sends by timers, at the rate that it
believes in, and so measures itself where cores are shared. Takes no privilege, but network namespaces and /dev/net/tun.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import harness
from softnic.cluster.kernel import KernelCluster
from softnic.cluster.nic_process import node_ip
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementReport, Progress, column, columns
from softnic.measure.timing import cpu_s
from softnic.packet.ethernet import mac_of
from softnic.packet.ipv4 import address
from softnic.tapnic import namespaces

PORT = 5000
Within = Callable[[int, Sequence[str]], list[str]]
"""What runs a command at one of two nodes."""

_SENDER = """
import socket, sys, time
import numpy as np
words = np.random.default_rng(7).normal(0, 0.01, 1 << 20).astype(np.float32)
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[5].encode())
    if int(sys.argv[3]):
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[3]))
    until = time.monotonic() + float(sys.argv[4])
    while time.monotonic() < until:
        s.sendall(words)
    s.shutdown(socket.SHUT_WR)
    s.recv(1)
"""
_RECEIVER = """
import socket, sys, time
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print(flush=True)
    peer, _ = server.accept()
    into = bytearray(1 << 20)
    came = peer.recv_into(into)
    began, first = time.monotonic(), came
    while got := peer.recv_into(into):
        came += got
    print(came - first, time.monotonic() - began, flush=True)
"""
_LOOP = """
import os, select, sys
left, right = map(int, sys.argv[1:3])
buffer = bytearray(1 << 17)
view, into = memoryview(buffer), [buffer]
poll = select.poll()
for end in (left, right):
    poll.register(end, select.POLLIN)
while True:
    for end, _ in poll.poll():
        out = right if end == left else left
        try:
            for _ in range(64):
                os.write(out, view[: os.readv(end, into)])
        except BlockingIOError:
            pass
"""


@dataclass
class Result:
    case: str = column("")
    gbit_per_s: float = column("Gbit/s")
    """Bytes that the receiving program got; median over rounds."""
    lowest: float = column("from")
    highest: float = column("to")
    of_loop: float = column("of the loop")
    """Share of what the copy loop gave, median of the rounds' shares."""
    cpu_s_per_gb: float = column("CPU s/GB between")
    """Of the NICs, or of the loop: user and system time, what the kernels' TCP does in their calls included."""


def stream(within: Within, workers: Sequence[int], tos: int, *, seconds: float, congestion: str) -> tuple[float, float]:
    """Gbit/s from node 0 to node 1, and the CPU seconds a GB of the processes between them."""
    where = [node_ip(1), str(PORT)]
    receiver = within(1, [sys.executable, "-c", _RECEIVER, *where])
    with subprocess.Popen(receiver, stdout=subprocess.PIPE, text=True) as receiving:
        assert receiving.stdout is not None
        receiving.stdout.readline()
        before = cpu_s(workers)
        sender = [sys.executable, "-c", _SENDER, *where, str(tos), str(seconds), congestion]
        subprocess.run(within(0, sender), check=True)
        came, took = map(float, receiving.stdout.readline().split())
        return 8 * came / took / 1e9, (cpu_s(workers) - before) / (came / 1e9)


@contextmanager
def copy_loop(mtu: int) -> Iterator[tuple[Within, list[int]]]:
    """Two kernels whose devices a process copies between, and how to run a command at them."""
    with ExitStack() as stack:
        pids, taps = [], []
        for node in range(2):
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            holder = stack.enter_context(subprocess.Popen(namespaces.program("hold"), **pipes))
            assert holder.stdout is not None
            pids.append(int(holder.stdout.readline()))
            ip = node_ip(node)
            taps.append(namespaces.open_tap_in(pids[-1], "loop0", mac_of(address(ip)), mtu, ip, 24))
            stack.callback(os.close, taps[-1])
        loop = subprocess.Popen([sys.executable, "-c", _LOOP, *map(str, taps)], pass_fds=taps)
        stack.callback(loop.wait)
        stack.callback(loop.kill)
        yield lambda node, argv: namespaces.program("enter", str(pids[node]), *argv), [loop.pid]


def measure(given: argparse.Namespace, progress: Progress) -> list[Result]:
    mtu, codec = given.mtu, given.codec
    with copy_loop(mtu) as (beside, loop), KernelCluster(nodes=2, mtu=mtu, codec=codec) as cluster:
        nics = [nic.pid for nic in cluster.nics]
        sent = partial(stream, seconds=given.seconds, congestion=given.congestion)
        cases: dict[str, Callable[[], tuple[float, float]]] = {
            "copy loop between two TAP devices": partial(sent, beside, loop, 0),
            "NICs, untagged": partial(sent, cluster.within, nics, 0),
            f"NICs, tagged {codec}": partial(sent, cluster.within, nics, 0x28),
        }
        taken: dict[str, list[tuple[float, float]]] = {case: [] for case in cases}
        for number in range(given.rounds):
            for case, work in cases.items():
                what = f"{case}, round {number + 1} of {given.rounds}"
                progress(what)
                taken[case].append(work())
                progress(Measured(f"{what}: {taken[case][-1][0]:.2f} Gbit/s"))
    limits = [gbit for gbit, _ in taken["copy loop between two TAP devices"]]
    return [
        Result(
            case,
            statistics.median(gbit for gbit, _ in made),
            min(gbit for gbit, _ in made),
            max(gbit for gbit, _ in made),
            statistics.median(gbit / limit for (gbit, _), limit in zip(made, limits, strict=True)),
            statistics.median(cpu for _, cpu in made),
        )
        for case, made in taken.items()
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=2.0, help="of every stream (2)")
    harness.add_rounds(parser, 5)
    parser.add_argument("--mtu", type=int, default=1500, help="of devices and frames (1500)")
    parser.add_argument("--codec", default="bounded:10", help="of the tagged stream (bounded:10)")
    parser.add_argument("--congestion", default="cubic", help="control, by the kernel's name for it (cubic)")


def measured(given: argparse.Namespace, progress: Progress) -> list[MeasurementReport[Result]]:
    rows = measure(given, progress)
    settings = {name: getattr(given, name) for name in ("seconds", "rounds", "mtu", "congestion")}
    title = f"One stream of the kernel's TCP ({given.congestion}), MTU {given.mtu}"
    notes = ["Gbit/s of application bytes; applications, NICs (or the loop) and kernels share the cores."]
    return [MeasurementReport("tap", title, columns(Result), rows, settings, notes)]


if __name__ == "__main__":
    sys.exit(harness.main("tap", __doc__, measured, add_options))
