"""`softnic stat`: shows the streams of NICs, like `ss`, and their counters, like `ethtool -S`."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from contextlib import closing

from rich.console import Console

from softnic.arguments import count, number
from softnic.commands import CommandError, add_json, deliver_json, json_writer
from softnic.commands.layout import terminal_width
from softnic.commands.nics import add_nic
from softnic.commands.snapshots import NicReader, Rates, document, rates_of, schema
from softnic.commands.stat_page import page
from softnic.commands.why import explain, write_samples
from softnic.ipc.control import NicStats
from softnic.terminal import printable

NAME = "stat"
HELP = "show the streams and counters of NICs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without --nic: the NIC in SOFTNIC_NIC, otherwise the NICs of all clusters that you run. Byte columns are\n"
        "totals of a stream: sent and received by the application, and on the wire as frames; ratio is the\n"
        "compression of tagged data sent, tag the ToS and the codecs. Unacked are bytes that the peer has not\n"
        "acknowledged, unread those that the application has not read, again the segments sent again. Then follow\n"
        "collectives in progress, with what each rank waits for, and events: lost peers and applications, exhausted\n"
        "resources, repairs. A terminal gets the columns that fit, a file or pipe all (COLUMNS sets a width).\n"
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
    console = Console(markup=False, highlight=False, soft_wrap=True)
    width = terminal_width(console)
    for each, rate in zip(stats, rates, strict=True):
        for text, style in page(each, rate, everything, width):
            console.print(printable(text, keep="\n"), style=style)
