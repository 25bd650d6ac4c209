"""The page of `softnic stat`: its lines, from snapshots of the NICs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from softnic.commands.layout import Line, ScreenColumn, fitted, pairs, styled, wrapped
from softnic.commands.meeting_text import meeting_lines
from softnic.commands.membership_text import membership_lines
from softnic.commands.snapshots import Rates, ratio_between
from softnic.commands.stream_text import congestion_window, endpoint, ratio, round_trip, tag
from softnic.commands.waits import collective_lines
from softnic.ipc.control import NicEvent, NicInfo, NicStats, StreamInfo
from softnic.ipc.snapshot import PeerWay
from softnic.units import text_bytes, text_rate, text_time

EVENTS, WAYS = 10, 8
"""Numbers of events, and of ways to peers, shown without --all."""
_COLUMNS: tuple[ScreenColumn[StreamInfo], ...] = (
    ScreenColumn(11, "state", lambda stream: stream.state, 11, left=True),
    ScreenColumn(10, "local", lambda stream: endpoint(stream.local), 15, left=True),
    ScreenColumn(1, "peer", lambda stream: endpoint(stream.peer), 15, left=True),
    ScreenColumn(2, "sent", lambda stream: _figure(stream, text_bytes(stream.bytes_sent)), 8),
    ScreenColumn(6, "wire out", lambda stream: _figure(stream, text_bytes(stream.wire_bytes_sent)), 8),
    ScreenColumn(
        4, "ratio", lambda stream: ratio(ratio_between(stream.offload_original_bytes, stream.offload_encoded_bytes)), 5
    ),
    ScreenColumn(5, "received", lambda stream: _figure(stream, text_bytes(stream.bytes_received)), 8),
    ScreenColumn(13, "wire in", lambda stream: _figure(stream, text_bytes(stream.wire_bytes_received)), 8),
    ScreenColumn(9, "unacked", lambda stream: _figure(stream, text_bytes(stream.send_queue)), 8),
    ScreenColumn(12, "unread", lambda stream: _figure(stream, text_bytes(stream.receive_queue)), 8),
    ScreenColumn(8, "rtt", round_trip, 7),
    ScreenColumn(14, "cwnd", congestion_window, 8),
    ScreenColumn(3, "again", lambda stream: _figure(stream, f"{stream.retransmits:,}"), 5),
    ScreenColumn(7, "tag", tag, 10, left=True),
)
_QUEUE = ScreenColumn[StreamInfo](15, "queue", lambda stream: _figure(stream, str(stream.queue)), 5)
"""Of NICs with several."""


def page(stats: NicStats, rates: Rates | None, everything: bool, width: int | None) -> list[Line]:
    """Return the lines of one NIC. `everything`: counters that are 0 and all events, too; `width` None: no limit."""
    lines: list[Line] = [(line, "bold") for line in wrapped(_about(stats.info), width)]
    if rates is not None:
        lines += _plain(wrapped(rates_text(rates), width))
    about = (
        *meeting_lines(stats),
        *membership_lines(stats.memberships),
        *_ways(stats, everything),
        *_queues(stats),
    )
    lines += _plain([line for text in about for line in wrapped(text, width)])
    lines += [*_streams(stats.streams, width), ("", "")]
    waits = [line for text in collective_lines(stats.communicators) for line in wrapped(text, width)]
    if waits:
        lines += [*_plain(waits), ("", "")]
    counters = [(name, f"{value:,}") for name, value in stats.counters.items() if value or everything]
    lines += [*_plain(pairs(counters, width)), ("", "")]
    events = [line for event in stats.events[0 if everything else -EVENTS :] for line in wrapped(_event(event), width)]
    return [*lines, *_plain(events), ("", "")] if events else lines


def rates_text(rates: Rates) -> str:
    """Return the rates of a NIC in one line."""
    out = text_rate(8 * rates.tx_wire_bytes)
    if rates.busy is not None:
        out += f" ({rates.busy:.0%} busy)"
    return (
        f"in {text_time(rates.seconds)}: applications sent {text_bytes(rates.tx_bytes)}/s, "
        f"received {text_bytes(rates.rx_bytes)}/s; "
        f"wire out {out}, in {text_rate(8 * rates.rx_wire_bytes)}; "
        f"frames out {rates.tx_frames:,.0f}/s, in {rates.rx_frames:,.0f}/s; "
        f"losses {rates.recoveries:,.1f}/s, drops {rates.drops:,.1f}/s; CPU {rates.cpu:.1%}"
    )


def _about(info: NicInfo) -> str:
    offloads = ", ".join(f"{tos}={codec}" for tos, codec in info.offloads.items()) or "none"
    about = f"{info.name}  {info.ip}  {info.mac}  mtu {info.mtu}  mode {info.mode}  offloads {offloads}  pid {info.pid}"
    return about + ("" if info.rate_bps is None else f"  link {text_rate(info.rate_bps)}")


def _ways(stats: NicStats, everything: bool) -> list[str]:
    """A line for each peer."""
    shown = stats.ways if everything else stats.ways[:WAYS]
    has_keys = any(way.key for way in stats.ways)
    lines = [f"{way.peer} by {way.address} ({_kind(way)})" + _key(way) * has_keys for way in shown]
    left = stats.peers - len(shown)
    return [*lines, f"and {left:,} more peers"] if left else lines


def _kind(way: PeerWay) -> str:
    """The family of a way, whether it is relayed, and whether the peer has moved."""
    moved = f", moved {way.moves:,} times, last {text_time(way.age)} ago" if way.moves else ""
    relayed = f", relayed by node {way.relay}" if way.relay else ", relayed" * way.relayed
    return way.family + relayed + moved


def _key(way: PeerWay) -> str:
    return f"  key {way.key or '-'}"


def _queues(stats: NicStats) -> list[str]:
    """A line for each queue, of a NIC with several."""
    if stats.info.queues == 1:
        return []
    return [
        f"queue {each.queue}: {each.streams:,} streams, wire out {text_bytes(each.tx_wire_bytes)}, "
        f"in {text_bytes(each.rx_wire_bytes)}, CPU {text_time(each.cpu)}"
        for each in stats.queues
    ]


def _streams(streams: Sequence[StreamInfo], width: int | None) -> list[Line]:
    if not streams:
        return [("no streams", "")]
    columns = (*_COLUMNS, _QUEUE) if any(stream.queue for stream in streams) else _COLUMNS
    table = fitted(columns, streams, width)
    lines = styled(table)
    if table.left_out:
        lines += _plain(wrapped(f"a wider terminal shows {', '.join(table.left_out)}, too", width), "dim")
    for stream in streams:
        if stream.auto is not None:
            lines += _plain(wrapped(f"{endpoint(stream.local)} {endpoint(stream.peer)}  {stream.auto.why}", width))
    return lines


def _event(event: NicEvent) -> str:
    """An event in local time."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    return f"{when}  {event.text}" + (f" ({event.count:,} times)" if event.count > 1 else "")


def _figure(stream: StreamInfo, text: str) -> str:
    """A figure of a connection; listening streams have none."""
    return "" if stream.peer is None else text


def _plain(lines: Sequence[str], style: str = "") -> list[Line]:
    return [(line, style) for line in lines]
