"""The page of `softnic top`: its lines, from two snapshots of the NICs.

Lines are plain text of one style each, so that a refresh costs a fraction of what laid-out tables cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softnic.commands.layout import Line, ScreenColumn, fitted, styled, wrapped
from softnic.commands.meeting_text import meeting_lines, relay_lines
from softnic.commands.membership_text import membership_lines
from softnic.commands.snapshots import Rates, paired, rates_of, ratio_between
from softnic.commands.stream_text import congestion_window, endpoint, ratio, round_trip, tag
from softnic.commands.waits import collective_lines
from softnic.ipc.control import NicStats, StreamInfo
from softnic.units import counted, text_bytes, text_rate


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
_FLOWS: tuple[ScreenColumn[FlowRates], ...] = (
    ScreenColumn(6, "nic", lambda flow: flow.nic, 5, left=True),
    ScreenColumn(12, "local", lambda flow: endpoint(flow.stream.local), 15, left=True),
    ScreenColumn(1, "peer", lambda flow: endpoint(flow.stream.peer), 15, left=True),
    ScreenColumn(2, "sent", lambda flow: _rate(flow.tx_bytes), 10),
    ScreenColumn(5, "wire out", lambda flow: text_rate(8 * flow.tx_wire_bytes), 11),
    ScreenColumn(7, "ratio", lambda flow: ratio(flow.ratio), 5),
    ScreenColumn(4, "received", lambda flow: _rate(flow.rx_bytes), 10),
    ScreenColumn(9, "wire in", lambda flow: text_rate(8 * flow.rx_wire_bytes), 11),
    ScreenColumn(10, "rtt", lambda flow: round_trip(flow.stream), 7),
    ScreenColumn(13, "cwnd", lambda flow: congestion_window(flow.stream), 8),
    ScreenColumn(11, "queued", lambda flow: text_bytes(flow.stream.send_queue + flow.stream.receive_queue), 8),
    ScreenColumn(3, "again/s", lambda flow: f"{flow.retransmits:,.1f}", 7),
    ScreenColumn(
        8, "tag", lambda flow: tag(flow.stream) or flow.stream.state.replace("ESTABLISHED", ""), 11, left=True
    ),
)
_Nic = tuple[NicStats, Rates | None]
_NICS: tuple[ScreenColumn[_Nic], ...] = (
    ScreenColumn(1, "nic", lambda nic: nic[0].info.name, 5, left=True),
    ScreenColumn(13, "address", lambda nic: nic[0].info.ip, 10, left=True),
    ScreenColumn(10, "cpu", lambda nic: _of(nic, lambda rates: f"{rates.cpu:.1%}"), 6),
    ScreenColumn(12, "memory", lambda nic: text_bytes(nic[0].process.resident_bytes), 8),
    ScreenColumn(11, "flows", lambda nic: str(sum(each.peer is not None for each in nic[0].streams)), 5),
    ScreenColumn(6, "sent", lambda nic: _of(nic, lambda rates: _rate(rates.tx_bytes)), 10),
    ScreenColumn(2, "wire out", lambda nic: _of(nic, lambda rates: text_rate(8 * rates.tx_wire_bytes)), 11),
    ScreenColumn(7, "received", lambda nic: _of(nic, lambda rates: _rate(rates.rx_bytes)), 10),
    ScreenColumn(5, "wire in", lambda nic: _of(nic, lambda rates: text_rate(8 * rates.rx_wire_bytes)), 11),
    ScreenColumn(8, "ratio", lambda nic: _of(nic, lambda rates: ratio(rates.ratio)), 5),
    ScreenColumn(9, "busy", lambda nic: _of(nic, lambda rates: "" if rates.busy is None else f"{rates.busy:.0%}"), 4),
    ScreenColumn(3, "loss/s", lambda nic: _of(nic, lambda rates: f"{rates.recoveries:,.1f}"), 6),
    ScreenColumn(4, "drop/s", lambda nic: _of(nic, lambda rates: f"{rates.drops:,.1f}"), 6),
)


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


def page(
    before: Sequence[NicStats],
    after: Sequence[NicStats],
    sort: str,
    width: int | None = None,
    height: int | None = None,
) -> list[Line]:
    """Return the lines of NICs, collectives and flows. `width`: in as many columns; `height`: flows fill these lines.

    None: no limit.
    """
    nics = styled(fitted(_NICS, list(zip(after, rates_of(before, after), strict=True)), width))
    waits = [
        wrapped(f"{nic.info.name}  {line}", width) for nic in after for line in collective_lines(nic.communicators)
    ]
    flows = flows_of(before, after, sort)
    summary = (
        f"{time.strftime('%H:%M:%S')}  {counted(len(after), 'NIC')}, {counted(len(flows), 'connection')}, by {sort}"
    )
    lines: list[Line] = [(line, "bold") for line in wrapped(summary, width)]
    third = None if height is None else max(3, height // 3)
    lines += [*_cut([[line] for line in nics], third), ("", "")]
    meetings = [
        wrapped(f"{nic.info.name}  {line}", width)
        for nic in after
        for line in (*meeting_lines(nic), *membership_lines(nic.memberships))
    ]
    relays = [wrapped(line, width) for nic in after for line in relay_lines(nic)]
    if meetings or relays:
        lines += [*_cut([[(line, "") for line in entry] for entry in (*meetings, *relays)], third), ("", "")]
    if waits:
        lines += [*_cut([[(line, "yellow") for line in wait] for wait in waits], third), ("", "")]
    if height is not None:
        flows = flows[: max(0, height - len(lines) - 1)]
    return lines + styled(fitted(_FLOWS, flows, width))


def _cut(entries: Sequence[Sequence[Line]], most: int | None) -> list[Line]:
    """Return the lines of entries, and how many more there are if those are more than `most` lines."""
    if most is None or sum(map(len, entries)) <= most:
        return [line for entry in entries for line in entry]
    shown: list[Line] = []
    for index, entry in enumerate(entries):
        if len(shown) + len(entry) >= most:
            return [*shown, (f"... and {len(entries) - index} more", entry[0][1])]
        shown += entry
    return shown


def _of(nic: _Nic, text: Callable[[Rates], str]) -> str:
    """A figure of a NIC with rates; one that is new has none."""
    return "" if nic[1] is None else text(nic[1])


def _rate(bytes_per_s: float) -> str:
    return f"{text_bytes(bytes_per_s)}/s"
