"""Many connections between two NICs: time to open them, and the memory of the NICs.

Memory is the resident memory of the NICs' processes, without the kernel's memory for the Unix sockets of the streams.
The reference is their memory before the first connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from softnic.cluster.cluster import Cluster
from softnic.cluster.nic_process import node_ip
from softnic.measure import timing
from softnic.measure.child_process import ChildProcess
from softnic.measure.progress import as_measured
from softnic.measure.report import MeasurementError, MeasurementReport, Progress, column, columns

CROWD = "softnic.bench.many_connections"
REST_S = 12.0
"""Time after which NICs have trimmed the buffers of idle connections: `TcpConfig.trim_after_s`, and a little more."""
_POLL_S = 0.05


@dataclass(frozen=True)
class ConnectionsSettings:
    count: int = 1000
    small: int = 1 << 10
    """Bytes of a message and of its answer, sent on each connection in turn."""
    large: int = 4 << 20
    """Bytes of a message that fills buffers."""
    large_count: int = 50
    """Number of connections for large messages, in a separate run."""
    rest_s: float = REST_S


@dataclass(frozen=True)
class ConnectionsRow:
    moment: str = column("moment")
    connections: int = column("connections")
    """Number of open connections."""
    seconds: float | None = column("seconds")
    """Time to reach this state."""
    nic_bytes: int = column("MB a NIC", lambda value: f"{value / 1e6:.1f}")
    """Resident memory of one NIC, mean of the two."""
    bytes_a_connection: float | None = column("KiB a connection", lambda value: f"{value / 1024:.1f}")
    """Growth per connection since before the first."""


def run(settings: ConnectionsSettings, progress: Progress = lambda _what: None) -> MeasurementReport[ConnectionsRow]:
    """Measure. Raises MeasurementError, ClusterError."""
    rows = [
        *_crowd(settings.count, settings.small, settings, progress),
        *_crowd(settings.large_count, settings.large, settings, progress),
    ]
    return MeasurementReport(
        "connections",
        f"Memory of a NIC with {settings.count} connections, and with {settings.large_count} that carry more",
        columns(ConnectionsRow),
        rows,
        asdict(settings),
        [
            "Resident memory of a NIC's process, mean of both ends, without the kernel's memory for Unix sockets. "
            "KiB a connection: growth since before the first."
        ],
    )


def _crowd(count: int, size: int, settings: ConnectionsSettings, progress: Progress) -> list[ConnectionsRow]:
    rows: list[ConnectionsRow] = []
    serving = ("serve", "--count", str(count), "--host", node_ip(1))
    with Cluster(nodes=2) as cluster, ChildProcess(cluster.spawn, 1, CROWD, *serving) as serve:
        pids = [nic.pid for nic in cluster.nics]
        empty = timing.resident_bytes(pids) // 2

        def note(moment: str, connections: int, seconds: float | None) -> None:
            held = timing.resident_bytes(pids) // 2
            each = (held - empty) / connections if connections else None
            row = ConnectionsRow(moment, connections, seconds, held, each)
            rows.extend(as_measured([row], columns(ConnectionsRow), progress))

        progress(f"nothing yet: programs start, for {count} connections")
        note("none yet", 0, None)
        to = f"{node_ip(1)}:{serve.receive()['port']}"
        with ChildProcess(cluster.spawn, 0, CROWD, "open", "--count", str(count), "--to", to) as program:
            opened = program.receive()["seconds"]
            serve.receive()
            _agree(cluster, count)
            note("opened", count, opened)
            progress(f"{size} bytes to and fro on each of {count}")
            program.send_line(f"talk {size}")
            note(f"{size >> 10} KiB each way", count, program.receive()["seconds"])
            progress(f"{count} idle connections")
            time.sleep(settings.rest_s)
            note(f"idle for {settings.rest_s:.0f} s", count, None)
            program.send_line("close")
            seconds = program.receive()["seconds"]
            serve.receive()
            _agree(cluster, 0)
            note("closed", 0, seconds)
    return rows


def _agree(cluster: Cluster, count: int) -> None:
    """Wait until both NICs have this number of streams, without listeners."""
    _wait(lambda: all(_streams(cluster, node) == count for node in range(2)), f"the NICs do not have {count} streams")


def _streams(cluster: Cluster, node: int) -> int:
    return sum(stream.state != "LISTEN" for stream in cluster.stats(node).streams)


def _wait(holds: Callable[[], bool], complaint: str, limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise MeasurementError(complaint)
        time.sleep(_POLL_S)
