"""`softnic meet`: runs a server through which the nodes of a job find each other; `softnic meet token` invites them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import sys
import time
from pathlib import Path

from softnic import underlay, units
from softnic.arguments import argument, count
from softnic.commands import CommandError
from softnic.link.reach.secret_file import read_secret
from softnic.link.reach.token import MOST_NODES, MOST_SERVERS, Grant, Token, admits_all
from softnic.meeting.service import PORT, RELAY_PORTS, MeetingService, MeetingSettings
from softnic.underlay import Address

NAME = "meet"
HELP = "run a server at which the nodes of jobs meet, or make the token of a job"


def _listening(text: str) -> Address:
    """Return where to listen: HOST, HOST:PORT or :PORT. Raises ValueError."""
    return underlay.parse(f"[::]{text}" if text.startswith(":") else text, PORT)


def _host(text: str) -> str:
    """Return an IP address. Raises ValueError."""
    if not underlay.is_address(text):
        raise ValueError(f"{text!r} is not an IP address")
    return underlay.numeric(text)


def _ports(text: str) -> range:
    """Return a range of ports, FIRST-LAST. Raises ValueError."""
    first, dash, last = text.partition("-")
    if not dash or not (first.isdecimal() and last.isdecimal()) or not 0 < int(first) <= int(last) <= 0xFFFF:
        raise ValueError(f"{text!r} is not a range of ports, as in 9500-9999")
    return range(int(first), int(last) + 1)


def _default_secret() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "softnic" / "meeting.secret"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Nodes need a token, which `softnic meet token` prints. It is made where the secret is: on the server's host,\n"
        "or on one that has the same file. Servers with the same secret accept the same tokens. A server sees\n"
        "addresses, and nothing of what nodes send each other. SIGUSR1 logs the counters; SIGTERM ends the server.\n\n"
        "examples:\n"
        "  softnic meet\n"
        "  softnic meet --listen :9470 --relay-rate 500mbit --tcp :443\n"
        "  (umask 077; softnic meet token --server meet.example.org:9470 --nodes 8 > job.token)\n"
        "  softnic join @job.token -- python train.py"
    )
    parser.add_argument(
        "--listen",
        type=argument(_listening),
        default=("::", PORT),
        metavar="ADDR",
        help=f"UDP address and port; the next two ports are used, too ([::]:{PORT})",
    )
    parser.add_argument(
        "--other-address",
        type=argument(_host),
        metavar="IP",
        help="a second address of this host: with it nodes can tell a full cone from a restricted NAT",
    )
    _add_secret(parser)
    rate = argument(units.rate_bps)
    parser.add_argument(
        "--relay-rate", type=rate, default=1e9, metavar="X", help="what the relay forwards for one job (1gbit)"
    )
    parser.add_argument(
        "--relay-ports",
        type=argument(_ports),
        default=RELAY_PORTS,
        metavar="A-B",
        help="UDP ports of the relay, one for each node that asks (9500-9999)",
    )
    parser.add_argument("--no-relay", action="store_true", help="relay nothing")
    parser.add_argument(
        "--tcp",
        type=argument(_listening),
        action="append",
        default=[],
        metavar="ADDR",
        help="TCP address and port for nodes that no UDP reaches, as in :443; may be repeated",
    )
    kinds = parser.add_subparsers(metavar="token", dest="what")
    what = "print the token of a new job"
    token = kinds.add_parser("token", help=what, description=what, formatter_class=parser.formatter_class)
    token.epilog = (
        "Whoever has it can join the job: keep it in a file that only its owner may read.\n\n"
        "example:\n"
        "  (umask 077; softnic meet token --server meet.example.org:9470 --nodes 8 --expires 12h > job.token)"
    )
    token.add_argument(
        "--server",
        type=argument(underlay.parse),
        action="append",
        required=True,
        metavar="HOST:PORT",
        help=f"where nodes reach the server; may be repeated, up to {MOST_SERVERS} times: any of them will do",
    )
    token.add_argument(
        "--nodes", type=count(1, MOST_NODES), required=True, metavar="N", help="how many nodes the job has"
    )
    token.add_argument(
        "--expires", type=argument(units.duration_s), default=86400, metavar="TIME", help="how long it is valid (24h)"
    )
    token.add_argument(
        "--relay-rate", type=rate, dest="job_rate", metavar="X", help="a lower limit for this job's relay"
    )
    _add_secret(token, "job_secret")


def _add_secret(parser: argparse.ArgumentParser, dest: str = "secret") -> None:
    text = "the servers' secret; made if it does not exist (~/.config/softnic/meeting.secret)"
    parser.add_argument("--secret", type=Path, metavar="FILE", dest=dest, help=text)


def run(args: argparse.Namespace) -> int:
    if args.what == "token":
        print(_token(args))
        return 0
    settings = MeetingSettings(
        args.listen,
        admits_all(_secret(args.secret)),
        other=args.other_address or "",
        relay_ports=() if args.no_relay else args.relay_ports,
        relay_bps=args.relay_rate,
        tcp=args.tcp,
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # each port of the relay takes two descriptors
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_serve(settings))
    return 0


def _token(args: argparse.Namespace) -> str:
    if len(args.server) > MOST_SERVERS:
        raise CommandError(f"a token has at most {MOST_SERVERS} servers")
    kbps = 0 if args.job_rate is None else max(1, min(round(args.job_rate / 1e3), 0xFFFFFFFF))
    grant = Grant(os.urandom(16), args.nodes, int(time.time()) + args.expires, kbps)
    return Token.make(_secret(args.job_secret or args.secret), args.server, grant, os.urandom(32)).text()


def _secret(path: Path | None) -> bytes:
    where = path or _default_secret()
    try:
        secret, made = read_secret(where)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if made:
        _log(f"made the secret {where}")
    return secret


def _log(line: str) -> None:
    print(f"softnic meet: {line}", file=sys.stderr, flush=True)


async def _serve(settings: MeetingSettings) -> None:
    await MeetingService(settings, _log).run()
