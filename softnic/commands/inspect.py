"""`softnic inspect FILE`: shows the flows, packets and floats of a capture."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from softnic.arguments import argument, count
from softnic.capture import tables
from softnic.capture.capture_file import CaptureError
from softnic.capture.flows import Analysis, CapturedFlow, FlowView
from softnic.capture.page import CapturePage
from softnic.capture.reader import read
from softnic.capture.report import CaptureReport, jsonable_floats
from softnic.capture.streams import StreamError, stream_of
from softnic.capture.wireshark_folders import DISSECTOR
from softnic.codecs import DecodeError
from softnic.commands import CommandError, add_json, check_writable, deliver_json, named, replays, write_file
from softnic.measure.report import widen
from softnic.terminal import printable

NAME = "inspect"
HELP = "show the flows, packets and floats of a capture"
_EXAMPLE = """\
examples:
  softnic inspect job.pcapng                                    the flows, their ratios and tag distributions
  softnic inspect job.pcapng --flow 3                           one flow, packet by packet
  softnic inspect job.pcapng --packet 1042                      one packet, decoded to floats
  softnic inspect job.pcapng --packet 1042 --vcd out.vcd        its way through the engines in hardware, for GTKWave
  softnic inspect job.pcapng --html report.html                 a page for a browser, in one file
  softnic inspect job.pcapng --flow 3 --floats got.npy          all floats of a flow as received
  softnic inspect job.pcapng --flow 3 --at node0:host --floats sent.npy    and as sent
  tshark -X lua_script:$(softnic inspect --dissector) -r job.pcapng        the same packets in tshark

Packet numbers are those of Wireshark. `repeated` counts packets without new bytes (retransmitted, duplicated or
overtaken). Table columns 2, 10, 18 and 34 bit: encoded size of a float, including its tag of 2 bits."""
_WIDTH = 110
"""Width of texts that do not go to a terminal."""
_NAMES = 40
"""Interfaces that an error names."""


def _tos(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value <= 255 or not value & 0xFC:
        raise ValueError(f"{text!r} is not a ToS: a number from 4 to 255 is expected, for example 0x28")
    return value & 0xFC


class _PrintDissector(argparse.Action):
    """Prints the path of the dissector and exits, as --version does; no FILE is needed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(DISSECTOR)
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLE
    parser.add_argument("file", metavar="FILE", help="a pcapng or pcap file")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--flow", metavar="N", type=count(1), help="show one flow and its packets")
    one.add_argument("--packet", metavar="N", type=count(1), help="show one packet with its floats")
    one.add_argument("--html", metavar="OUT.html", help="write a page with charts, for a browser; it needs no network")
    parser.add_argument("--at", metavar="INTERFACE", help="with --flow: show it at this interface, e.g. node0:wire")
    parser.add_argument(
        "--limit", metavar="N", type=count(0), default=40, help="maximum number of rows; 0: all (default: %(default)s)"
    )
    parser.add_argument("--floats", metavar="OUT.npy", help="write the floats of the flow or packet as a numpy array")
    parser.add_argument("--bytes", metavar="OUT", help="write the original bytes of the flow or packet")
    parser.add_argument(
        "--vcd",
        metavar="OUT.vcd",
        help="with --packet, of bounded or inceptionn on the wire: replay it through the engines in hardware "
        "(docs/rtl.md), decoded and then encoded again, and write every signal, for GTKWave (OUT.gtkw, too) or Surfer",
    )
    add_json(parser, "the report")
    parser.add_argument(
        "--tos",
        metavar="TOS",
        type=argument(_tos),
        action="append",
        help="ToS that selects an offload; may be repeated (default: from the capture, or 0x28)",
    )
    parser.add_argument(
        "--dissector", action=_PrintDissector, nargs=0, help="print the path of the Wireshark dissector and exit"
    )


def run(args: argparse.Namespace) -> int:
    if (args.floats or args.bytes) and not (args.flow or args.packet):
        raise CommandError("--floats and --bytes need --flow N or --packet N")
    if args.at and not args.flow:
        raise CommandError("--at needs --flow N")
    if args.vcd and not args.packet:
        raise CommandError("--vcd needs --packet N")
    check_writable(args.json, args.html, args.floats, args.bytes, args.vcd)
    try:
        with Console(stderr=True, markup=False).status(Text(f"reading {printable(args.file)}")):
            analysis = Analysis(read(args.file), frozenset(args.tos) if args.tos else None)
            if args.html:
                write_file(args.html, CapturePage(analysis, Path(args.file).name).html())
                return 0
            report = CaptureReport(analysis, args.file)
            parts, record = _report(args, report)
        if args.vcd:
            parts += replays.replayed(args, report, record)
    except (CaptureError, StreamError, DecodeError) as error:
        raise CommandError(f"{printable(args.file)}: {error}") from error
    if deliver_json(args.json, record):
        console = Console(markup=False)
        if not console.is_terminal:
            console.width = _WIDTH
        widen(console, *(part for part in parts if isinstance(part, Table)))
        for number, part in enumerate(parts):
            if number and isinstance(part, Table):
                console.print()
            console.print(part, highlight=False)
    return 0


def _report(args: argparse.Namespace, report: CaptureReport) -> tuple[list[RenderableType], Any]:
    """Return what to print, and what to write as JSON."""
    limit = args.limit or None
    if args.packet:
        return _packet(args, report, limit)
    if args.flow:
        return _flow(args, report, limit)
    summary = report.summary()
    return list(tables.summary_tables(summary, limit)), asdict(summary) if args.json else None


def _flow(args: argparse.Namespace, report: CaptureReport, limit: int | None) -> tuple[list[RenderableType], Any]:
    file, analysis = printable(args.file), report.analysis
    if args.flow > len(analysis.flows):
        raise CommandError(f"{file}: no flow {args.flow}: the capture has {len(analysis.flows)}")
    flow = analysis.flows[args.flow - 1]
    view = _view(args, analysis, flow)
    conflicts = _export(args, analysis, view) if args.floats or args.bytes else 0
    record = report.flow(flow, view)
    packets = report.packets(flow, view, None if args.json else limit)
    parts = list(tables.flow_tables(record, packets[:limit], limit))
    if conflicts:
        parts.append(Text(f"{conflicts:,} bytes came again with other values: the first are written", style="yellow"))
    return parts, asdict(record) | {"conflicting_bytes": conflicts, "packets": [asdict(packet) for packet in packets]}


def _export(args: argparse.Namespace, analysis: Analysis, view: FlowView) -> int:
    """Write the floats or bytes of a flow; return the number of bytes that came again with other values."""
    stream = stream_of(analysis, view)
    if args.floats:
        _save(args.floats, stream.floats)
    if args.bytes:
        write_file(args.bytes, stream.data.tobytes())
    return stream.conflicts


def _view(args: argparse.Namespace, analysis: Analysis, flow: CapturedFlow) -> FlowView:
    names = {analysis.capture.interfaces[view.interface].name: view for view in flow.views}
    if args.at is None:
        return flow.main
    if args.at not in names:
        more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
        known = ", ".join(list(names)[:_NAMES]) + more
        raise CommandError(f"{printable(args.file)}: flow {flow.number} is not at {args.at!r}, only at {known}")
    return names[args.at]


def _packet(args: argparse.Namespace, report: CaptureReport, limit: int | None) -> tuple[list[RenderableType], Any]:
    file, capture = printable(args.file), report.analysis.capture
    if args.packet > len(capture):
        raise CommandError(f"{file}: no packet {args.packet}: the capture has {len(capture)}")
    found = report.packet(args.packet)
    if found is None:
        raise CommandError(f"{file}: packet {args.packet} is not a complete TCP packet (tshark shows what it is)")
    record, content = found
    if (args.floats or args.bytes) and record.problem:
        raise CommandError(f"{file}: packet {args.packet}: {record.problem}")
    if args.floats:
        if isinstance(content, bytes):
            raise CommandError(f"{file}: packet {args.packet} is untagged: its bytes may not be floats")
        _save(args.floats, content)
    if args.bytes:
        write_file(args.bytes, report.original(args.packet))
    parts = list(tables.packet_tables(record, content, limit))
    if args.json and not isinstance(content, bytes):
        record.floats = jsonable_floats(content)
    return parts, asdict(record)


def _save(path: str, floats: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    with named(path), Path(path).open("wb") as file:  # np.save would add a suffix to a name without one
        np.save(file, floats)
