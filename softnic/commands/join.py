"""`softnic join`: makes this host a node of a job, wherever it is, and runs a command on it."""

from __future__ import annotations

import argparse
import asyncio
import errno
import fcntl
import os
import re
import selectors
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path

from softnic import preload, underlay, units
from softnic.arguments import argument, count
from softnic.cluster.joined import JoinedNode, JoinPlan, is_connected, nic_flags_of
from softnic.cluster.nic_process import ClusterError
from softnic.cluster.supervisor import ProcessSupervisor, SupervisedProcess
from softnic.commands import CommandError
from softnic.commands.interpreter import with_softnic
from softnic.commands.ranks import END_S, defaults
from softnic.ipc.control import QUEUES, NicStats
from softnic.link.reach.numbers import MOST_NUMBER
from softnic.link.reach.register import Registration, register
from softnic.link.reach.token import Token, TokenError, is_token, read_token
from softnic.link.secure.identity import new_identity, read_identity
from softnic.underlay import Address

NAME = "join"
HELP = "make this host a node of a job, through NATs, and run a command on it"

TOKEN_VARIABLE = "SOFTNIC_TOKEN"
_LAUNCHER = re.compile(r"(torchrun|torch\.distributed\.(run|launch))")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "softnic join [TOKEN | @FILE | -] [--number K] [--timeout TIME] [...] -- COMMAND ..."
    parser.epilog = (
        "Run it once on each host of the job, with the same token (`softnic meet token`): TOKEN itself, which other\n"
        "users of the host can read while it runs, @FILE, - (standard input), or the variable SOFTNIC_TOKEN. A NIC\n"
        "starts, meets the others at the meeting server, and finds a way to each. Then COMMAND runs, with the\n"
        "variables that ranks of softnic run have, or with torchrun's. Its exit code is this command's.\n\n"
        "examples:\n"
        "  softnic join @job.token -- python train.py\n"
        "  softnic join @job.token -- torchrun --nproc-per-node 1 train.py\n"
        "  softnic join - --number 0 --timeout 10m --ranks-per-node 2 -- python train.py < job.token"
    )
    parser.add_argument("token", nargs="?", metavar="TOKEN", help="the token, @FILE, or - (the variable SOFTNIC_TOKEN)")
    _add_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the command of this node")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", default="", help="name of the NIC (node and its number)")
    help_text = "number of this node, and so its address and rank (the lowest free ones, by the nodes' keys)"
    parser.add_argument("--number", type=count(0, MOST_NUMBER), metavar="K", help=help_text)
    help_text = "how long to wait for all nodes and for ways to them (5m)"
    parser.add_argument("--timeout", type=argument(units.duration_s), default=300, metavar="TIME", help=help_text)
    keys = parser.add_mutually_exclusive_group()
    help_text = "this host's private key; made if it does not exist (~/.config/softnic/identity)"
    keys.add_argument("--identity", type=Path, metavar="FILE", help=help_text)
    keys.add_argument("--ephemeral", action="store_true", help="make a private key for this run alone")
    help_text = "ranks on each node, with consecutive numbers (1)"
    parser.add_argument("--ranks-per-node", type=count(1, 1024), default=1, metavar="K", help=help_text)
    nic = parser.add_argument_group("the NIC (more flags of softnicd: the variable SOFTNIC_NIC_FLAGS)")
    help_text = "UDP address, for firewalls that let one port pass ([::] and any free port)"
    nic.add_argument("--wire", type=argument(_wire), default=("::", 0), metavar="HOST:PORT", help=help_text)
    help_text = "further address at which the others reach this host, as of a forwarded port; may be repeated"
    nic.add_argument("--reachable-at", type=argument(_reachable), action="append", metavar="HOST:PORT", help=help_text)
    nic.add_argument("--relay", action="store_true", help="relay between nodes that do not reach each other directly")
    nic.add_argument("--mtu", type=count(576, 9000), metavar="BYTES", help="bytes of IPv4 in a frame (1406)")
    help_text = "codec of the tag 0x28, as in bounded:10 (the NIC's default)"
    nic.add_argument("--codec", type=argument(_codec), metavar="NAME", help=help_text)
    nic.add_argument("--queues", choices=[*map(str, QUEUES), "auto"], help="queues of the NIC (1)")


def _wire(given: str) -> Address:
    """Return where to bind the NIC: HOST:PORT or :PORT. Raises ValueError."""
    return underlay.parse(f"[::]{given}" if given.startswith(":") else given)


def _reachable(given: str) -> str:
    """Return HOST:PORT as the NIC has it. Raises ValueError."""
    return underlay.text(underlay.parse(given))


def _codec(given: str) -> str:
    """Return the full name of a codec. Raises ValueError."""
    from softnic import codecs  # with numpy: a tenth of a second

    return str(codecs.get(given))


def run(args: argparse.Namespace) -> int:
    command = _split(args)
    token = _token(args)
    deadline = time.monotonic() + args.timeout
    with ExitStack() as stack:
        supervisor = ProcessSupervisor()
        stack.callback(supervisor.stop)
        identity = stack.enter_context(_identity(args, supervisor.directory))
        found = _register(args, token, identity, deadline)
        assert found.number is not None
        plan = JoinPlan(token, identity, found.number, found.wire, args.name, _nic_flags(args), args.ranks_per_node)
        try:
            node = stack.enter_context(closing(JoinedNode(supervisor, plan)))
            _wait(node, deadline)
        except ClusterError as error:
            raise CommandError(str(error)) from error
        return _run(supervisor, node, command)


# --- what was given


def _split(args: argparse.Namespace) -> list[str]:
    """Return the command. Options between token and command, which argparse leaves in it, are put into `args`."""
    words: list[str] = args.command
    if words[:1] != ["--"] and words and words[0].startswith("-"):
        end = words.index("--") if "--" in words else len(words)
        options = argparse.ArgumentParser(prog="softnic join", usage=argparse.SUPPRESS)
        _add_options(options)
        options.parse_args(words[:end], namespace=args)
        words = words[end:]
    words = words[1:] if words[:1] == ["--"] else words
    if args.token is not None and not (is_token(args.token) or args.token == "-" or args.token.startswith("@")):
        args.token, words = None, [args.token, *words]  # the command's name: the token is in the environment
    if not words:
        raise CommandError("no command given: softnic join @job.token -- python train.py")
    return words


def _token(args: argparse.Namespace) -> Token:
    given = args.token or os.environ.get(TOKEN_VARIABLE, "").strip()
    if not given:
        text = f"no token: softnic join @FILE -- COMMAND, or set {TOKEN_VARIABLE}; softnic meet token makes one"
        raise CommandError(text)
    try:
        if given == "-":
            return Token.parse(sys.stdin.readline()).check(time.time())
        if given.startswith("@"):
            return read_token(given[1:]).check(time.time())
        return Token.parse(given).check(time.time())
    except TokenError as error:
        raise CommandError(str(error)) from error


def _nic_flags(args: argparse.Namespace) -> list[str]:
    try:
        flags = nic_flags_of(os.environ)
    except ValueError as error:
        raise CommandError(f"SOFTNIC_NIC_FLAGS: {error}") from error
    for name, value in (("--mtu", args.mtu), ("--queues", args.queues)):
        flags += [] if value is None else [name, str(value)]
    flags += [word for each in args.reachable_at or () for word in ("--reachable-at", each)]
    flags += ["--relay"] * args.relay
    return flags if args.codec is None else [*flags, "--offload", f"0x28={args.codec}"]


@contextmanager
def _identity(args: argparse.Namespace, directory: Path) -> Iterator[Path]:
    """Yield the file of this node's key, which no other join of this host uses meanwhile."""
    path: Path
    if args.ephemeral:
        path = directory / "identity"
        new_identity(str(path))
        yield path
        return
    path = args.identity or _default_identity()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new_identity(str(path))
        _log(f"made the key of this host, {path}")
    except FileExistsError:
        pass
    try:
        read_identity(str(path))
    except ValueError as error:
        raise CommandError(str(error)) from error
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            text = f"{path} is the key of another softnic join on this host: pass --ephemeral or --identity FILE"
            raise CommandError(text) from None
        yield path


def _default_identity() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "softnic" / "identity"


# --- the steps


def _register(args: argparse.Namespace, token: Token, identity: Path, deadline: float) -> Registration:
    """Return what is known when all nodes are. Raises CommandError after the timeout."""
    key = read_identity(str(identity)).public[0]
    servers = ", ".join(map(underlay.text, token.servers))

    def show(now: Registration) -> None:
        if now.refusal:
            _log(f"the meeting server refuses this node for now: {now.refusal}")
        elif not now.registered:
            _log(f"asking {servers}" + " by TCP" * now.is_tunnelled)
        else:
            nat = "" if now.nat == "unknown" else f"; NAT: {now.nat}"
            _log(f"{now.known} of {token.nodes} nodes known{nat}")

    timeout_s = max(0.0, deadline - time.monotonic())
    try:
        coroutine = register(token, key, args.wire, number=args.number, timeout_s=timeout_s, on_progress=show)
        found = asyncio.run(coroutine)
    except TokenError as error:
        raise CommandError(str(error)) from error
    if found.refusal:
        raise CommandError(f"the meeting server refuses this node: {found.refusal}")
    if not found.registered:
        text = f"no meeting server answers: {servers}. Does softnic meet run there, and is UDP let through?"
        raise CommandError(text)
    if found.number is None:
        missing = token.nodes - found.known
        text = f"{missing} of {token.nodes} nodes did not register within {args.timeout} s: run softnic join there, too"
        raise CommandError(text)
    if args.number not in (None, found.number):
        raise CommandError(f"another node of the job has number {args.number}: pass another one, or none")
    return found


def _wait(node: JoinedNode, deadline: float) -> None:
    """Wait for ways to all nodes. Raises CommandError after the timeout."""
    shown: dict[str, str] = {}

    def show(stats: NicStats) -> None:
        for way in stats.ways:
            if way.age:
                text = f"{way.peer}: {'relayed' if way.relayed else 'direct'} by {way.address}"
                if shown.get(way.peer) != text:
                    shown[way.peer] = text
                    _log(text)

    stats = node.wait(deadline, show)
    if not is_connected(stats):
        found = stats.meeting
        waiting = [] if found is None else found.waiting
        names = ", ".join(waiting) or "other nodes"
        text = f"no way to {names} was found in time: have their hosts left, or does no server of the token relay?"
        raise CommandError(text)


def _run(supervisor: ProcessSupervisor, node: JoinedNode, command: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    command = with_softnic(list(command), "softnic join")
    ranks = node.plan.ranks
    base = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    base = {**defaults(ranks), **base}
    if _is_launcher(command):
        environments = [preload.environment(node.control, {**base, **node.launcher_environment()})]
    else:
        environments = [{**base, **node.environment(rank)} for rank in range(ranks)]
    processes: list[SupervisedProcess] = []
    try:
        for environment in environments:
            processes.append(_start(supervisor, command, environment))
        return _until_ended(node, processes)
    except KeyboardInterrupt:
        _end(processes, signal.SIGINT)
        raise
    finally:
        _end(processes, signal.SIGTERM)


def _is_launcher(command: Sequence[str]) -> bool:
    """Return whether a command is torchrun, which starts ranks itself."""
    names = [Path(command[0]).name, *(word for option, word in pairwise(command) if option == "-m")]
    return any(_LAUNCHER.fullmatch(name) for name in names)


def _start(supervisor: ProcessSupervisor, command: Sequence[str], env: Mapping[str, str]) -> SupervisedProcess:
    return supervisor.start(command, [0, 1, 2], env)


def _until_ended(node: JoinedNode, processes: Sequence[SupervisedProcess]) -> int:
    """Return 0 when all have ended, or the exit code of the first that fails. Raises CommandError if the NIC ends."""
    with selectors.DefaultSelector() as selector:
        for each in (*processes, node.nic):
            selector.register(each, selectors.EVENT_READ)
        while any(each.poll() is None for each in processes):
            for key, _ in selector.select():
                selector.unregister(key.fileobj)
            codes = [each.poll() or 0 for each in processes]
            if failed := next(filter(None, codes), 0):
                return failed if failed > 0 else 128 - failed
            if (ending := node.nic.ending()) is not None:
                raise CommandError(f"the NIC {ending}; the command is ended")
    codes = [each.poll() or 0 for each in processes]
    failed = next(filter(None, codes), 0)
    return failed if failed >= 0 else 128 - failed


def _end(processes: Sequence[SupervisedProcess], number: int) -> None:
    """End processes by a signal, and after END_S by SIGKILL."""
    until = time.monotonic() + END_S
    for each in processes:
        each.signal(number)
        each.signal(signal.SIGCONT)
    for each in processes:
        if each.wait(max(0.0, until - time.monotonic())) is None:
            each.signal(signal.SIGKILL)


def _log(line: str) -> None:
    print(f"softnic join: {line}", file=sys.stderr, flush=True)
