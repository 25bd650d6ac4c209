"""Round trips of small messages through two NICs, one at a time.

The limit is the same chain of four processes over the same kinds of sockets, with two processes in the middle that only
forward. Both are measured by turns.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from softnic.bench.stream import TOS, UNTAGGED
from softnic.cluster.cluster import Cluster
from softnic.cluster.nic_process import node_ip
from softnic.measure import timing
from softnic.measure.child_process import ChildProcess
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementReport, Progress, column, columns, links

PINGPONG = "softnic.bench.pingpong"
FLOOR, KERNEL = "two trivial relays", "kernel TCP, nothing between"


@dataclass(frozen=True)
class LatencySettings:
    codecs: tuple[str, ...] = ("rht:4",)
    """Codecs of the tagged messages."""
    size: int = 64
    """Bytes in each direction."""
    count: int = 3000
    """Round trips of each kind."""
    rounds: int = 10
    link: Mapping[str, str] = field(default_factory=dict)
    poll: str | None = None
    """For how long NICs poll before they sleep; None: not at all."""


@dataclass(frozen=True)
class Chain:
    """Two connected processes: one sends, the other answers."""

    ping: ChildProcess
    middle: tuple[int, ...]
    """Ids of the processes between them."""


@dataclass(frozen=True)
class LatencyRow:
    case: str = column("messages")
    p50_us: float = column("p50", ".0f")
    p90_us: float = column("p90", ".0f")
    p99_us: float = column("p99", ".0f")
    worst_us: float = column("worst", ".0f")
    of_floor: float = column("of relays", lambda value: f"{value:.2f} x")
    """p50 divided by that of the trivial relays."""
    middle_cpu_us: float | None = column("CPU us, middle", ".0f")
    """CPU time of the two processes in the middle per round trip."""


def run(settings: LatencySettings, progress: Progress = lambda _what: None) -> MeasurementReport[LatencyRow]:
    """Raises MeasurementError, ClusterError."""
    taken: dict[str, list[list[float]]] = {}
    cpu_s: dict[str, float] = {}
    with Cluster(nodes=2, poll=settings.poll, **settings.link) as cluster, ExitStack() as stack:  # type: ignore[arg-type]
        progress("nothing yet: programs start")
        chains = {name: stack.enter_context(chain) for name, chain in _chains(cluster, settings).items()}
        each = -(-settings.count // settings.rounds)
        for number in range(settings.rounds):
            for name, chain in chains.items():
                what = f"{name}, round {number + 1} of {settings.rounds}"
                progress(what)
                before = timing.cpu_s(chain.middle)
                chain.ping.send_line(str(each))
                seconds = chain.ping.receive()["seconds"]
                taken.setdefault(name, []).append(seconds)
                progress(Measured(f"{what}: median {timing.median(seconds) * 1e6:.0f} us"))
                cpu_s[name] = cpu_s.get(name, 0.0) + timing.cpu_s(chain.middle) - before
        rows = [_row(name, taken, cpu_s[name] if chain.middle else None) for name, chain in chains.items()]
    return MeasurementReport(
        "latency",
        f"Round trips of {settings.size} bytes, one at a time, {each * settings.rounds} of each; "
        f"links: {links(settings.link, settings.poll)}. Microseconds",
        columns(LatencyRow),
        rows,
        {
            "size": settings.size,
            "count": each * settings.rounds,
            "rounds": settings.rounds,
            "link": dict(settings.link),
            "poll": settings.poll,
        },
        [
            "Two trivial relays: the same four processes over the same kinds of sockets; the two in the middle only "
            "forward. of relays: median of p50 divided by theirs in the same round."
        ],
    )


def _chains(cluster: Cluster, settings: LatencySettings) -> dict[str, contextlib.AbstractContextManager[Chain]]:
    chains: dict[str, contextlib.AbstractContextManager[Chain]] = {
        FLOOR: _relays(cluster, settings.size),
        KERNEL: _direct(cluster, "127.0.0.1", "--way", "kernel", "--host", "127.0.0.1", "--size", str(settings.size)),
        UNTAGGED: _direct(cluster, node_ip(1), "--size", str(settings.size), through_nics=True),
    }
    for codec in settings.codecs:
        options = ("--size", str(settings.size), "--tos", str(TOS), "--codec", codec)
        chains[f"tagged {codec}"] = _direct(cluster, node_ip(1), *options, through_nics=True)
    return chains


@contextlib.contextmanager
def _relays(cluster: Cluster, size: int) -> Iterator[Chain]:
    """Connect process, relay, relay and process."""
    with ExitStack() as stack:
        ours, near = map(stack.enter_context, socket.socketpair())
        far, theirs = map(stack.enter_context, socket.socketpair())
        wires = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)]
        for wire in wires:
            wire.bind(("127.0.0.1", 0))
        for wire, other in zip(wires, reversed(wires), strict=True):
            wire.connect(other.getsockname())
        relays = [
            stack.enter_context(
                ChildProcess(cluster.spawn, node, PINGPONG, "relay", descriptors=[side.fileno(), wires[node].fileno()])
            )
            for node, side in enumerate((near, far))
        ]
        options = ("--way", "3", "--size", str(size))
        stack.enter_context(ChildProcess(cluster.spawn, 1, PINGPONG, "echo", *options, descriptors=[theirs.fileno()]))
        ping = stack.enter_context(
            ChildProcess(cluster.spawn, 0, PINGPONG, "ping", *options, descriptors=[ours.fileno()])
        )
        for end in (ours, near, far, theirs):
            end.close()
        ping.receive()
        yield Chain(ping, tuple(each.pid for each in relays))


@contextlib.contextmanager
def _direct(cluster: Cluster, to: str, *options: str, through_nics: bool = False) -> Iterator[Chain]:
    """Connect two processes, through NICs or directly."""
    with ChildProcess(cluster.spawn, 1, PINGPONG, "echo", *options) as echo:
        address = f"{to}:{echo.receive()['port']}"
        with ChildProcess(cluster.spawn, 0, PINGPONG, "ping", "--to", address, *options) as ping:
            ping.receive()
            yield Chain(ping, tuple(nic.pid for nic in cluster.nics) if through_nics else ())


def _row(name: str, taken: Mapping[str, list[list[float]]], cpu_s: float | None) -> LatencyRow:
    every = [seconds * 1e6 for round_ in taken[name] for seconds in round_]
    halves = {case: [timing.median(round_) for round_ in taken[case]] for case in (name, FLOOR)}
    return LatencyRow(
        case=name,
        p50_us=timing.percentile(every, 0.5),
        p90_us=timing.percentile(every, 0.9),
        p99_us=timing.percentile(every, 0.99),
        worst_us=max(every),
        of_floor=timing.ratio(halves[name], halves[FLOOR]),
        middle_cpu_us=None if cpu_s is None else cpu_s * 1e6 / len(every),
    )
