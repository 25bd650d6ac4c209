"""`softnic bench`: speed of codecs, streams, all-reduce and small messages, and memory of connections, with limits."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

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
from softnic.commands import CommandError, add_json, check_writable, count, deliver_json
from softnic.commands.links import add_key, add_link, codec_name, link_of, text
from softnic.experiments.report import MeasurementError, MeasurementReport, Progress
from softnic.tcp.algorithms import ALGORITHMS

NAME = "bench"
HELP = "measure codecs, streams, all-reduce, latency and connections on this machine, with their limits"

_DATA_HELP = "gaussian:SIGMA, zeros, sparse:SHARE, or hdc: gradients of the demo's classifier"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Each takes less than a minute with its defaults; `softnic bench NAME --help` describes it.\n\n"
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
    with Console(stderr=True, markup=False).status("starting") as status:
        try:
            report: MeasurementReport[Any] = args.measure(args, lambda what: status.update(f"measuring {what}"))
        except (MeasurementError, ClusterError) as error:
            raise CommandError(str(error)) from error
    if deliver_json(args.json, report.as_json()):
        report.show()
    return 0


def _add_codec(kinds: Any) -> None:
    parser = _add(
        kinds,
        "codec",
        "GB/s of floats that codecs encode and decode on one core; limit: memcpy",
        "With --compare: LZ4, Snappy, zstd -1 and Blosc2 on the same data, and SZ3 and zfp at the error bound of\n"
        "bounded:k, if they are installed; a note names those that are not.\n\n"
        "examples:\n"
        "  softnic bench codec\n"
        "  softnic bench codec --compare --data hdc --json codec.json\n"
        "  SOFTNIC_SIMD=scalar softnic bench codec --codec bounded:8 --codec bounded:12",
    )
    _add_codecs(parser, "measure this one", bench_codec.default_codecs())
    parser.add_argument(
        "--data",
        type=text(inputs.check),
        action="append",
        metavar="NAME",
        help=f"{_DATA_HELP}; may be repeated ({', '.join(bench_codec.DATA)}, and hdc where scikit-learn is installed)",
    )
    parser.add_argument("--compare", action="store_true", help="measure other compressors on the same data, too")
    parser.add_argument("--megabytes", type=count(1, 4096), default=16, metavar="N", help="of float32 (16)")
    _add_rounds(parser, bench_codec.CodecSettings.rounds)
    parser.set_defaults(measure=_measure_codec)


def _measure_codec(args: argparse.Namespace, progress: Progress) -> MeasurementReport[Any]:
    data = tuple(dict.fromkeys(args.data or bench_codec.default_data()))
    settings = bench_codec.CodecSettings(args.codecs, data, args.compare, args.megabytes, args.rounds)
    return bench_codec.run(settings, progress)


def _add_stream(kinds: Any) -> None:
    parser = _add(
        kinds,
        "stream",
        "MB/s, CPU and memory of one stream through two NICs; limits: a Unix socket, a UDP flood, the link's rate",
        "examples:\n"
        "  softnic bench stream\n"
        "  softnic bench stream --codec bounded:10 --codec inceptionn:10 --json stream.json\n"
        "  softnic bench stream --rate 1gbit --delay 50us --megabytes 200\n"
        "  softnic bench stream --rate 1gbit --delay 10ms --loss 0.1% --congestion bbr\n"
        "  softnic bench stream --key",
    )
    settings = bench_stream.StreamSettings()
    _add_codecs(parser, "of a tagged stream", settings.codecs)
    _add_data(parser, settings.data)
    parser.add_argument("--megabytes", type=count(2, 10**6), default=512, metavar="N", help="of a stream (512)")
    _add_rounds(parser, settings.rounds)
    add_key(parser)
    parser.add_argument("--congestion", choices=list(ALGORITHMS), default="", help="congestion control (the NICs')")
    add_link(parser)
    parser.set_defaults(measure=_measure_stream)


def _measure_stream(args: argparse.Namespace, progress: Progress) -> MeasurementReport[Any]:
    given = (args.codecs, args.megabytes, args.rounds, args.data)
    settings = bench_stream.StreamSettings(*given, link=link_of(args), key=args.key, congestion=args.congestion)
    return bench_stream.run(settings, progress)


def _add_allreduce(kinds: Any) -> None:
    parser = _add(
        kinds,
        "allreduce",
        "seconds of an all-reduce over NICs, exact and compressed; limit: compressed bytes at the links' rate",
        "examples:\n"
        "  softnic bench allreduce\n"
        "  softnic bench allreduce --rate 10gbit --codec bounded:10 --json allreduce.json\n"
        "  softnic bench allreduce -n 2 --megabytes 25 --rate 100mbit --rounds 3\n"
        "  softnic bench allreduce --nonblocking --codec bounded:8 --memory registered\n"
        "  softnic bench allreduce --megabytes 0.01 --rounds 50 --algorithm tree --algorithm direct --algorithm ring",
    )
    settings = bench_allreduce.AllreduceSettings()
    _add_codecs(parser, "of a compressed all-reduce", settings.codecs)
    parser.add_argument("-n", "--nodes", type=count(2, 64), default=settings.nodes, metavar="N", help="ranks (4)")
    _add_data(parser, settings.data)
    parser.add_argument(
        "--memory", choices=settings.memory, action="append", help="where the floats lie; may be repeated (both)"
    )
    parser.add_argument(
        "--algorithm",
        type=text(schedule.parse),
        action="append",
        metavar="NAME",
        help=f"{', '.join(schedule.ALGORITHMS)}; may be repeated (chosen by size and ranks)",
    )
    parser.add_argument(
        "--nonblocking", action="store_true", help="measure Iallreduce and Wait beside the blocking Allreduce"
    )
    _add_megabytes(parser, settings.megabytes)
    _add_rounds(parser, settings.rounds)
    add_link(parser, **bench_allreduce.LINK)
    parser.set_defaults(measure=_measure_allreduce)


def _measure_allreduce(args: argparse.Namespace, progress: Progress) -> MeasurementReport[Any]:
    memory = tuple(dict.fromkeys(args.memory or bench_allreduce.AllreduceSettings.memory))
    algorithms = tuple(dict.fromkeys(args.algorithm or bench_allreduce.AllreduceSettings.algorithms))
    calls = (BLOCKING, NONBLOCKING) if args.nonblocking else (BLOCKING,)
    settings = bench_allreduce.AllreduceSettings(
        args.codecs, args.nodes, args.megabytes, args.rounds, args.data, memory, algorithms, calls, link_of(args)
    )
    return bench_allreduce.run(settings, progress)


def _add_overlap(kinds: Any) -> None:
    parser = _add(
        kinds,
        "overlap",
        "slow-down of computing during a blocking call of a thread, or a nonblocking one; limit: the daemons' CPU time",
        "examples:\n"
        "  softnic bench overlap\n"
        "  softnic bench overlap -n 4 --codec bounded:10 --codec bfp:7 --json overlap.json",
    )
    settings = bench_overlap.OverlapSettings()
    _add_codecs(parser, "of a compressed all-reduce", settings.codecs)
    parser.add_argument("-n", "--nodes", type=count(2, 64), default=settings.nodes, metavar="N", help="ranks (2)")
    _add_data(parser, settings.data)
    _add_megabytes(parser, settings.megabytes)
    _add_rounds(parser, settings.rounds)
    add_link(parser, **bench_overlap.LINK)
    parser.set_defaults(measure=_measure_overlap)


def _measure_overlap(args: argparse.Namespace, progress: Progress) -> MeasurementReport[Any]:
    settings = bench_overlap.OverlapSettings(
        args.codecs, args.nodes, args.megabytes, args.rounds, args.data, link_of(args)
    )
    return bench_overlap.run(settings, progress)


def _add_latency(kinds: Any) -> None:
    parser = _add(
        kinds,
        "latency",
        "round trips of small messages through two NICs; limit: the same chain with trivial relays as NICs",
        "examples:\n"
        "  softnic bench latency\n"
        "  softnic bench latency --size 4096 --count 10000 --json latency.json\n"
        "  softnic bench latency --delay 50us",
    )
    settings = bench_latency.LatencySettings()
    _add_codecs(parser, "of tagged messages", settings.codecs)
    parser.add_argument("--size", type=_whole_floats, default=settings.size, metavar="BYTES", help="of a message (64)")
    parser.add_argument(
        "--count", type=count(1, 10**7), default=settings.count, metavar="N", help="round trips of each kind (3000)"
    )
    parser.add_argument(
        "--rounds",
        type=count(1, 1000),
        default=settings.rounds,
        metavar="N",
        help="number of rounds; medians are reported (10)",
    )
    add_link(parser)
    parser.set_defaults(measure=_measure_latency)


def _whole_floats(given: str) -> int:
    size = count(4, 1 << 20)(given)
    if size % 4:
        raise argparse.ArgumentTypeError(f"{given!r} bytes are not whole floats: expected a multiple of 4")
    return size


def _measure_latency(args: argparse.Namespace, progress: Progress) -> MeasurementReport[Any]:
    settings = bench_latency.LatencySettings(args.codecs, args.size, args.count, args.rounds, link_of(args))
    return bench_latency.run(settings, progress)


def _add_connections(kinds: Any) -> None:
    parser = _add(
        kinds,
        "connections",
        "memory of NICs with many connections, idle and busy; reference: NICs without connections",
        "examples:\n  softnic bench connections\n  softnic bench connections -n 5000 --json connections.json",
    )
    settings = bench_connections.ConnectionsSettings()
    parser.add_argument(
        "-n", "--count", type=count(1, 16000), default=settings.count, metavar="N", help="connections at once (1000)"
    )
    parser.add_argument(
        "--large-count",
        type=count(1, 1000),
        default=settings.large_count,
        metavar="N",
        help="that carry 4 MiB each (50)",
    )
    parser.add_argument("--rest", type=_seconds, default=settings.rest_s, metavar="SECONDS", help="idle time (12)")
    parser.set_defaults(measure=_measure_connections)


def _seconds(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{given!r} is not a number of seconds from 0 to 3600")
    return value


def _measure_connections(args: argparse.Namespace, progress: Progress) -> MeasurementReport[Any]:
    settings = bench_connections.ConnectionsSettings(count=args.count, large_count=args.large_count, rest_s=args.rest)
    return bench_connections.run(settings, progress)


def _add(kinds: Any, name: str, what: str, epilog: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = kinds.add_parser(
        name, help=what, description=what, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_json(parser)
    return parser


class _Codecs(argparse.Action):
    """Collects codecs, each once, in place of the default ones."""

    def __call__(self, _parser: Any, args: argparse.Namespace, value: Any, _option: str | None = None) -> None:
        before = getattr(args, self.dest)
        setattr(args, self.dest, tuple(dict.fromkeys([*(() if before is self.default else before), value])))


def _add_codecs(parser: argparse.ArgumentParser, what: str, default: tuple[str, ...]) -> None:
    said = f"{what}; may be repeated ({', '.join(default)})"
    parser.add_argument(
        "--codec", type=text(codec_name), action=_Codecs, default=default, metavar="NAME", dest="codecs", help=said
    )


def _add_data(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--data", type=text(inputs.check), default=default, metavar="NAME", help=f"{_DATA_HELP} ({default})"
    )


def _add_rounds(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--rounds",
        type=count(1, 1000),
        default=default,
        metavar="N",
        help=f"number of rounds; medians are reported ({default})",
    )


def _add_megabytes(parser: argparse.ArgumentParser, default: float) -> None:
    parser.add_argument(
        "--megabytes", type=_megabytes, default=default, metavar="X", help=f"of float32 a rank ({default:g})"
    )


def _megabytes(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 1e-6 <= value <= 1e4:
        raise argparse.ArgumentTypeError(f"{given!r} is not a number of megabytes from 0.000001 to 10000")
    return value
