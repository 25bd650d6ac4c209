"""`softnic run`: runs a command on every node of a cluster that is started for it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

from softnic import mpi4py
from softnic.cluster import Cluster
from softnic.cluster.kernel import KernelCluster
from softnic.commands import CommandError
from softnic.commands.links import add_arguments as add_link_arguments
from softnic.commands.links import codec_name, start_cluster, text
from softnic.commands.ranks import DEFAULTS, JobFailed, Line, Ranks

NAME = "run"
HELP = "run a command on every node of a cluster of NICs on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "softnic run [-n N] [--rate X] [--delay X] [--loss X] [--codec NAME] [...] -- COMMAND ..."
    parser.epilog = (
        "Each rank has SOFTNIC_RANK, SOFTNIC_WORLD_SIZE, SOFTNIC_IP and SOFTNIC_NIC in its environment. Lines of\n"
        "output begin with the rank. If a rank fails, the others are ended, and its exit code is this command's.\n\n"
        "If the `python` on PATH has no softnic, ranks run the interpreter of this command.\n\n"
        "With --kernel, ranks use ordinary sockets of their kernels, whose interfaces are the NICs.\n\n"
        "With --mpi4py, `from mpi4py import MPI` gives softnic.MPI.\n\n"
        "examples:\n"
        "  softnic run -n 4 --rate 1gbit --delay 50us --loss 0.1% --codec bounded:10 -- python train.py\n"
        "  softnic run -n 2 --kernel -- sh -c 'test $SOFTNIC_RANK = 0 && exec iperf3 -s -1; sleep 1; "
        "iperf3 -c 10.77.0.1'"
    )
    add_link_arguments(parser)
    parser.add_argument(
        "--codec",
        type=text(codec_name),
        metavar="NAME",
        help="codec of the tag 0x28, as in bounded:10 (the NIC's default)",
    )
    parser.add_argument(
        "--kernel", action="store_true", help="run every rank in a network namespace, with the kernel's sockets"
    )
    parser.add_argument("--mpi4py", action="store_true", help="have `import mpi4py` find softnic.MPI")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the command of every rank")


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise CommandError("no command given: softnic run -n 4 -- python train.py")
    if not args.kernel:
        command = with_softnic(command)
    with start_cluster(args, args.codec, KernelCluster if args.kernel else Cluster) as cluster:
        shim = mpi4py.environment(os.environ) if args.mpi4py else {}
        ranks = Ranks(cluster, command, {**DEFAULTS, **os.environ, **shim})
        try:
            return _show(ranks)
        finally:
            ranks.close()


def with_softnic(command: list[str]) -> list[str]:
    """Replace `python` by this interpreter if the one on PATH is missing or has no softnic."""
    if not re.fullmatch(r"python(3(\.\d+)?)?", command[0]):
        return command
    found = shutil.which(command[0])
    if found is not None and (Path(found) == Path(sys.executable) or _has_softnic(found)):
        return command
    why = f"{found} has no softnic" if found else f"there is no {command[0]} on PATH"
    print(f"softnic run: {why}: ranks run {sys.executable}", file=sys.stderr)
    return [sys.executable, *command[1:]]


def _has_softnic(python: str) -> bool:
    """Return whether a script can import softnic; the current directory does not count."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('softnic') is None)"
    done = subprocess.run([python, "-P", "-c", look], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


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
