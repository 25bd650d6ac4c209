"""`softnic run`: runs a command on every node of a cluster that is started for it."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from functools import partial
from typing import BinaryIO

from softnic import mpi4py, units
from softnic.arguments import argument
from softnic.cluster.cluster import Cluster
from softnic.cluster.kernel import KernelCluster
from softnic.commands import CommandError
from softnic.commands.churn import Churn
from softnic.commands.interpreter import with_softnic
from softnic.commands.links import add_arguments as add_link_arguments
from softnic.commands.links import codec_name, start_cluster, text
from softnic.commands.ranks import JobFailed, Line, Ranks, defaults

NAME = "run"
HELP = "run a command on every node of a cluster of NICs on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "softnic run [-n N] [--rate X] [--delay X] [--loss X] [--codec NAME] [...] -- COMMAND ..."
    parser.epilog = (
        "Each rank has SOFTNIC_RANK, SOFTNIC_WORLD_SIZE, SOFTNIC_IP and SOFTNIC_NIC in its environment. Lines of\n"
        "output begin with the rank. If a rank fails, the others are ended, and its exit code is this command's.\n\n"
        "If the `python` on PATH has no softnic, ranks run the interpreter of this command.\n\n"
        "With --kernel, ranks use ordinary sockets of their kernels, whose interfaces are the NICs; with --kernel 0,2\n"
        "ranks 0 and 2 do. --uplink gives them a route to the host's network, by slirp4netns or pasta.\n\n"
        "With --mpi4py, `from mpi4py import MPI` gives softnic.MPI.\n\n"
        "With --churn, ranks are killed and start again, and nodes are cut off, at random times that --seed fixes:\n"
        "for jobs that outlive that. It begins when the ranks have met, or three times TIME after the start.\n"
        "SOFTNIC_RESTARTS has the number of a rank's earlier processes.\n\n"
        "examples:\n"
        "  softnic run -n 4 --rate 1gbit --delay 50us --loss 0.1% --codec rht:4 -- python train.py\n"
        "  softnic run -n 2 --kernel -- sh -c 'test $SOFTNIC_RANK = 0 && exec iperf3 -s -1; sleep 1; "
        "iperf3 -c 10.77.0.1'\n"
        "  softnic run -n 3 --kernel 0 --uplink -- sh start.sh"
    )
    add_link_arguments(parser)
    parser.add_argument(
        "--codec",
        type=text(codec_name),
        metavar="NAME",
        help="codec of the tag 0x28, as in bounded:10 (the NIC's default)",
    )
    parser.add_argument(
        "--kernel",
        nargs="?",
        const="",
        type=_rank_list,
        metavar="RANKS",
        help="run these ranks, as in 0,2-3, in network namespaces, with the kernel's sockets (all)",
    )
    parser.add_argument(
        "--uplink", action="store_true", help="give ranks with kernels a route to the host's network (off)"
    )
    help_text = "every TIME or so kill a rank, which starts again, or cut a node off for a while (never)"
    parser.add_argument("--churn", type=argument(_period), metavar="TIME", help=help_text)
    parser.add_argument("--mpi4py", action="store_true", help="have `import mpi4py` find softnic.MPI")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the command of every rank")


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise CommandError("no command given: softnic run -n 4 -- python train.py")
    kernels = _kernels(args)
    if len(kernels) < args.nodes:
        command = with_softnic(command, "softnic run")
    kind = partial(KernelCluster, kernels=kernels, uplink=args.uplink) if kernels else Cluster
    with start_cluster(args, args.codec, kind) as cluster:
        shim = mpi4py.environment(os.environ) if args.mpi4py else {}
        churn = None
        if args.churn is not None:
            churn = Churn(args.nodes, args.churn, args.seed)
        ranks = Ranks(cluster, command, {**defaults(args.nodes), **os.environ, **shim}, churn)
        try:
            return _show(ranks)
        finally:
            ranks.close()


def _period(given: str) -> float:
    """Return seconds. Raises ValueError."""
    seconds = units.time_s(given)
    if not seconds > 0:
        raise ValueError(f"{given} is not a time between events, as in 30s")
    return seconds


def _rank_list(given: str) -> list[range]:
    """Return the ranges of a list of ranks, as in 0,2-3; empty: all ranks. Raises ArgumentTypeError."""
    if not re.fullmatch(r"(\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*)?", given, re.ASCII):
        raise argparse.ArgumentTypeError(f"{given!r} is not a list of ranks, as in 0,2-3 (before a command, write --)")
    ends = [part.partition("-") for part in given.split(",") if part]
    return [range(int(first), int(last or first) + 1) for first, _, last in ends]


def _kernels(args: argparse.Namespace) -> set[int]:
    """Return the ranks with kernels. Raises CommandError."""
    if args.kernel is None:
        if args.uplink:
            raise CommandError("--uplink is for ranks with kernels: add --kernel, or --kernel with a list of ranks")
        return set()
    ranks = {rank for ranks in args.kernel or [range(args.nodes)] for rank in ranks}
    if not ranks or max(ranks) >= args.nodes:
        raise CommandError(f"--kernel: the ranks are 0 to {args.nodes - 1}")
    return ranks


def _show(ranks: Ranks) -> int:
    """Print the output of all ranks until they have ended. Ctrl-C is sent to them first, and their output shown."""
    try:
        for line in ranks.lines():
            _print(line)
    except KeyboardInterrupt:
        ranks.signal(signal.SIGINT)
        try:
            for line in ranks.lines():
                _print(line)
        except JobFailed:
            pass
        raise
    except JobFailed as failure:
        print(f"softnic run: {failure}", file=sys.stderr)
        return failure.exit_code
    return 0


def _print(line: Line) -> None:
    out: BinaryIO = sys.stderr.buffer if line.is_error else sys.stdout.buffer
    out.write(b"[%d] %s\n" % (line.rank, line.text))
    out.flush()
