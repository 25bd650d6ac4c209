"""`softnic bench`: how fast codecs, streams, all-reduce and small messages are here, beside what limits them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from softnic.bench import codec as bench_codec
from softnic.bench import inputs
from softnic.bench import stream as bench_stream
from softnic.bench.report import BenchError, Progress, Report
from softnic.cluster import LINK, ClusterError
from softnic.commands import CommandError, count
from softnic.commands.links import codec_name, text

NAME = "bench"
HELP = "measure codecs, streams, all-reduce and latency on this machine, beside what limits them"

_DATA_HELP = "gaussian:SIGMA, silent, sparse:SHARE, or hdc: gradients of the demo's classifier"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Each takes less than a minute with its defaults, and `softnic bench NAME --help` tells what it measures.\n\n"
        "examples:\n"
        "  softnic bench codec --compare\n"
        "  softnic bench stream --json stream.json"
    )
    kinds = parser.add_subparsers(metavar="codec|...", required=True, dest="benchmark")
    _add_codec(kinds)
    _add_stream(kinds)


def run(args: argparse.Namespace) -> int:
    if args.json not in (None, "-"):
        Path(args.json).open("a").close()  # raises now what it would raise when all is done
    console = Console(stderr=True)
    with console.status("starting") as status:

        def progress(what: str) -> None:
            status.update(f"measuring {what}")

        try:
            report: Report[Any] = args.measure(args, progress)
        except (BenchError, ClusterError) as error:
            raise CommandError(str(error)) from error
    if args.json:
        content = json.dumps(report.as_json(), indent=2) + "\n"
        if args.json == "-":
            sys.stdout.write(content)
            return 0
        Path(args.json).write_text(content, encoding="utf-8")
    report.show()
    return 0


def _add(kinds: Any, name: str, what: str, epilog: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = kinds.add_parser(
        name, help=what, description=what, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures as JSON (-: standard output, no table)")
    return parser


def _add_codec(kinds: Any) -> None:
    parser = _add(
        kinds,
        "codec",
        "GB/s of floats that codecs encode and decode on one core; limit: memcpy",
        "With --compare: LZ4, Snappy, zstd -1, Blosc2 on the same data, and SZ3 and zfp at the error bound of\n"
        "bounded:k, as far as they are installed (pip install 'softnic[bench]').\n\n"
        "examples:\n"
        "  softnic bench codec\n"
        "  softnic bench codec --compare --data hdc --json codec.json\n"
        "  SOFTNIC_SIMD=scalar softnic bench codec --codec bounded:8 --codec bounded:12",
    )
    parser.add_argument(
        "--codec",
        type=text(codec_name),
        action="append",
        metavar="NAME",
        dest="codecs",
        help="measure this one; may be repeated (one of each)",
    )
    parser.add_argument(
        "--data",
        type=text(inputs.check),
        action="append",
        metavar="NAME",
        help=f"{_DATA_HELP}; may be repeated ({', '.join(bench_codec.DATA)}, and hdc where scikit-learn is installed)",
    )
    parser.add_argument("--compare", action="store_true", help="measure other compressors on the same data, too")
    parser.add_argument("--megabytes", type=count(1, 4096), default=16, metavar="N", help="of float32 (16)")
    parser.add_argument("--rounds", type=count(1, 1000), default=5, metavar="N", help="medians of so many (5)")
    parser.set_defaults(measure=_measure_codec)


def _measure_codec(args: argparse.Namespace, progress: Progress) -> Report[Any]:
    plan = bench_codec.Plan(
        codecs=tuple(dict.fromkeys(args.codecs or bench_codec.default_codecs())),
        data=tuple(dict.fromkeys(args.data or bench_codec.default_data())),
        compare=args.compare,
        megabytes=args.megabytes,
        rounds=args.rounds,
    )
    return bench_codec.run(plan, progress)


def _add_stream(kinds: Any) -> None:
    parser = _add(
        kinds,
        "stream",
        "MB/s, CPU and memory of one stream through two NICs; limits: a Unix socket, a UDP flood, the link's rate",
        "examples:\n"
        "  softnic bench stream\n"
        "  softnic bench stream --codec bounded:10 --codec truncate:16 --json stream.json\n"
        "  softnic bench stream --rate 1gbit --delay 50us --megabytes 200",
    )
    parser.add_argument(
        "--codec",
        type=text(codec_name),
        action="append",
        metavar="NAME",
        dest="codecs",
        help="of a tagged stream; may be repeated (bounded:10)",
    )
    parser.add_argument("--data", type=text(inputs.check), default="gaussian:0.01", metavar="NAME", help=_DATA_HELP)
    parser.add_argument("--megabytes", type=count(2, 10**6), default=512, metavar="N", help="of a stream (512)")
    parser.add_argument("--rounds", type=count(1, 1000), default=3, metavar="N", help="medians of so many (3)")
    _add_link(parser)
    parser.set_defaults(measure=_measure_stream)


def _measure_stream(args: argparse.Namespace, progress: Progress) -> Report[Any]:
    plan = bench_stream.Plan(megabytes=args.megabytes, rounds=args.rounds, data=args.data, link=_link(args))
    if args.codecs:
        plan = replace(plan, codecs=tuple(dict.fromkeys(args.codecs)))
    return bench_stream.run(plan, progress)


def _add_link(parser: argparse.ArgumentParser, rate: str | None = None, delay: str | None = None) -> None:
    link = parser.add_argument_group("links, on every node's way out")
    for name, default, example in (("rate", rate, "1gbit"), ("delay", delay, "50us"), ("loss", None, "0.1%")):
        said = f"as in {example} ({default or 'as the machine has it'})"
        link.add_argument(
            f"--{name}", type=text(LINK[name]), default=default, metavar="X", help=said.replace("%", "%%")
        )


def _link(args: argparse.Namespace) -> dict[str, str]:
    return {name: value for name in ("rate", "delay", "loss") if (value := getattr(args, name)) is not None}
