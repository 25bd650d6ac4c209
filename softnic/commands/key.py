"""`softnic key`: makes, replaces and revokes the keys by which nodes know each other."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import closing

from softnic.commands import CommandError
from softnic.commands.nics import named_nics
from softnic.ipc import control
from softnic.ipc.client import Client
from softnic.link.secure.identity import (
    NodeIdentity,
    key_text,
    new_identity,
    parse_public,
    read_identity,
    rotate_identity,
)

NAME = "key"
HELP = "make, replace and revoke the key of a node"
_FILE_HELP = "file of the node's private key"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Each node has a private key in a file, and its peers know its public key: docs/keys.md. To replace a key:\n"
        "rotate on its node, then accept the key that this prints on the others. Connections go on meanwhile.\n\n"
        "examples:\n"
        "  softnic key new /etc/softnic/node.key\n"
        "  softnicd --config node0.toml --identity /etc/softnic/node.key --peer-key 10.77.0.2=KEY\n"
        "  softnic key rotate /etc/softnic/node.key --nic /run/node0.sock\n"
        "  softnic key accept 10.77.0.1 KEY --nic /run/node1.sock\n"
        "  softnic key revoke KEY --nic /run/node0.sock --nic /run/node2.sock"
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    text = "make a private key and print its public key"
    _add(actions, "new", text, _new).add_argument(
        "file", metavar="FILE", help=f"{_FILE_HELP}, which must not exist yet"
    )
    text = "print the public keys of a file, the newest first"
    _add(actions, "public", text, _public).add_argument("file", metavar="FILE", help=_FILE_HELP)
    rotate = _add(actions, "rotate", "put a new key before the one of a file, and have the NIC use both", _rotate)
    rotate.add_argument("file", metavar="FILE", help=_FILE_HELP)
    _add_nic(rotate)
    accept = _add(actions, "accept", "know a node by another public key, too", _accept)
    accept.add_argument("ip", metavar="IP", help="address of the node")
    accept.add_argument("key", metavar="KEY", help="its new public key")
    _add_nic(accept)
    revoke = _add(actions, "revoke", "use a public key no more: sessions by it end at once", _revoke)
    revoke.add_argument("key", metavar="KEY", help="the public key")
    _add_nic(revoke)


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add an action, and return its parser."""
    parser = actions.add_parser(name, help=text, description=text)
    parser.set_defaults(action=run)
    return parser


def _add_nic(parser: argparse.ArgumentParser) -> None:
    text = "control socket of a NIC to tell; may be repeated (SOFTNIC_NIC)"
    parser.add_argument("--nic", metavar="PATH", action="append", help=text)


def _checked(text: str) -> str:
    """Return a text that is a public key. Raises CommandError."""
    try:
        return key_text(parse_public(text))
    except ValueError as error:
        raise CommandError(str(error)) from error


def run(args: argparse.Namespace) -> int:
    code: int = args.action(args)
    return code


def _new(args: argparse.Namespace) -> int:
    try:
        _print(new_identity(args.file))
    except FileExistsError as error:
        raise CommandError(f"{args.file} exists: softnic key rotate replaces its key") from error
    return 0


def _public(args: argparse.Namespace) -> int:
    _print(_identity(read_identity, args.file))
    return 0


def _rotate(args: argparse.Namespace) -> int:
    paths = named_nics(args.nic)
    for path in paths:
        with closing(Client(path)) as client:
            client.info()
    try:
        identity = _identity(rotate_identity, args.file)
    except FileExistsError as error:
        raise CommandError(f"{error.filename} exists: another rotation runs, or was interrupted; remove it") from error
    newest = key_text(identity.public[0])
    _print(identity)
    for path, reply in _tell(paths, control.ReplaceIdentity()).items():
        if isinstance(reply, control.Keys) and newest not in reply.keys:
            raise CommandError(f"the NIC at {path} has its identity from another file than {args.file}")
    return 0


def _accept(args: argparse.Namespace) -> int:
    _tell(_named(args), control.AddPeerKey(args.ip, _checked(args.key)))
    return 0


def _revoke(args: argparse.Namespace) -> int:
    _tell(_named(args), control.RevokeKey(_checked(args.key)))
    return 0


def _named(args: argparse.Namespace) -> list[str]:
    paths = named_nics(args.nic)
    if not paths:
        raise CommandError("no NIC given: use --nic PATH with its control socket, or set SOFTNIC_NIC")
    return paths


def _tell(paths: Sequence[str], request: control.Request) -> dict[str, control.Reply]:
    """Send a request to each NIC, and return the replies. Raises CommandError that names those that refused it."""
    failed, replies = [], {}
    for path in paths:
        try:
            with closing(Client(path)) as client:
                replies[path] = client.call(request)
        except OSError as error:
            failed.append(f"{os.fspath(path)}: {error.strerror or error}")
    if failed:
        raise CommandError("; ".join(failed))
    return replies


def _identity(made: Callable[[str], NodeIdentity], path: str) -> NodeIdentity:
    """Raises CommandError if the file cannot be used."""
    try:
        return made(path)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _print(identity: NodeIdentity) -> None:
    for key in identity.public:
        print(key_text(key))
