"""The records of softnic.capture.report as tables for users (rich renderables; nothing is printed here)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from softnic.capture.report import FlowRecord, PacketRecord, Summary, Tags, ViewRecord, summarize
from softnic.capture.streams import Floats
from softnic.terminal import printable
from softnic.units import text_bytes

TAG_COLUMNS = ("2 bit", "10 bit", "18 bit", "34 bit", "raw")
_LANES = 8
_HEX_ROW = 16


def summary_tables(summary: Summary, limit: int | None) -> Iterator[RenderableType]:
    """Yield the tables of a file: its flows, and the encoding of tagged data."""
    yield _headline(summary, limit)
    warnings = list(_warnings(summary))
    yield from warnings[:limit]
    if limit is not None and len(warnings) > limit:
        yield Text(f"... and {len(warnings) - limit:,} more such lines (--limit 0 shows all)", style="yellow")
    if not summary.flows:
        yield Text("no TCP packets")
        return
    shown = _largest(summary.flows, limit)
    yield flows_table(shown)
    if len(shown) < len(summary.flows):
        yield Text(f"... and {len(summary.flows) - len(shown)} more flows, smaller (--limit 0 shows all)", style="dim")
    tagged = [flow for flow in summary.flows if flow.main.tagged_packets]
    if tagged:
        yield tagged_table(tagged, limit)
    else:
        yield Text("nothing was tagged: no payload was compressed")


def _largest(flows: list[FlowRecord], limit: int | None) -> list[FlowRecord]:
    """Return the flows with most bytes on the wire, in their order."""
    if limit is None or len(flows) <= limit:
        return flows
    chosen = sorted(flows, key=lambda flow: flow.main.wire_bytes, reverse=True)[:limit]
    return sorted(chosen, key=lambda flow: flow.flow)


def _headline(summary: Summary, limit: int | None) -> Text:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in summary.kinds.items())
    text = Text(printable(summary.file), style="bold")
    text.append(f": {summary.packets:,} packets in {summary.seconds:.3f} s ({kinds or 'none'})", style="not bold")
    points = ", ".join(f"{one.name} {one.packets:,}" for one in summary.interfaces[:limit])
    if limit is not None and len(summary.interfaces) > limit:
        points += f" and {len(summary.interfaces) - limit:,} more"
    return text.append(f"\nseen at: {points or 'no interface'}", style="not bold dim")


def _warnings(summary: Summary) -> Iterator[Text]:
    for one in summary.interfaces:
        if one.dropped:
            seen = f" of {one.received:,}" if one.received else ""
            yield Text(
                f"{one.name}: {one.dropped:,}{seen} packets are missing, the capture was too slow", style="yellow"
            )
    for flow in summary.flows:
        if flow.undecodable_packets:
            yield Text(
                f"flow {flow.flow}: {flow.undecodable_packets:,} tagged packets cannot be decoded "
                f"({flow.main.malformed_packets:,} malformed, the rest cut off)",
                style="yellow",
            )


def flows_table(flows: Iterable[FlowRecord]) -> Table:
    table = _table("Flows", "#", "from", "to", left=("from", "to", "seen at"))
    for column in ("packets", "stream", "wire", "repeated"):
        table.add_column(column, justify="right")
    table.add_column("seen at")
    for flow in flows:
        view = flow.main
        table.add_row(
            *(str(flow.flow), flow.source, flow.destination, f"{view.packets:,}"),
            *(text_bytes(view.stream_bytes), text_bytes(view.wire_bytes)),
            *(_count(view.repeated_packets), view.interface),
        )
    return table


def tagged_table(flows: list[FlowRecord], limit: int | None = None) -> Table:
    """Return ratio and Table III: a row per flow, of the `limit` largest, and one for all."""
    table = _table("Tagged data", "#", "codec", left=("codec",))
    for column in ("packets", "original", "encoded", "ratio", *TAG_COLUMNS):
        table.add_column(column, justify="right")
    total, sizes = Tags(), np.zeros(3, np.int64)
    shown = {flow.flow for flow in _largest(flows, limit)}
    for flow in flows:
        view, tags = flow.main, flow.tags
        numbers = (view.tagged_packets, view.tagged_original_bytes, view.tagged_payload_bytes)
        sizes += numbers
        total = Tags(*(mine + theirs for mine, theirs in zip(_values(total), _values(tags), strict=True)))
        if flow.flow in shown:
            table.add_row(str(flow.flow), _codecs(flow), *_sizes(*numbers), *_shares(tags))
    if len(flows) > 1:
        table.add_section()
        table.add_row("all", "", *_sizes(*sizes.tolist()), *_shares(total))
    return table


def flow_tables(flow: FlowRecord, packets: list[PacketRecord], limit: int | None) -> Iterator[RenderableType]:
    """Yield the tables of one flow: at `limit` vantage points, and packet by packet at the first."""
    text = Text(f"flow {flow.flow}: {flow.source} to {flow.destination}", style="bold")
    if flow.negotiated is None:
        agreed = "the handshake was not captured"
    else:
        agreed = f"both NICs have {', '.join(flow.negotiated)}" if flow.negotiated else "one NIC does not compress"
    yield text.append(f" (connection {flow.connection}; {agreed})", style="not bold")
    yield views_table(flow.views[:limit])
    if limit is not None and len(flow.views) > limit:
        yield Text(f"... and {len(flow.views) - limit:,} more interfaces (--limit 0 shows all)", style="dim")
    if flow.main.tagged_packets:
        yield tagged_table([flow])
    yield packets_table(packets, flow.main.interface)
    if len(packets) < flow.main.packets:
        yield Text(f"... and {flow.main.packets - len(packets):,} more packets (--limit 0 shows all)", style="dim")


def views_table(views: list[ViewRecord]) -> Table:
    table = _table("Seen at", "interface", "", left=("interface", ""))
    for column in ("packets", "stream", "wire", "tagged", "encoded", "ratio", "raw", "repeated", "first s", "last s"):
        table.add_column(column, justify="right")
    for view in views:
        table.add_row(
            *(view.interface, view.direction, f"{view.packets:,}", text_bytes(view.stream_bytes)),
            *(text_bytes(view.wire_bytes), *_sizes(0, view.tagged_original_bytes, view.tagged_payload_bytes)[1:]),
            *(_count(view.raw_packets), _count(view.repeated_packets), f"{view.first_s:.6f}", f"{view.last_s:.6f}"),
        )
    return table


def packets_table(packets: list[PacketRecord], interface: str) -> Table:
    """Return the table of packets. Tag columns count words; `again` marks packets without new bytes."""
    table = _table(f"Packets at {interface}", "no.", "time s", "flags", left=("flags", "codec"))
    for column in ("position", "bytes", "payload", "ratio"):
        table.add_column(column, justify="right")
    table.add_column("codec")
    for column in TAG_COLUMNS:
        table.add_column(column, justify="right")
    for packet in packets:
        tags = _values(packet.tags) if packet.tags else ()
        codec = packet.codec or ("" if packet.state == "plain" else packet.state)
        table.add_row(
            *(str(packet.number), f"{packet.time_s:.6f}", packet.flags.title() + (" again" if packet.repeated else "")),
            *(f"{packet.position:,}", _count(packet.original_bytes), _count(packet.payload_bytes)),
            *("" if packet.ratio is None else f"{packet.ratio:.2f}", codec, *(_count(tag) for tag in tags)),
            style="yellow" if packet.problem or packet.state == "malformed" else "dim" if packet.repeated else None,
        )
    return table


def packet_tables(packet: PacketRecord, content: Floats | bytes, limit: int | None) -> Iterator[RenderableType]:
    """Yield the tables of one packet: headers, payload, and its floats or bytes."""
    table = Table.grid(padding=(0, 2))
    for name, value in _packet_facts(packet):
        table.add_row(Text(name, style="dim"), value)
    yield Text(f"packet {packet.number}", style="bold")
    yield table
    if packet.tags:
        distribution = _table("Words by bits", left=())
        for column in ("", *TAG_COLUMNS):
            distribution.add_column(column, justify="right")
        distribution.add_row("words", *(f"{value:,}" for value in _values(packet.tags)))
        distribution.add_row("share", *_shares(packet.tags))
        yield distribution
    if isinstance(content, bytes):
        if content:
            yield _hex_table(content, limit)
    elif not packet.problem:
        yield from _floats(content, limit)


def _packet_facts(packet: PacketRecord) -> Iterator[tuple[str, str]]:
    way = {"in": "received", "out": "sent"}.get(packet.direction, "seen")
    yield "frame", f"{way} at {packet.interface}, {packet.time_s:.6f} s, {packet.frame_bytes:,} bytes"
    if packet.packet_id:
        yield "packet id", f"{packet.packet_id:#x} (the same on every frame of one segment, and on its host copy)"
    yield "flow", f"{packet.flow}: {packet.source} to {packet.destination}"
    yield "tcp", f"seq {packet.seq} ack {packet.ack} window {packet.window} {packet.flags}"
    again = ", all of which an earlier packet brought" if packet.repeated else ""
    if packet.original_bytes:
        yield "stream", f"{packet.original_bytes:,} bytes from byte {packet.position:,} on{again}"
    what = {
        "plain": "untagged bytes",
        "floats": "floats, not encoded at this side of the NIC",
        "raw": "the original bytes (RAW: they would not have shrunk)",
        "encoded": f"{packet.original_bytes // 4:,} floats in {packet.body_bytes:,} bytes",
    }.get(packet.state, packet.state)
    ratio = f", ratio {packet.ratio:.2f}" if packet.ratio is not None and packet.state == "encoded" else ""
    if packet.payload_bytes:
        yield "payload", f"{packet.payload_bytes:,} bytes, ToS {packet.tos:#04x}: {what}{ratio}"
    if packet.codec:
        yield "codec", packet.codec
    if packet.problem:
        yield "problem", packet.problem


def _floats(floats: Floats, limit: int | None) -> Iterator[RenderableType]:
    facts = summarize(floats)
    yield Text(
        f"{facts.count:,} floats: {facts.zeros:,} zeros, {facts.not_finite:,} not finite, "
        f"min {facts.minimum:.6g}, max {facts.maximum:.6g}, mean {facts.mean:.6g}, deviation {facts.deviation:.6g}"
    )
    rows = -(-len(floats) // _LANES)
    shown = rows if limit is None else min(rows, limit)
    table = Table(box=None, header_style="dim", padding=(0, 1))
    table.add_column("float", justify="right", style="dim")
    for lane in range(_LANES):
        table.add_column(f"+{lane}", justify="right")
    for row in range(shown):
        values = floats[row * _LANES : (row + 1) * _LANES].tolist()
        table.add_row(f"{row * _LANES:,}", *(f"{value:.6g}" for value in values))
    yield table
    if shown < rows:
        yield Text(f"... and {len(floats) - shown * _LANES:,} more floats (--limit 0 shows all)", style="dim")


def _hex_table(content: bytes, limit: int | None) -> RenderableType:
    rows = range(0, len(content), _HEX_ROW)
    shown = rows if limit is None else rows[:limit]
    lines = []
    for at in shown:
        row = content[at : at + _HEX_ROW]
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:8,}  {row.hex(' '):{3 * _HEX_ROW}} {printable}")
    if len(shown) < len(rows):
        lines.append(f"... and {len(content) - len(shown) * _HEX_ROW:,} more bytes (--limit 0 shows all)")
    return Text("\n".join(lines))


def _table(title: str, *columns: str, left: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", padding=(0, 1))
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right")
    return table


def _codecs(flow: FlowRecord) -> str:
    return ", ".join(flow.codecs) or ("not encoded" if flow.main.tagged_packets else "")


def _values(tags: Tags) -> tuple[int, ...]:
    return tags.bits_2, tags.bits_10, tags.bits_18, tags.bits_34, tags.raw


def _sizes(packets: int, original: int, payload: int) -> tuple[str, str, str, str]:
    if not original:
        return f"{packets:,}", "", "", ""
    return f"{packets:,}", text_bytes(original), text_bytes(payload), f"{original / payload:.2f}"


def _shares(tags: Tags) -> list[str]:
    return [f"{value / tags.words:.1%}" if tags.words else "" for value in _values(tags)]


def _count(value: int) -> str:
    return f"{value:,}" if value else ""
