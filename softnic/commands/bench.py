"""`softnic bench`: speed of codecs, streams, all-reduce and small messages, and memory of connections, with limits."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from softnic.arguments import count, number
from softnic.bench import allreduce as bench_allreduce
from softnic.bench import codec as bench_codec
from softnic.bench import connections as bench_connections
from softnic.bench import inputs
from softnic.bench import latency as bench_latency
from softnic.bench import overlap as bench_overlap
from softnic.bench import stream as bench_stream
from softnic.bench.rank import BLOCKING, NONBLOCKING
from softnic.cluster.nic_process import ClusterError
from softnic.collectives import schedule
from softnic.commands import CommandError, add_json, check_writable, deliver_json
from softnic.commands.links import add_key, add_link, add_poll, add_queues, codec_name, link_of, text
from softnic.measure.progress import shown
from softnic.measure.report import MeasurementError, MeasurementReport, Progress
from softnic.tcp.algorithms import ALGORITHMS

Measure = Callable[[Any, Progress], MeasurementReport[Any]]
"""Takes the settings of a benchmark."""

NAME = "bench"
HELP = "measure codecs, streams, all-reduce, latency and connections on this machine, with their limits"

_DATA_HELP = "gaussian:SIGMA, zeros, sparse:SHARE, or hdc: gradients of the demo's classifier"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Each takes less than a minute with its defaults; `softnic bench NAME --help` describes it. Every figure is\n"
        "printed on standard error when it is measured, the table on standard output at the end.\n\n"
        "examples:\n"
        "  softnic bench codec --compare\n"
        "  softnic bench stream --json stream.json"
    )
    kinds = parser.add_subparsers(
        metavar="codec|stream|allreduce|overlap|latency|connections", required=True, dest="benchmark"
    )
    for add in (_add_codec, _add_stream, _add_allreduce, _add_overlap, _add_latency, _add_connections):
        add(kinds)


def run(args: argparse.Namespace) -> int:
    check_writable(args.json)
    with shown() as progress:
        try:
            report: MeasurementReport[Any] = args.measure(_settings(args), progress)
        except (MeasurementError, ClusterError) as error:
            raise CommandError(str(error)) from error
    if deliver_json(args.json, report.as_json()):
        report.show()
    return 0


def _settings(args: argparse.Namespace) -> Any:
    """Return the benchmark's settings: the arguments are named as its fields."""
    given = {**vars(args), "link": link_of(args) if hasattr(args, "rate") else {}}
    return args.settings(**{each.name: given[each.name] for each in fields(args.settings) if each.name in given})


def _add_codec(kinds: Any) -> None:
    parser = _add(
        kinds,
        "codec",
        bench_codec.run,
        bench_codec.CodecSettings,
        "GB/s of floats that codecs encode and decode on one core; limit: memcpy",
        "With --compare: LZ4, Snappy, zstd -1 and Blosc2 on the same data, and SZ3 and zfp at the error bound of\n"
        "bounded:k, if they are installed; a note names those that are not.\n\n"
        "examples:\n"
        "  softnic bench codec\n"
        "  softnic bench codec --compare --data hdc --json codec.json\n"
        "  SOFTNIC_KERNELS=scalar softnic bench codec --codec bounded:8 --codec bounded:12",
    )
    _add_codecs(parser, "measure this one", bench_codec.default_codecs())
    what = f"{_DATA_HELP}; may be repeated ({', '.join(bench_codec.DATA)}, and hdc where scikit-learn is installed)"
    parser.add_argument("--data", type=text(inputs.check), action=_Collect, default=(), metavar="NAME", help=what)
    parser.add_argument("--compare", action="store_true", help="measure other compressors on the same data, too")
    parser.add_argument("--megabytes", type=count(1, 4096), default=16, metavar="N", help="of float32 (16)")
    _add_rounds(parser, bench_codec.CodecSettings.rounds)


def _add_stream(kinds: Any) -> None:
    parser = _add(
        kinds,
        "stream",
        bench_stream.run,
        bench_stream.StreamSettings,
        "MB/s, CPU and memory of one stream through two NICs; limits: a Unix socket, a UDP flood, the link's rate",
        "examples:\n"
        "  softnic bench stream\n"
        "  softnic bench stream --codec rht:4 --codec bounded:10 --json stream.json\n"
        "  softnic bench stream --rate 1gbit --delay 50us --megabytes 200\n"
        "  softnic bench stream --rate 1gbit --delay 10ms --loss 0.1% --congestion bbr\n"
        "  softnic bench stream --key\n"
        "  softnic bench stream --capture --megabytes 256",
    )
    settings = bench_stream.StreamSettings()
    _add_codecs(parser, "of a tagged stream", settings.codecs)
    _add_data(parser, settings.data)
    parser.add_argument("--megabytes", type=count(2, 10**6), default=512, metavar="N", help="of a stream (512)")
    _add_rounds(parser, settings.rounds)
    add_key(parser)
    parser.add_argument("--capture", action="store_true", help="measure once more while both NICs are captured")
    parser.add_argument("--congestion", choices=list(ALGORITHMS), default="", help="congestion control (the NICs')")
    add_poll(parser)
    add_queues(parser)
    add_link(parser)


def _add_allreduce(kinds: Any) -> None:
    parser = _add(
        kinds,
        "allreduce",
        bench_allreduce.run,
        bench_allreduce.AllreduceSettings,
        "seconds of an all-reduce over NICs, exact and compressed; limit: compressed bytes at the links' rate",
        "examples:\n"
        "  softnic bench allreduce\n"
        "  softnic bench allreduce --rate 10gbit --codec rht:4 --json allreduce.json\n"
        "  softnic bench allreduce -n 2 --megabytes 25 --rate 100mbit --rounds 3\n"
        "  softnic bench allreduce --nonblocking --codec bounded:8 --memory registered\n"
        "  softnic bench allreduce --megabytes 0.01 --rounds 50 --algorithm tree --algorithm direct --algorithm ring",
    )
    settings = bench_allreduce.AllreduceSettings()
    _add_codecs(parser, "of a compressed all-reduce", settings.codecs)
    _add_nodes(parser, settings.nodes)
    _add_data(parser, settings.data)
    what, memory = "where the floats lie; may be repeated (both)", settings.memory
    parser.add_argument("--memory", choices=memory, action=_Collect, default=memory, help=what)
    parser.add_argument(
        "--algorithm", type=text(schedule.parse), action=_Collect, default=settings.algorithms, metavar="NAME",
        dest="algorithms",
        help=f"{', '.join(schedule.ALGORITHMS)}, sites:0-1/2-3; may be repeated (chosen by size and ranks)",
    )  # fmt: skip
    both, what = (BLOCKING, NONBLOCKING), "measure Iallreduce and Wait beside the blocking Allreduce"
    parser.add_argument(
        "--nonblocking", action="store_const", const=both, default=settings.calls, dest="calls", help=what
    )
    _add_megabytes(parser, settings.megabytes)
    _add_rounds(parser, settings.rounds)
    add_poll(parser)
    add_queues(parser)
    add_link(parser, **bench_allreduce.LINK)


def _add_overlap(kinds: Any) -> None:
    parser = _add(
        kinds,
        "overlap",
        bench_overlap.run,
        bench_overlap.OverlapSettings,
        "slow-down of computing during a blocking call of a thread, or a nonblocking one; limit: the daemons' CPU time",
        "examples:\n"
        "  softnic bench overlap\n"
        "  softnic bench overlap -n 4 --codec rht:4 --codec bfp:7 --json overlap.json",
    )
    settings = bench_overlap.OverlapSettings()
    _add_codecs(parser, "of a compressed all-reduce", settings.codecs)
    _add_nodes(parser, settings.nodes)
    _add_data(parser, settings.data)
    _add_megabytes(parser, settings.megabytes)
    _add_rounds(parser, settings.rounds)
    add_link(parser, **bench_overlap.LINK)


def _add_latency(kinds: Any) -> None:
    parser = _add(
        kinds,
        "latency",
        bench_latency.run,
        bench_latency.LatencySettings,
        "round trips of small messages through two NICs; limit: the same chain with trivial relays as NICs",
        "examples:\n"
        "  softnic bench latency\n"
        "  softnic bench latency --size 4096 --count 10000 --json latency.json\n"
        "  softnic bench latency --delay 50us\n"
        "  softnic bench latency --poll 20us",
    )
    settings = bench_latency.LatencySettings()
    _add_codecs(parser, "of tagged messages", settings.codecs)
    parser.add_argument("--size", type=_whole_floats, default=settings.size, metavar="BYTES", help="of a message (64)")
    parser.add_argument(
        "--count", type=count(1, 10**7), default=settings.count, metavar="N", help="round trips of each kind (3000)"
    )
    _add_rounds(parser, settings.rounds)
    add_poll(parser)
    add_link(parser)


def _whole_floats(given: str) -> int:
    size = count(4, 1 << 20)(given)
    if size % 4:
        raise argparse.ArgumentTypeError(f"{given!r} bytes are not whole floats: expected a multiple of 4")
    return size


def _add_connections(kinds: Any) -> None:
    parser = _add(
        kinds,
        "connections",
        bench_connections.run,
        bench_connections.ConnectionsSettings,
        "memory of NICs with many connections, idle and busy; reference: NICs without connections",
        "examples:\n  softnic bench connections\n  softnic bench connections -n 5000 --json connections.json",
    )
    settings = bench_connections.ConnectionsSettings()
    add = parser.add_argument
    add("-n", "--count", type=count(1, 16000), default=settings.count, metavar="N", help="connections at once (1000)")
    large = settings.large_count
    add("--large-count", type=count(1, 1000), default=large, metavar="N", help="that carry 4 MiB each (50)")
    seconds = number(0, 3600, "a number of seconds from 0 to 3600")
    add("--rest", type=seconds, default=settings.rest_s, metavar="SECONDS", dest="rest_s", help="idle time (12)")


def _add(
    kinds: Any, name: str, measure: Measure, settings: type[Any], what: str, epilog: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = kinds.add_parser(
        name, help=what, description=what, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_json(parser)
    parser.set_defaults(measure=measure, settings=settings)
    return parser


class _Collect(argparse.Action):
    """Collects values, each once, in place of the default ones."""

    def __call__(self, _parser: Any, args: argparse.Namespace, value: Any, _option: str | None = None) -> None:
        before = getattr(args, self.dest)
        setattr(args, self.dest, tuple(dict.fromkeys([*(() if before is self.default else before), value])))


def _add_codecs(parser: argparse.ArgumentParser, what: str, default: tuple[str, ...]) -> None:
    said = f"{what}; may be repeated ({', '.join(default)})"
    parser.add_argument(
        "--codec", type=text(codec_name), action=_Collect, default=default, metavar="NAME", dest="codecs", help=said
    )


def _add_data(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--data", type=text(inputs.check), default=default, metavar="NAME", help=f"{_DATA_HELP} ({default})"
    )


def _add_rounds(parser: argparse.ArgumentParser, default: int) -> None:
    what = f"number of rounds; medians are reported ({default})"
    parser.add_argument("--rounds", type=count(1, 1000), default=default, metavar="N", help=what)


def _add_nodes(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument("-n", "--nodes", type=count(2, 64), default=default, metavar="N", help=f"ranks ({default})")


def _add_megabytes(parser: argparse.ArgumentParser, default: float) -> None:
    megabytes = number(1e-6, 1e4, "a number of megabytes from 0.000001 to 10000")
    what = f"of float32 a rank ({default:g})"
    parser.add_argument("--megabytes", type=megabytes, default=default, metavar="X", help=what)
