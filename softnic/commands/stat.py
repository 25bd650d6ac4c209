"""`softnic stat`: shows the streams of NICs, like `ss`, and their counters, like `ethtool -S`."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from softnic.cluster.nic_process import read_stats, running_nics
from softnic.commands import CommandError, add_json, deliver_json, number
from softnic.ipc.control import NicEvent, NicStats, StreamInfo
from softnic.units import text_bytes, text_rate, text_time

NAME = "stat"
HELP = "show the streams and counters of NICs"
_EVENTS = 10
"""Number of events shown without --all."""
_WIDTH = 160
"""Columns of the stream table; a narrower terminal wraps its lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without --nic: the NIC in SOFTNIC_NIC, otherwise the NICs of all clusters that you run. Byte columns are\n"
        "totals of a stream: sent and received by the application, and on the wire as frames; ratio is the\n"
        "compression of tagged data sent. The queues are the bytes that the peer has not acknowledged and those that\n"
        "the application has not read. Events come last: lost peers and applications, exhausted resources, repairs.\n"
        "With --seconds the NICs are measured for that time, and their rates are shown.\n\n"
        "examples:\n"
        "  softnic stat\n"
        "  softnic stat --nic /run/softnic/node0.sock --all\n"
        "  softnic stat --seconds 1\n"
        "  softnic stat --json - | jq '.[0].counters.tx_wire_bytes'"
    )
    parser.add_argument("--nic", metavar="PATH", action="append", help="a NIC's control socket; may be repeated")
    parser.add_argument("--all", action="store_true", help="show counters that are 0, and all events")
    seconds = number(0.01, 3600, "a time from 0.01 to 3600 seconds")
    parser.add_argument("--seconds", type=seconds, metavar="N", help="measure for N seconds and show rates")
    add_json(parser, "everything shown")


def run(args: argparse.Namespace) -> int:
    stats = _read(args.nic)
    rates: list[Rates | None] = [None] * len(stats)
    if args.seconds:
        stats, rates = _watch(stats, args.nic, args.seconds)
    if not deliver_json(args.json, msgspec.to_builtins(list(map(_jsonable, stats, rates)))):
        return 0
    console = Console(markup=False)
    console.width = max(console.width, _WIDTH)
    for each, rate in zip(stats, rates, strict=True):
        _print(console, each, rate, args.all)
    return 0


@dataclass(frozen=True)
class Rates:
    """Rates of a NIC per second. Wire bytes are those of frames."""

    seconds: float
    tx_bytes: float
    rx_bytes: float
    tx_wire_bytes: float
    rx_wire_bytes: float
    tx_frames: float
    rx_frames: float
    busy: float | None
    """Utilization of an emulated link, 0..1."""

    def __str__(self) -> str:
        out = text_rate(8 * self.tx_wire_bytes)
        if self.busy is not None:
            out += f" ({self.busy:.0%} busy)"
        return (
            f"in {text_time(self.seconds)}: applications sent {text_bytes(self.tx_bytes)}/s, "
            f"received {text_bytes(self.rx_bytes)}/s; "
            f"wire out {out}, in {text_rate(8 * self.rx_wire_bytes)}; "
            f"frames out {self.tx_frames:,.0f}/s, in {self.rx_frames:,.0f}/s"
        )


def _watch(
    before: Sequence[NicStats], paths: Sequence[str] | None, seconds: float
) -> tuple[list[NicStats], list[Rates | None]]:
    """The statistics after `seconds`, and the rates of each NIC that was there before."""
    began = time.monotonic()
    time.sleep(seconds)
    after = _read(paths)
    passed = time.monotonic() - began
    known = {each.info.pid: each for each in before}
    return after, [_rates(known[each.info.pid], each, passed) if each.info.pid in known else None for each in after]


def _rates(before: NicStats, after: NicStats, seconds: float) -> Rates:
    names = ("tx_bytes", "rx_bytes", "tx_wire_bytes", "rx_wire_bytes", "tx_frames", "rx_frames")
    each = {name: (after.counters[name] - before.counters[name]) / seconds for name in names}
    rate = after.info.rate_bps
    return Rates(seconds, **each, busy=None if rate is None else 8 * each["tx_wire_bytes"] / rate)


def _read(paths: Sequence[str] | None) -> list[NicStats]:
    """The statistics of the NICs named, which must all answer, or of those found, which may be stopping."""
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
        raise CommandError("no NIC runs here: name one with --nic PATH or SOFTNIC_NIC, or start some with softnic run")
    return found


def _jsonable(stats: NicStats, rates: Rates | None) -> dict[str, Any]:
    return {
        "nic": msgspec.structs.asdict(stats.info),
        **({} if rates is None else {"rates": asdict(rates)}),
        "counters": stats.counters,
        "events": [msgspec.structs.asdict(event) for event in stats.events],
        "streams": [msgspec.structs.asdict(stream) for stream in stats.streams],
    }


def _print(console: Console, stats: NicStats, rates: Rates | None, everything: bool) -> None:
    info = stats.info
    offloads = ", ".join(f"{tos}={codec}" for tos, codec in info.offloads.items()) or "none"
    console.print(info.name, style="bold", end="")
    console.print(
        f"  {info.ip}  {info.mac}  mtu {info.mtu}  mode {info.mode}  offloads {offloads}  "
        f"pid {info.pid}" + ("" if info.rate_bps is None else f"  link {text_rate(info.rate_bps)}"),
        highlight=False,
    )
    if rates is not None:
        console.print(str(rates), highlight=False)
    if stats.streams:
        console.print(_streams(stats.streams))
        for stream in stats.streams:
            if stream.auto is not None:
                console.print(f"{_endpoint(stream.local)} {_endpoint(stream.peer)}  {stream.auto.why}", highlight=False)
        console.print()
    else:
        console.print("no streams\n")
    console.print(_counters(stats.counters, everything))
    _print_events(console, stats.events, everything)


def _print_events(console: Console, events: Sequence[NicEvent], everything: bool) -> None:
    """Prints events, the latest last, in local time."""
    for event in events if everything else events[-_EVENTS:]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
        again = f" ({event.count:,} times)" if event.count > 1 else ""
        console.print(f"{when}  {event.text}{again}", highlight=False)
    if events:
        console.print()


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
            text_bytes(stream.cwnd) if stream.cwnd else "",
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
