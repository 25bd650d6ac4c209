"""The page of `softnic top`: its lines, from two snapshots of the NICs.

Lines are plain text of one style each, so that a refresh costs a fraction of what laid-out tables cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softnic.commands.snapshots import Rates, paired, rates_of, ratio_between
from softnic.commands.stream_text import congestion_window, endpoint, ratio, round_trip, tag
from softnic.commands.waits import collective_lines
from softnic.ipc.control import NicStats, StreamInfo
from softnic.units import text_bytes, text_rate


@dataclass(frozen=True, slots=True)
class FlowRates:
    """A connection of a NIC, with rates per second."""

    nic: str
    stream: StreamInfo
    tx_bytes: float
    """Before compression."""
    tx_wire_bytes: float
    """After it, as frames."""
    rx_bytes: float
    rx_wire_bytes: float
    ratio: float | None
    """Of the tagged data sent meanwhile."""
    retransmits: float


SORT: dict[str, Callable[[FlowRates], float]] = {
    "rate": lambda flow: flow.tx_bytes + flow.rx_bytes,
    "wire": lambda flow: flow.tx_wire_bytes + flow.rx_wire_bytes,
    "ratio": lambda flow: flow.ratio or 0.0,
    "rtt": lambda flow: flow.stream.srtt,
    "again": lambda flow: flow.retransmits,
    "queue": lambda flow: flow.stream.send_queue + flow.stream.receive_queue,
}
"""Sort orders of the flows, largest first."""
_NICS = ("nic", "address", "cpu", "memory", "flows", "sent", "on the wire", "received", "on the wire", "ratio")
_NICS_MORE = ("busy", "losses/s", "drops/s")
_FLOWS = ("nic", "local", "peer", "sent", "on the wire", "ratio", "received", "on the wire", "rtt", "cwnd", "queued")
_FLOWS_MORE = ("again/s", "tag")
_LEFT = {"nic", "address", "local", "peer", "tag"}
Line = tuple[str, str]
"""Text and style."""


def flows_of(before: Sequence[NicStats], after: Sequence[NicStats], sort: str) -> list[FlowRates]:
    """Return the connections of all NICs, sorted. Rates of those that are new are 0."""
    found = []
    for first, nic in paired(before, after):
        seconds = nic.process.uptime - first.process.uptime if first else 1.0
        known = {each.stream: each for each in first.streams} if first else {}
        connected = (stream for stream in nic.streams if stream.peer is not None)
        found += [_flow(nic.info.name, known.get(each.stream, each), each, seconds) for each in connected]
    return sorted(found, key=SORT[sort], reverse=True)


def _flow(nic: str, before: StreamInfo, after: StreamInfo, seconds: float) -> FlowRates:
    encoded = after.offload_encoded_bytes - before.offload_encoded_bytes
    original = after.offload_original_bytes - before.offload_original_bytes
    return FlowRates(
        nic,
        after,
        (after.bytes_sent - before.bytes_sent) / seconds,
        (after.wire_bytes_sent - before.wire_bytes_sent) / seconds,
        (after.bytes_received - before.bytes_received) / seconds,
        (after.wire_bytes_received - before.wire_bytes_received) / seconds,
        ratio_between(original, encoded),
        (after.retransmits - before.retransmits) / seconds,
    )


def page(before: Sequence[NicStats], after: Sequence[NicStats], sort: str, height: int | None = None) -> list[Line]:
    """Return the lines of NICs, collectives and flows, the latter cut to fill `height` lines; None: all of them."""
    nics = _nics(after, rates_of(before, after))
    waits = [f"{nic.info.name}  {line}" for nic in after for line in collective_lines(nic.communicators)]
    flows = flows_of(before, after, sort)
    summary = f"{time.strftime('%H:%M:%S')}  {len(after)} NICs, {len(flows)} connections, by {sort}"
    if height is not None:
        third = max(3, height // 3)
        nics, waits = _cut(nics, third), _cut(waits, third)
        flows = flows[: max(0, height - len(nics) - len(waits) - 5)]
    lines: list[Line] = [(summary, "bold"), *_styled(nics), ("", "")]
    if waits:
        lines += [*((line, "yellow") for line in waits), ("", "")]
    return lines + _styled(_table((*_FLOWS, *_FLOWS_MORE), [_flow_cells(flow) for flow in flows]))


def _styled(table: list[str]) -> list[Line]:
    return [(line, "bold reverse" if index == 0 else "") for index, line in enumerate(table)]


def _cut(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], f"... and {len(lines) - most + 1} more"]


def _nics(stats: Sequence[NicStats], rates: Sequence[Rates | None]) -> list[str]:
    return _table((*_NICS, *_NICS_MORE), [_nic_cells(*each) for each in zip(stats, rates, strict=True)])


def _nic_cells(nic: NicStats, rates: Rates | None) -> tuple[str, ...]:
    connected = sum(stream.peer is not None for stream in nic.streams)
    head = (nic.info.name, nic.info.ip)
    memory = text_bytes(nic.process.resident_bytes)
    if rates is None:
        return (*head, "", memory, str(connected), *[""] * 8)
    return (
        *head,
        f"{rates.cpu:.1%}",
        memory,
        str(connected),
        _rate(rates.tx_bytes),
        text_rate(8 * rates.tx_wire_bytes),
        _rate(rates.rx_bytes),
        text_rate(8 * rates.rx_wire_bytes),
        ratio(rates.ratio),
        "" if rates.busy is None else f"{rates.busy:.0%}",
        f"{rates.recoveries:.1f}",
        f"{rates.drops:.1f}",
    )


def _flow_cells(flow: FlowRates) -> tuple[str, ...]:
    stream = flow.stream
    return (
        flow.nic,
        endpoint(stream.local),
        endpoint(stream.peer),
        _rate(flow.tx_bytes),
        text_rate(8 * flow.tx_wire_bytes),
        ratio(flow.ratio),
        _rate(flow.rx_bytes),
        text_rate(8 * flow.rx_wire_bytes),
        round_trip(stream),
        congestion_window(stream),
        text_bytes(stream.send_queue + stream.receive_queue),
        f"{flow.retransmits:.1f}",
        tag(stream) or stream.state.replace("ESTABLISHED", ""),
    )


def _rate(bytes_per_s: float) -> str:
    return f"{text_bytes(bytes_per_s)}/s"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a heading and rows, with columns as wide as needed."""
    columns = []
    for heading, *cells in zip(headings, *rows, strict=True):
        width = max(map(len, (heading, *cells)))
        align = str.ljust if heading in _LEFT else str.rjust
        columns.append([align(cell, width) for cell in (heading, *cells)])
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
