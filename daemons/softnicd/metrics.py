"""Metrics of a NIC as OpenMetrics text, from one snapshot. It needs prometheus-client, which nothing else imports.

Names follow Prometheus' conventions: base units, `_total` for counters, and labels whose values are bounded: kinds and
reasons of this file, states of TCP, and the addresses of at most 32 nodes (native/tcp/flow_totals.h). There is no label
for a connection: `softnic stat` shows single ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from softnic.extras import not_installed
from softnic.ipc.control import NicStats

OPENMETRICS = b"application/openmetrics-text"
"""In the header Accept of a scraper that wants it; others get Prometheus' older text format."""

_COUNTERS: dict[str, tuple[str, dict[str, dict[str, str]]]] = {
    "softnic_transmit_bytes": ("Original bytes sent.", {"tx_bytes": {}}),
    "softnic_receive_bytes": ("Original bytes received.", {"rx_bytes": {}}),
    "softnic_transmit_wire_bytes": ("Ethernet bytes of the frames sent.", {"tx_wire_bytes": {}}),
    "softnic_receive_wire_bytes": ("Ethernet bytes of the frames received.", {"rx_wire_bytes": {}}),
    "softnic_transmit_frames": ("Frames sent.", {"tx_frames": {}}),
    "softnic_receive_frames": ("Frames received.", {"rx_frames": {}}),
    "softnic_transmit_offload_original_bytes": (
        "Original bytes sent in frames with a payload header.",
        {"tx_offload_original_bytes": {}},
    ),
    "softnic_transmit_offload_encoded_bytes": (
        "Payload bytes that these became.",
        {"tx_offload_encoded_bytes": {}},
    ),
    "softnic_receive_offload_original_bytes": (
        "Original bytes received in frames with a payload header.",
        {"rx_offload_original_bytes": {}},
    ),
    "softnic_receive_offload_encoded_bytes": ("Payload bytes that they came as.", {"rx_offload_encoded_bytes": {}}),
    "softnic_connections": (
        "Connections opened here, accepted, and ended by an error.",
        {f"connections_{event}": {"event": event} for event in ("opened", "accepted", "failed")},
    ),
    "softnic_recoveries": (
        "Answers of TCP to loss, and those of them that were needless and undone.",
        {
            "retransmission_timeouts": {"kind": "timeout"},
            "fast_retransmits": {"kind": "fast"},
            "tail_loss_probes": {"kind": "probe"},
            "spurious_retransmits": {"kind": "spurious"},
        },
    ),
    "softnic_faults": (
        "Peers and applications lost, operations that lacked memory or file descriptors, and internal errors.",
        {
            "peers_lost": {"kind": "peer_lost"},
            "applications_lost": {"kind": "application_lost"},
            "shortages": {"kind": "shortage"},
            "failures": {"kind": "internal"},
        },
    ),
    "softnic_collectives_posted": ("Collectives that applications have called.", {"collectives_posted": {}}),
    "softnic_collectives": (
        "Collectives that ended.",
        {f"collectives_{result}": {"result": result} for result in ("completed", "failed")},
    ),
    "softnic_communicators_failed": ("Communicators ended by an error.", {"communicators_failed": {}}),
    "softnic_control_requests": ("Requests at the control socket.", {"control_requests": {}}),
    "softnic_control_requests_refused": ("Those of them answered with an error.", {"control_refused": {}}),
}
"""By metric, its help and the counters of its samples with their labels."""

_GAUGES: dict[str, tuple[str, str, Callable[[NicStats], float]]] = {
    "softnic_communicators": ("Communicators that are open.", "", lambda nic: nic.counters.get("communicators", 0)),
    "softnic_region_bytes": (
        "Registered memory of applications that is mapped.",
        "bytes",
        lambda nic: nic.counters.get("region_bytes", 0),
    ),
    "softnic_collectives_in_progress": ("Collectives in progress.", "", lambda nic: nic.collectives.in_progress),
    "softnic_collective_oldest_seconds": (
        "Time since the oldest collective in progress was called; 0 if there is none.",
        "seconds",
        lambda nic: nic.collectives.oldest,
    ),
    "softnic_link_rate_bytes_per_second": (
        "Rate of the emulated link; 0 if it is not limited.",
        "",
        lambda nic: (nic.info.rate_bps or 0.0) / 8,
    ),
    "process_resident_memory_bytes": (
        "Resident memory of the NIC's process.",
        "bytes",
        lambda nic: nic.process.resident_bytes,
    ),
    "process_start_time_seconds": (
        "When the NIC's process started, in seconds since 1970.",
        "seconds",
        lambda nic: nic.process.started,
    ),
}
_PEERS: dict[str, tuple[str, str, str]] = {
    "softnic_peer_connections": ("Open connections to a node.", "", "streams"),
    "softnic_peer_unacknowledged_bytes": ("Bytes not acknowledged by a node.", "bytes", "send_queue"),
    "softnic_peer_unread_bytes": ("Bytes from a node that applications have not read.", "bytes", "receive_queue"),
    "softnic_peer_rtt_seconds": ("Mean of the connections' smoothed round-trip times.", "seconds", "srtt"),
}
_QUEUES: dict[str, tuple[str, str, str]] = {
    "softnic_queue_transmit_wire_bytes": ("Ethernet bytes of the frames that a queue sent.", "bytes", "tx_wire_bytes"),
    "softnic_queue_receive_wire_bytes": (
        "Ethernet bytes of the frames that a queue received.",
        "bytes",
        "rx_wire_bytes",
    ),
    "softnic_queue_cpu_seconds": ("CPU time of a queue's thread.", "seconds", "cpu"),
}
_PREFIXES = {
    "rx_drop_": "receive",
    "tx_drop_": "transmit",
    "dropped_": "tcp",
    "link_dropped_": "link",
    "link_kernel_dropped_": "kernel",
    "emulated_dropped_": "emulation",
    "emulated_": "emulation",
    "capture_": "capture",
    "tap_dropped_": "device",
    "tap_": "device",
}
"""By prefix of a counter, the part of the NIC that drops: the longest prefix that fits."""


@cache
def drop_labels(counter: str) -> dict[str, str] | None:
    """Return the labels of a counter of drops; None for other counters."""
    if "drop" not in counter and counter != "emulated_lost":
        return None
    prefix = max((each for each in _PREFIXES if counter.startswith(each)), key=len, default="")
    return {"layer": _PREFIXES.get(prefix, "nic"), "reason": counter.removeprefix(prefix)}


class Exposition:
    """Writes snapshots as metrics. Raises ValueError if prometheus-client is not installed."""

    def __init__(self) -> None:
        try:
            from prometheus_client import exposition
            from prometheus_client.metrics_core import Metric
            from prometheus_client.openmetrics import exposition as openmetrics
            from prometheus_client.samples import Sample
        except ModuleNotFoundError:
            raise ValueError(not_installed("prometheus_client")) from None
        self._metric: Any = Metric
        self._sample: Any = Sample
        self._formats = {True: openmetrics, False: exposition}
        self._metrics: dict[str, Any] = {}
        self._found: list[Any] = []

    def text(self, nic: NicStats, is_openmetrics: bool) -> tuple[str, bytes]:
        """Return the metrics of a snapshot, behind their content type."""
        self._found = []
        self._add_counters(nic)
        for name, (about, unit, value) in _GAUGES.items():
            self._add(name, "gauge", about, [(name, {}, value(nic))], unit)
        self._add_streams(nic)
        info = nic.info
        labels = {"name": info.name, "ip": info.ip, "mode": info.mode, "congestion": info.congestion}
        self._add("softnic_nic", "info", "The NIC.", [("softnic_nic_info", labels, 1)])
        # The names are of plain ASCII already, and the escaping for it is the quick one.
        chosen: Any = self._formats[is_openmetrics]
        return chosen.CONTENT_TYPE_LATEST, chosen.generate_latest(self, escaping="allow-utf-8")

    def collect(self) -> list[Any]:
        """Return what `text` has added: what prometheus-client calls."""
        return self._found

    def _add_counters(self, nic: NicStats) -> None:
        counters = nic.counters
        for name, (about, samples) in _COUNTERS.items():
            total = f"{name}_total"
            values = [(total, labels, counters[each]) for each, labels in samples.items() if each in counters]
            self._add(name, "counter", about, values, "bytes" if name.endswith("_bytes") else "")
        drops = [
            ("softnic_dropped_total", labels, value)
            for name, value in counters.items()
            if (labels := drop_labels(name)) is not None
        ]
        self._add("softnic_dropped", "counter", "Frames, segments and datagrams dropped.", drops)
        seconds = counters.get("collectives_microseconds", 0) / 1e6
        for name, about, value in (
            ("softnic_collective_seconds", "Time from call to completion of the collectives completed.", seconds),
            ("process_cpu_seconds", "CPU time of the NIC's process.", nic.process.cpu),
        ):
            self._add(name, "counter", about, [(f"{name}_total", {}, value)], "seconds")

    def _add_streams(self, nic: NicStats) -> None:
        states: Mapping[str, int] = {"ESTABLISHED": 0, "LISTEN": 0, **nic.totals.states}
        samples = [("softnic_streams", {"state": state}, count) for state, count in states.items()]
        self._add("softnic_streams", "gauge", "Connections by state, and listening streams.", samples)
        for name, (about, unit, field) in _QUEUES.items():
            values = [(f"{name}_total", {"queue": str(each.queue)}, getattr(each, field)) for each in nic.queues]
            self._add(name, "counter", about, values, unit)
        for name, (about, unit, field) in _PEERS.items():
            values = [(name, {"peer": peer.address or "other"}, getattr(peer, field)) for peer in nic.totals.peers]
            self._add(name, "gauge", about, values, unit)

    def _add(
        self, name: str, kind: str, about: str, samples: Iterable[tuple[str, dict[str, str], float]], unit: str = ""
    ) -> None:
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = self._metric(name, about, kind, unit)
        metric.samples = [self._sample(*each) for each in samples]
        self._found.append(metric)


EXPORTED = frozenset(counter for _, samples in _COUNTERS.values() for counter in samples)
"""Counters that are samples of their own, beside those of drops."""
