"""`softnic stat`: the streams of NICs, as `ss` shows sockets, and their counters, as `ethtool -S` does."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from softnic.cluster import read_stats, running_nics
from softnic.commands import CommandError
from softnic.control import NicStats, StreamInfo
from softnic.units import text_bytes, text_time

NAME = "stat"
HELP = "show the streams and counters of NICs"
_WIDTH = 160
"""Of the stream table; a narrower terminal wraps its lines, as it does those of ss."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without --nic: the NIC that SOFTNIC_NIC names, else those of every cluster that you run. Byte columns are\n"
        "totals of a stream: sent and received as programs see them, on the wire as frames; ratio is that of what was\n"
        "sent tagged. The queues hold what the peer has not acknowledged, and what the program has not read.\n\n"
        "examples:\n"
        "  softnic stat\n"
        "  softnic stat --nic /run/softnic/node0.sock --all\n"
        "  softnic stat --json - | jq '.[0].counters.tx_wire_bytes'"
    )
    parser.add_argument("--nic", metavar="PATH", action="append", help="a NIC's control socket; may be repeated")
    parser.add_argument("--all", action="store_true", help="show counters that are 0, too")
    parser.add_argument("--json", metavar="FILE", help="write it all as JSON (-: standard output, no tables)")


def run(args: argparse.Namespace) -> int:
    stats = _read(args.nic)
    if args.json:
        content = json.dumps(msgspec.to_builtins([_jsonable(each) for each in stats]), indent=2) + "\n"
        if args.json == "-":
            sys.stdout.write(content)
            return 0
        Path(args.json).write_text(content, encoding="utf-8")
    console = Console()
    console.width = max(console.width, _WIDTH)
    for each in stats:
        _print(console, each, args.all)
    return 0


def _read(paths: Sequence[str] | None) -> list[NicStats]:
    """Of the NICs that were named, which all have to answer, or of those found, which may be leaving."""
    named = paths or [path for path in (os.environ.get("SOFTNIC_NIC"),) if path]
    if named:
        return [read_stats(Path(path)) for path in named]
    found = []
    for path in running_nics():
        try:
            found.append(read_stats(path))
        except OSError:
            continue
    if not found:
        raise CommandError("no NIC runs here: name one by --nic PATH or SOFTNIC_NIC, or start some: softnic run")
    return found


def _jsonable(stats: NicStats) -> dict[str, Any]:
    return {
        "nic": msgspec.structs.asdict(stats.info),
        "counters": stats.counters,
        "streams": [msgspec.structs.asdict(stream) for stream in stats.streams],
    }


def _print(console: Console, stats: NicStats, everything: bool) -> None:
    info = stats.info
    offloads = ", ".join(f"{tos}={codec}" for tos, codec in info.offloads.items()) or "none"
    console.print(
        f"[bold]{info.name}[/bold]  {info.ip}  {info.mac}  mtu {info.mtu}  mode {info.mode}  offloads {offloads}  "
        f"pid {info.pid}",
        highlight=False,
    )
    if stats.streams:
        console.print(_streams(stats.streams))
        for stream in stats.streams:
            if stream.auto is not None:
                console.print(f"{_endpoint(stream.local)} {_endpoint(stream.peer)}  {stream.auto.why}", highlight=False)
        console.print()
    else:
        console.print("no streams\n")
    console.print(_counters(stats.counters, everything))


def _streams(streams: Sequence[StreamInfo]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("state", "local", "peer"):
        table.add_column(heading, no_wrap=True)
    for heading in ("sent", "on the wire", "ratio", "received", "on the wire", "queues", "rtt", "cwnd", "again"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("tag", no_wrap=True)
    for stream in streams:
        listens = stream.peer is None
        encoded = stream.offload_encoded_bytes
        figures = [
            text_bytes(stream.bytes_sent),
            text_bytes(stream.wire_bytes_sent),
            f"{stream.offload_original_bytes / encoded:.2f}" if encoded else "",
            text_bytes(stream.bytes_received),
            text_bytes(stream.wire_bytes_received),
            f"{stream.send_queue} {stream.receive_queue}",
            text_time(stream.srtt) if stream.srtt else "",
            text_bytes(stream.cwnd),
            str(stream.retransmits),
        ]
        tag = f"0x{stream.tos:02x} {stream.codec}".strip() if stream.tos else ""
        table.add_row(
            stream.state, _endpoint(stream.local), _endpoint(stream.peer), *([""] * 9 if listens else figures), tag
        )
    return table


def _endpoint(address: tuple[str, int] | None) -> str:
    return "" if address is None else f"{address[0]}:{address[1]}"


def _counters(counters: dict[str, int], everything: bool) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, value in counters.items():
        if value or everything:
            table.add_row(name, f"{value:,}")
    table.add_row("", "")
    return table
