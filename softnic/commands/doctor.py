"""`softnic doctor`: says what is wrong on this host and between hosts, why it matters, and what fixes it."""

from __future__ import annotations

import argparse
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from softnic import underlay, units
from softnic.arguments import argument, count, number
from softnic.commands import CommandError, add_json, check_writable, deliver_json
from softnic.commands.nics import add_nic, named_nics
from softnic.doctor import host, path, running, speed
from softnic.doctor.findings import Finding, exit_code
from softnic.doctor.listener import ProbeListener
from softnic.doctor.probes import DEFAULT_PORT
from softnic.link.secure.keys import read_key
from softnic.underlay import ANY, Address

NAME = "doctor"
HELP = "say what is wrong on this host and between hosts, and what fixes it"
_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without PEER: this host, and the NICs that run on it, with their kind of NAT and the way to each peer.\n"
        "With PEER also: the way to it, if it is a node of theirs, as 10.77.0.2; else the path to a host where\n"
        "`softnic doctor --listen` runs. Use the port of the NICs while they do not run, and give both sides the key.\n"
        "The exit code is 1 if there is a problem; notes do not count.\n\n"
        "examples:\n"
        "  softnic doctor\n"
        "  softnic doctor --listen --key /etc/softnic/key           on one host\n"
        "  softnic doctor 192.0.2.11 --key /etc/softnic/key         on the other\n"
        "  softnic doctor [2001:db8::11]:4789 --config /etc/softnic/node0.toml --json -"
    )
    address = argument(_address)
    sides = parser.add_mutually_exclusive_group()
    sides.add_argument("peer", nargs="?", type=address, metavar="PEER", help=f"HOST or HOST:PORT ({DEFAULT_PORT})")
    listen_help = f"answer another host's doctor until interrupted ([::]:{DEFAULT_PORT})"
    sides.add_argument(
        "--listen", nargs="?", type=address, const=(ANY, DEFAULT_PORT), metavar="HOST:PORT", help=listen_help
    )
    seconds = number(0.1, 86400, "a time from 0.1 to 86400 seconds")
    parser.add_argument("--seconds", type=seconds, metavar="N", help="with --listen: end after N seconds")
    parser.add_argument("--config", type=Path, metavar="FILE", help="take key and mtu from a NIC's configuration")
    parser.add_argument("--key", metavar="FILE", help="key of the network, to compare with the peer's")
    parser.add_argument("--mtu", type=count(576, 9000), metavar="BYTES", help="mtu of the NICs, to check the path for")
    add_nic(parser)
    rate_help = "rate of the link, for advice (with PEER: as measured; otherwise 1, 10 and 100 Gbit/s)"
    parser.add_argument("--rate", type=argument(units.rate_bps), metavar="X", help=rate_help)
    parser.add_argument("--no-speed", action="store_true", help="measure neither codecs nor the link")
    add_json(parser, "all findings")


def run(args: argparse.Namespace) -> int:
    check_writable(args.json)
    key, mtu = _settings(args)
    if args.listen:
        return _listen(args.listen, key, args.seconds)
    findings = host.check() + running.check(named_nics(args.nic))
    rate_bps = args.rate
    if args.peer and (known := running.to_peer(args.peer[0], named_nics(args.nic))) is not None:
        findings += [each for each in known if each not in findings]
    elif args.peer:
        checked = path.check(path.PathSettings(args.peer, key, mtu, measure=not args.no_speed))
        findings += checked.findings
        rate_bps = rate_bps or checked.rate_bps
    if not args.no_speed:
        with Console(stderr=True, markup=False).status("measuring") as status:
            findings += speed.check(speed.measure(lambda what: status.update(f"measuring {what}")), rate_bps)
    code = exit_code(findings)
    if deliver_json(args.json, {"ok": not code, "findings": [asdict(each) for each in findings]}):
        _print(findings)
    return code


def _address(text: str) -> Address:
    return underlay.parse(text, DEFAULT_PORT)


def _settings(args: argparse.Namespace) -> tuple[bytes | None, int | None]:
    """Return key and MTU of flags and configuration. Raises CommandError."""
    table: dict[str, Any] = {}
    try:
        if args.config is not None:
            table = tomllib.loads(args.config.read_text())
        named = args.key or table.get("key", "")
        key = read_key(str(named)) if named else None
    except ValueError as error:
        raise CommandError(str(error)) from error
    mtu = args.mtu or table.get("mtu")
    return key, mtu if isinstance(mtu, int) else None


def _listen(bind: Address, key: bytes | None, seconds: float | None) -> int:
    listener = ProbeListener(bind, key)
    until = None if seconds is None else time.monotonic() + seconds
    try:
        print(f"listening at {underlay.text(listener.address)} by UDP and TCP, until Ctrl-C", flush=True)
        listener.serve(lambda: until is not None and time.monotonic() >= until)
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
    counted = listener.counters
    print(f"{counted.questions} questions answered, {counted.rejected} datagrams and connections rejected")
    return 0


def _print(findings: Sequence[Finding]) -> None:
    console = Console(markup=False, highlight=False)
    for each in findings:
        console.print(f"{each.level:8}", style=_STYLES[each.level], end="")
        console.print(f"{each.check:12} {each.text}", soft_wrap=True)
        if each.level != "ok":
            console.print(f"{'':21}why: {each.why}", soft_wrap=True)
            console.print(f"{'':21}fix: {each.fix}", soft_wrap=True)
    problems = sum(each.level == "problem" for each in findings)
    notes = sum(each.level == "note" for each in findings)
    console.print(f"\n{problems} problem{'' if problems == 1 else 's'}, {notes} note{'' if notes == 1 else 's'}")
