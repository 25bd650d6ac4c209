"""One stream through two NICs of this machine: sender, its NIC, the other NIC, receiver.

Limits, measured in the same rounds: a Unix stream socket between the same processes (the most that they can write and
read), and a flood of UDP datagrams between two processes (the most that this machine can carry as datagrams).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from softnic.bench.captured import CapturedPackets, captured
from softnic.bench.stream_endpoints import CHUNK_BYTES
from softnic.bench.udp_baseline import DATAGRAM_BYTES
from softnic.cluster.cluster import Cluster
from softnic.cluster.nic_process import node_ip
from softnic.measure import timing
from softnic.measure.child_process import LIMIT_S, ChildProcess, Start
from softnic.measure.progress import Measured
from softnic.measure.report import MeasurementReport, Progress, column, columns, links, share
from softnic.units import medians_of, rate_bps, text_bytes

TOS = 0x28
UNIX, FLOOD, UNTAGGED = "Unix socket", "UDP flood", "untagged"
ENDS, FLOODER = "softnic.bench.stream_endpoints", "softnic.bench.udp_baseline"


@dataclass(frozen=True)
class StreamSettings:
    codecs: tuple[str, ...] = ("rht:4",)
    """Codecs of the tagged streams."""
    megabytes: int = 512
    rounds: int = 3
    data: str = "gaussian:0.01"
    flood_s: float = 1.0
    idle_streams: int = 64
    link: Mapping[str, str] = field(default_factory=dict)
    """Emulated links, as keywords of `Cluster`; empty: as fast as the machine."""
    key: bool = False
    """Whether frames are encrypted."""
    capture: bool = False
    """Whether each stream is measured once more while both NICs are captured."""
    congestion: str = ""
    """Congestion control algorithm of the streams; empty: the default of the NICs."""
    poll: str | None = None
    """For how long NICs poll before they sleep; None: not at all."""
    queues: int | Literal["auto"] = 1
    """Of each NIC."""


@dataclass(frozen=True)
class Run:
    """One stream, from its first byte to its last."""

    seconds: float
    size: int
    daemons_cpu_s: float = 0.0
    programs_cpu_s: float = 0.0
    wire_bytes: int | None = None
    """Ethernet bytes of the frames sent by the sender's NIC."""
    machine_cpu_s: float | None = None
    """Busy time of the whole machine."""
    peak_bytes: int | None = None
    """Peak memory of the two daemons, minus their memory without any stream."""
    auto: str = ""
    """Decision of the sender's NIC for an adaptive codec, in words."""
    packets: CapturedPackets | None = None
    """Of the capture of the stream, if there was one."""

    @property
    def mb_per_s(self) -> float:
        return self.size / self.seconds / 1e6


@dataclass(frozen=True)
class StreamRoute:
    """How one of the two processes connects to the other."""

    to: str
    """Address of the listening process as the connecting one sees it."""
    kind: str = "nic"
    """Whose TCP: `nic` or `kernel`."""
    host: str = ""
    """Address to listen on; empty: all addresses."""
    listener: int = 1
    """Node of the listening process. Node 0 always writes."""
    limit_s: float = LIMIT_S
    """Most time that the stream may take."""
    congestion: str = ""
    """Congestion control algorithm of the writer; empty: its default."""


@dataclass(frozen=True)
class StreamRow:
    case: str = column("stream")
    mb_per_s: float = column("MB/s", ".0f")
    """Rate of application bytes."""
    of_unix_socket: float = column("of Unix socket", share)
    of_udp_flood: float = column("of UDP flood", share)
    of_link_rate: float | None = column("of the link's rate", share)
    """Bytes of frames as a share of the rate of the emulated link."""
    wire_ratio: float | None = column("on the wire 1 :")
    """Application bytes divided by bytes of frames."""
    daemons_cpu_s_per_gb: float | None = column("CPU s/GB, daemons")
    programs_cpu_s_per_gb: float = column("programs")
    busy_bytes: float | None = column("memory an end, busy", text_bytes)
    """Peak memory of one end of this stream in its daemon."""
    idle_bytes: float | None = column("idle", text_bytes)
    """Memory of one end of an idle stream."""


def run(settings: StreamSettings, progress: Progress = lambda _what: None) -> MeasurementReport[StreamRow]:
    """Raises MeasurementError, ClusterError."""
    runs: dict[str, list[Run]] = {}
    with Cluster(nodes=2, key=settings.key) as cluster:  # a cluster that has not had busy streams
        progress("memory of idle streams")
        idle = _idle_bytes(cluster, settings.idle_streams)
    nics: dict[str, Any] = {"key": settings.key, "poll": settings.poll, "queues": settings.queues, **settings.link}
    with Cluster(nodes=2, **nics) as cluster:
        cases = _cases(cluster, settings)
        for number in range(settings.rounds):
            for name, case in cases.items():
                what = f"{name}, round {number + 1} of {settings.rounds}"
                progress(what)
                found = case()
                runs.setdefault(name, []).append(found)
                progress(Measured(f"{what}: {found.mb_per_s:.0f} MB/s"))
    rows = [_row(name, runs, settings, idle) for name in cases]
    notes = [*_notes(settings), *_capture_notes(runs)]
    return MeasurementReport("stream", _title(settings), columns(StreamRow), rows, asdict(settings), notes)


def _cases(cluster: Cluster, settings: StreamSettings) -> dict[str, Callable[[], Run]]:
    size = settings.megabytes * 10**6 // CHUNK_BYTES * CHUNK_BYTES
    start, daemons = cluster.spawn, [nic.pid for nic in cluster.nics]
    fresh = timing.resident_bytes(daemons)
    way = StreamRoute(node_ip(1), congestion=settings.congestion)

    def through_nics(tos: int = 0, codec: str = "") -> Run:
        timing.forget_peak(daemons)
        before = timing.cpu_s(daemons)
        found = one_stream(start, size, settings.data, way, tos=tos, codec=codec)
        peak = timing.resident_bytes(daemons, peak=True)
        used = timing.cpu_s(daemons) - before
        return replace(found, daemons_cpu_s=used, peak_bytes=max(0, peak - fresh))

    def through_captured_nics(tos: int = 0, codec: str = "") -> Run:
        with captured(cluster.controls) as packets:
            found = through_nics(tos, codec)
        return replace(found, packets=packets)

    cases: dict[str, Callable[[], Run]] = {
        UNIX: lambda: _unix_socket(start, size, settings.data),
        FLOOD: lambda: flood(start, settings.flood_s),
        UNTAGGED: through_nics,
    }
    for codec in settings.codecs:
        cases[f"tagged {codec}"] = lambda codec=codec: through_nics(TOS, codec)  # type: ignore[misc]
    if settings.capture:
        cases[f"{UNTAGGED}, captured"] = through_captured_nics
        for codec in settings.codecs:
            cases[f"tagged {codec}, captured"] = lambda codec=codec: through_captured_nics(TOS, codec)  # type: ignore[misc]
    return cases


def one_stream(start: Start, size: int, data: str, way: StreamRoute, *, tos: int = 0, codec: str = "") -> Run:
    """Measure a stream from node 0 to node 1. Raises MeasurementError."""
    common = ("--way", way.kind, "--bytes", str(size))
    tagged = ("--tos", str(tos), "--codec", codec, "--congestion", way.congestion)
    roles = (("write", *common, "--data", data, *tagged), ("read", *common))
    listens, connects = way.listener, 1 - way.listener
    with ChildProcess(start, listens, ENDS, *roles[listens], "--host", way.host) as listening:
        address = f"{way.to}:{listening.receive()['port']}"
        with ChildProcess(start, connects, ENDS, *roles[connects], "--to", address) as connecting:
            pair = {listens: listening, connects: connecting}
            return _told(pair[0], pair[1], size, way.limit_s)


def _unix_socket(start: Start, size: int, data: str) -> Run:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arguments = ("--way", "3", "--bytes", str(size), "--data", data)
        with (
            ChildProcess(start, 1, ENDS, "read", *arguments, descriptors=[theirs.fileno()]) as reader,
            ChildProcess(start, 0, ENDS, "write", *arguments, descriptors=[ours.fileno()]) as writer,
        ):
            ours.close()
            theirs.close()
            return _told(writer, reader, size)


def _told(writer: ChildProcess, reader: ChildProcess, size: int, limit_s: float = LIMIT_S) -> Run:
    has_read, wrote = reader.receive(limit_s), writer.receive()
    left = writer.receive()
    return Run(
        seconds=has_read["ended"] - wrote["started"],
        size=size,
        programs_cpu_s=wrote["cpu_s"] + has_read["cpu_s"],
        wire_bytes=left["wire_bytes"],
        machine_cpu_s=has_read["machine_cpu_s"] - wrote["machine_cpu_s"],
        auto=left["auto"],
    )


def flood(start: Start, seconds: float, *, to: str = "127.0.0.1", datagram: int = DATAGRAM_BYTES) -> Run:
    """Send UDP datagrams from node 0 to node 1 at the address `to` as fast as possible."""
    with ChildProcess(start, 1, FLOODER, "read", "--host", to) as reader:
        address = f"{to}:{reader.receive()['port']}"
        options = ("--seconds", str(seconds), "--datagram", str(datagram))
        with ChildProcess(start, 0, FLOODER, "write", "--to", address, *options) as writer:
            cpu_s = writer.receive(seconds + 60)["cpu_s"]
            got = reader.receive()
    return Run(got["seconds"], got["received"], programs_cpu_s=cpu_s + got["cpu_s"])


def _idle_bytes(cluster: Cluster, count: int) -> float:
    """Return the memory of one end of an idle stream in its daemon."""
    daemons = [nic.pid for nic in cluster.nics]
    many = ("--count", str(count))
    with ChildProcess(cluster.spawn, 1, ENDS, "hold", *many) as accepting:
        address = f"{node_ip(1)}:{accepting.receive()['port']}"
        before = timing.resident_bytes(daemons)
        with ChildProcess(cluster.spawn, 0, ENDS, "hold", *many, "--to", address) as connecting:
            connecting.receive()
            accepting.receive()
            return (timing.resident_bytes(daemons) - before) / (2 * count)


def _row(name: str, runs: Mapping[str, list[Run]], settings: StreamSettings, idle: float) -> StreamRow:
    own = runs[name]
    rates = {case: [each.mb_per_s for each in runs[case]] for case in (name, UNIX, FLOOD)}
    nics = name not in (UNIX, FLOOD)
    wire = [each.wire_bytes for each in own if each.wire_bytes]
    rate = rate_bps(settings.link["rate"]) if "rate" in settings.link else None
    busy = [each.wire_bytes * 8 / each.seconds / rate for each in own if each.wire_bytes and rate]
    return StreamRow(
        case=name,
        mb_per_s=timing.median(rates[name]),
        daemons_cpu_s_per_gb=timing.median(each.daemons_cpu_s / each.size * 1e9 for each in own) if nics else None,
        programs_cpu_s_per_gb=timing.median(each.programs_cpu_s / each.size * 1e9 for each in own),
        wire_ratio=own[0].size / timing.median(wire) if wire else None,
        of_unix_socket=timing.ratio(rates[name], rates[UNIX]),
        of_udp_flood=timing.ratio(rates[name], rates[FLOOD]),
        of_link_rate=timing.median(busy) if busy else None,
        busy_bytes=timing.median((each.peak_bytes or 0) / 2 for each in own) if nics else None,
        idle_bytes=idle if nics else None,
    )


def _title(settings: StreamSettings) -> str:
    encrypted = ", encrypted" if settings.key else ""
    what = f"One stream, two NICs, MTU 1500{encrypted}; links: {links(settings.link, settings.poll, settings.queues)}"
    return f"{what}. {medians_of(settings.rounds, 'stream').capitalize()} of {settings.megabytes} MB"


def _capture_notes(runs: Mapping[str, list[Run]]) -> list[str]:
    """Say which share of the packets is in the captures: the others came faster than they were written."""
    notes = []
    for name, own in runs.items():
        packets = [run.packets for run in own if run.packets is not None]
        total = sum(each.packets + each.dropped for each in packets)
        if total:
            notes.append(f"{name}: {sum(each.packets for each in packets) / total:.0%} of the packets were recorded.")
    return notes


def _notes(settings: StreamSettings) -> list[str]:
    return [
        f"Floats of tagged streams: {settings.data}. MB/s of application bytes. Unix socket: the two processes "
        "without NICs. UDP flood: 1522-byte datagrams with GSO and GRO between two processes, as received. Memory: of "
        "one end of a stream in its daemon."
    ]
