"""`softnic run`: a command on every node of a cluster, which exists as long as the command runs."""

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

from softnic.cluster import Cluster
from softnic.cluster.kernel import KernelCluster
from softnic.commands import CommandError
from softnic.commands.links import add_arguments as add_link_arguments
from softnic.commands.links import codec_name, start_cluster, text
from softnic.commands.ranks import DEFAULTS, JobFailed, Line, Ranks

NAME = "run"
HELP = "run a command on every node of a cluster of NICs in this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "softnic run [-n N] [--rate X] [--delay X] [--loss X] [--codec NAME] [...] -- COMMAND ..."
    parser.epilog = (
        "Each rank finds SOFTNIC_RANK, SOFTNIC_WORLD_SIZE, SOFTNIC_IP and SOFTNIC_NIC in its environment; its lines\n"
        "are shown behind its number. One rank that fails ends the others, and its exit code is this command's.\n\n"
        "`python` is the one that runs softnic where the one on PATH has no softnic.\n\n"
        "With --kernel, programs need not know softnic: they use ordinary sockets, and the NICs are their kernels'.\n\n"
        "examples:\n"
        "  softnic run -n 4 --rate 1gbit --delay 50us --loss 0.1% --codec bounded:10 -- python train.py\n"
        "  softnic run -n 2 --kernel -- sh -c 'test $SOFTNIC_RANK = 0 && exec iperf3 -s -1; sleep 1; "
        "iperf3 -c 10.77.0.1'"
    )
    add_link_arguments(parser)
    parser.add_argument(
        "--codec", type=text(codec_name), metavar="NAME", help="what the tag 0x28 means, as in bounded:10 (the NIC's)"
    )
    parser.add_argument(
        "--kernel", action="store_true", help="every rank in a network namespace of its own, with its kernel's sockets"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what every rank runs")


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise CommandError("there is no command to run: softnic run -n 4 -- python train.py")
    if not args.kernel:
        command = with_softnic(command)
    with start_cluster(args, args.codec, KernelCluster if args.kernel else Cluster) as cluster:
        ranks = Ranks(cluster, command, {**DEFAULTS, **os.environ})
        try:
            return _show(ranks)
        finally:
            ranks.close()


def with_softnic(command: list[str]) -> list[str]:
    """The command, with the Python that runs this in place of one on PATH that has no softnic, or of none."""
    if not re.fullmatch(r"python(3(\.\d+)?)?", command[0]):
        return command
    found = shutil.which(command[0])
    if found is not None and (Path(found) == Path(sys.executable) or _has_softnic(found)):
        return command
    why = f"{found} has no softnic" if found else f"there is no {command[0]} on PATH"
    print(f"softnic run: {why}: ranks run {sys.executable}", file=sys.stderr)
    return [sys.executable, *command[1:]]


def _has_softnic(python: str) -> bool:
    """Looked for as a script would, which does not find what lies in the current directory."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('softnic') is None)"
    done = subprocess.run([python, "-P", "-c", look], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


def _show(ranks: Ranks) -> int:
    """Until all ranks have ended. Ctrl-C goes to them first, so that they may say something about it."""
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
