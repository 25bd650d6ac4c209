"""`softnic stat`: shows the streams of NICs, like `ss`, and their counters, like `ethtool -S`."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from contextlib import closing

from rich import box
from rich.console import Console
from rich.table import Table

from softnic.commands import CommandError, add_json, count, deliver_json, json_writer, number
from softnic.commands.nics import add_nic
from softnic.commands.snapshots import NicReader, Rates, document, rates_of, ratio_between, schema
from softnic.commands.stream_text import congestion_window, endpoint, ratio, round_trip, tag
from softnic.commands.waits import collective_lines
from softnic.commands.why import explain, write_samples
from softnic.ipc.collectives_info import CommunicatorInfo
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
        "the application has not read. Then follow collectives in progress, with what each rank waits for, and\n"
        "events: lost peers and applications, exhausted resources, repairs.\n"
        "With --seconds the NICs are measured for that time, and their rates are shown; with --watch again and again\n"
        "until Ctrl-C, with --json one line of JSON each time. `softnic top` shows rates live in the terminal.\n\n"
        "examples:\n"
        "  softnic stat\n"
        "  softnic stat --nic /run/softnic/node0.sock --all\n"
        "  softnic stat --seconds 1\n"
        "  softnic stat --why\n"
        "  srun --ntasks-per-node 1 sh -c 'softnic stat --why --samples why-$(hostname).json'\n"
        "  softnic stat --why --from why-*.json\n"
        "  softnic stat --json - | jq '.[0].counters.tx_wire_bytes'\n"
        "  softnic stat --watch 5 --json - | jq --unbuffered '.[0].rates.tx_wire_bytes'"
    )
    add_nic(parser)
    parser.add_argument("--all", action="store_true", help="show counters that are 0, and all events")
    seconds = number(0.01, 3600, "a time from 0.01 to 3600 seconds")
    rates = parser.add_mutually_exclusive_group()
    rates.add_argument("--seconds", type=seconds, metavar="N", help="measure for N seconds and show rates")
    text = "show rates every N seconds (1)"
    rates.add_argument("--watch", type=seconds, metavar="N", nargs="?", const=1.0, help=text)
    parser.add_argument("--count", type=count(1), metavar="N", help="with --watch: stop after N times")
    text = "find out for 2 seconds why steps are slow or stuck: which rank, call and link"
    rates.add_argument("--why", action="store_true", help=text)
    text = "with --why: write what this host's NICs answer, for --from"
    parser.add_argument("--samples", metavar="FILE", help=text)
    text = "with --why: compare the files that --samples wrote on several hosts, at the same time; no NIC is asked"
    parser.add_argument("--from", metavar="FILE", nargs="+", dest="files", help=text)
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of --json, and nothing else")
    add_json(parser, "everything shown")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        print(json.dumps(schema(), indent=2))
        return 0
    if args.count and not args.watch:
        raise CommandError("--count needs --watch")
    if (args.samples or args.files) and not args.why:
        raise CommandError("--samples and --from need --why")
    if args.files and (args.nic or args.samples):
        raise CommandError("--from asks no NIC: leave out --nic and --samples")
    if args.why:
        return write_samples(args.nic, args.samples) if args.samples else explain(args.nic, args.json, args.files)
    with closing(NicReader(args.nic)) as reader:
        if args.watch:
            _watch(reader, args)
            return 0
        stats = reader.read()
        rates: Sequence[Rates | None] = [None] * len(stats)
        if args.seconds:
            stats, rates = _measure(reader, stats, args.seconds)
    if deliver_json(args.json, document(stats, rates)):
        _print_all(stats, rates, args.all)
    return 0


def _measure(
    reader: NicReader, before: Sequence[NicStats], seconds: float
) -> tuple[list[NicStats], Sequence[Rates | None]]:
    """Returns the statistics after `seconds`, and the rates since `before`."""
    time.sleep(seconds)
    after = reader.read()
    return after, rates_of(before, after)


def _watch(reader: NicReader, args: argparse.Namespace) -> None:
    """Shows rates again and again; writes a line of JSON each time."""
    with json_writer(args.json) as deliver:
        stats = reader.read()
        for _ in range(args.count) if args.count else itertools.count():
            stats, rates = _measure(reader, stats, args.watch)
            if deliver(document(stats, rates)):
                _print_all(stats, rates, args.all)


def _print_all(stats: Sequence[NicStats], rates: Sequence[Rates | None], everything: bool) -> None:
    console = Console(markup=False)
    console.width = max(console.width, _WIDTH)
    for each, rate in zip(stats, rates, strict=True):
        _print(console, each, rate, everything)


def _text(rates: Rates) -> str:
    out = text_rate(8 * rates.tx_wire_bytes)
    if rates.busy is not None:
        out += f" ({rates.busy:.0%} busy)"
    return (
        f"in {text_time(rates.seconds)}: applications sent {text_bytes(rates.tx_bytes)}/s, "
        f"received {text_bytes(rates.rx_bytes)}/s; "
        f"wire out {out}, in {text_rate(8 * rates.rx_wire_bytes)}; "
        f"frames out {rates.tx_frames:,.0f}/s, in {rates.rx_frames:,.0f}/s; CPU {rates.cpu:.1%}"
    )


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
        console.print(_text(rates), highlight=False)
    if stats.streams:
        console.print(_streams(stats.streams))
        for stream in stats.streams:
            if stream.auto is not None:
                console.print(f"{endpoint(stream.local)} {endpoint(stream.peer)}  {stream.auto.why}", highlight=False)
        console.print()
    else:
        console.print("no streams\n")
    _print_collectives(console, stats.communicators)
    console.print(_counters(stats.counters, everything))
    _print_events(console, stats.events, everything)


def _print_collectives(console: Console, communicators: Sequence[CommunicatorInfo]) -> None:
    """Prints what each rank of a communicator that is not idle waits for."""
    lines = collective_lines(communicators)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    if lines:
        console.print()


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
        figures = [
            text_bytes(stream.bytes_sent),
            text_bytes(stream.wire_bytes_sent),
            ratio(ratio_between(stream.offload_original_bytes, stream.offload_encoded_bytes)),
            text_bytes(stream.bytes_received),
            text_bytes(stream.wire_bytes_received),
            f"{stream.send_queue} {stream.receive_queue}",
            round_trip(stream),
            congestion_window(stream),
            str(stream.retransmits),
        ]
        ends = (endpoint(stream.local), endpoint(stream.peer))
        table.add_row(stream.state, *ends, *([""] * 9 if listens else figures), tag(stream))
    return table


def _counters(counters: dict[str, int], everything: bool) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, value in counters.items():
        if value or everything:
            table.add_row(name, f"{value:,}")
    table.add_row("", "")
    return table
