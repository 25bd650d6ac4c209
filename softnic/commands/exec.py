"""`softnic exec`: runs a program whose TCP sockets are those of a NIC, without a change of the program."""

from __future__ import annotations

import argparse
import os
import shutil
from contextlib import closing

from softnic import codecs, preload
from softnic.arguments import argument
from softnic.commands import CommandError
from softnic.ipc import control
from softnic.ipc.client import Client
from softnic.socket.installed import TAGS_VARIABLE, parse_tags

NAME = "exec"
HELP = "run a program, unchanged, with the sockets of a NIC"


def _tag(text: str) -> str:
    """Return a checked PORT=CODEC. Raises ValueError."""
    [(port, codec)] = parse_tags([text]).items()
    return f"{port}={codecs.get(codec)}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "softnic exec [--nic PATH] [--tag PORT=CODEC ...] -- COMMAND ...\n       softnic exec [--nic PATH] --hosts"
    )
    parser.epilog = (
        "IPv4 streams of the program, and of those that it starts, are sockets of the NIC; the rest is the kernel's.\n"
        "127.0.0.1 and localhost are the node's own, and nodes have names: node0, node1.softnic.\n\n"
        "examples:\n"
        "  softnic run -n 2 -- softnic exec -- sh -c 'test $SOFTNIC_RANK = 0 && exec iperf3 -s -1; sleep 1; "
        "iperf3 -c node0'\n"
        "  softnic exec --nic /tmp/node0.sock --tag 5000=bounded:10 -- python train.py\n"
        "  softnic exec --nic /tmp/node0.sock --hosts | sudo tee -a /etc/hosts"
    )
    parser.add_argument("--nic", metavar="PATH", help="control socket of the NIC (the variable SOFTNIC_NIC)")
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        type=argument(_tag),
        metavar="PORT=CODEC",
        help="compress connections to this port, and those accepted at it: streams of float32 only; may be repeated",
    )
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="print the nodes' names as lines for /etc/hosts, for programs that read that file themselves (c-ares)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")


def _hosts(client: Client) -> str:
    """Return lines of hosts(5) with the names of nodes."""
    found = client.call(control.QueryNames())
    assert isinstance(found, control.NodeNames)
    return "".join(
        f"{address}\t{' '.join(dict.fromkeys((name, name if '.' in name else f'{name}.softnic')))}\n"
        for name, address in found.addresses.items()
    )


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command and not args.hosts:
        raise CommandError("no command given: softnic exec -- python app.py")
    nic = args.nic or os.environ.get("SOFTNIC_NIC", "")
    if not nic:
        raise CommandError("no NIC: pass --nic PATH, set SOFTNIC_NIC, or use softnic run -n 2 -- softnic exec -- ...")
    with closing(Client(nic)) as client:  # raises OSError if none answers
        if args.hosts:
            print(_hosts(client), end="")
            return 0
        is_kernels = bool(client.info().device)
    return _execute(command, nic, is_kernels, args.tag)


def _execute(command: list[str], nic: str, is_kernels: bool, tags: list[str]) -> int:
    """Become the program."""
    program = shutil.which(command[0])
    if program is None:
        raise CommandError(f"there is no program {command[0]}")
    if is_kernels:  # as of a rank of softnic run --kernel: the kernel's sockets are the NIC's already
        os.execv(program, command)
    if obstacle := preload.obstacle(program):
        raise CommandError(
            f"{program} cannot use a NIC's sockets: {obstacle}. softnic run --kernel gives it a kernel's"
        )
    environment = preload.environment(os.path.abspath(nic))  # noqa: PTH100  # as the program sees it, links included
    if tags:
        environment[TAGS_VARIABLE] = ",".join(tags)
    os.execve(program, command, environment)
