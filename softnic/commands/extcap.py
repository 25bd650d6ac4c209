"""`softnic extcap`: running NICs as interfaces of Wireshark and tshark, which run this command."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

from softnic.arguments import count
from softnic.capture.capture_file import CaptureError
from softnic.capture.extcap import (
    ALL,
    SIDES,
    ExtcapInterface,
    LiveNic,
    interface_list,
    interfaces_of,
    link_types,
    options,
    wait_for_end,
)
from softnic.capture.pcapng import MAX_SNAPLEN
from softnic.capture.wireshark_folders import install, uninstall, wireshark_folders
from softnic.cluster.nic_process import running_nics
from softnic.commands import CommandError, handled
from softnic.commands.capture import Side, recording
from softnic.commands.nics import named_nics
from softnic.ipc.client import Client
from softnic.version import version

NAME = "extcap"
HELP = "make running NICs interfaces of Wireshark and tshark"
_EXAMPLE = """\
examples:
  softnic extcap --install                  once; from then on Wireshark lists the running NICs of this user
  tshark -D                                 ... softnic-node0 (softnic: rank 0 (10.77.0.1)) ...
  tshark -i softnic-node0 -Y softnic        live, with payload headers
  softnic extcap --uninstall

The other arguments are those that Wireshark gives to programs of its extcap folder."""
_REPLY_S = 0.5
"""How long Wireshark's list of interfaces waits for a NIC."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLE
    parser.add_argument("--extcap-interfaces", action="store_true", help="list the NICs")
    parser.add_argument("--extcap-version", metavar="VERSION", nargs="?", help="version of Wireshark; not used")
    parser.add_argument("--extcap-interface", metavar="NAME", help=f"the NIC, as listed; {ALL}: all of them")
    parser.add_argument("--extcap-dlts", action="store_true", help="list the link types of the NIC")
    parser.add_argument("--extcap-config", action="store_true", help="list the options of the NIC")
    parser.add_argument("--extcap-capture-filter", metavar="FILTER", default="", help="must be empty")
    parser.add_argument("--capture", action="store_true", help="capture from the NIC until Wireshark closes the FIFO")
    parser.add_argument("--fifo", metavar="PATH", help="with --capture: where to write the packets")
    parser.add_argument("--side", choices=tuple(SIDES), default="both", help="with --capture: which sides of the NIC")
    parser.add_argument(
        "--snaplen", metavar="N", type=count(0, MAX_SNAPLEN), default=0, help="bytes to keep of each packet; 0: all"
    )
    setup = parser.add_mutually_exclusive_group()
    setup.add_argument(
        "--install", action="store_true", help="put this command and the dissector into Wireshark's personal folders"
    )
    setup.add_argument("--uninstall", action="store_true", help="remove them")


def run(args: argparse.Namespace) -> int:
    if args.install or args.uninstall:
        return _set_up(remove=args.uninstall)
    if args.extcap_interfaces:
        print(interface_list(_interfaces(), version()))
        return 0
    if args.extcap_interface is None:
        raise CommandError("Wireshark runs this command: softnic extcap --install makes it known there")
    if args.extcap_dlts:
        print(link_types())
    elif args.extcap_config:
        print(options())
    elif args.capture:
        return _capture(args)
    elif args.extcap_capture_filter:
        print(_NO_FILTER)  # Wireshark takes a text for the reason why the filter is not valid
    return 0


_NO_FILTER = "NICs have no capture filters: use a display filter (-Y), or --side and --snaplen for less data"


def _set_up(*, remove: bool) -> int:
    folders = wireshark_folders()
    for path in uninstall(folders) if remove else install(folders):
        print(f"{'removed' if remove else 'wrote'} {path}")
    return 0


def _interfaces() -> list[ExtcapInterface]:
    """Return the interfaces of the NICs that answer: that of SOFTNIC_NIC, and those of all clusters of this user."""
    paths = {os.path.realpath(path): path for path in [*named_nics(None), *map(str, running_nics())]}
    nics = []
    for path in paths.values():
        with suppress(OSError), closing(Client(path, _REPLY_S)) as client:
            info = client.info()
            nics.append(LiveNic(path, info.name, info.ip, info.pid))
    return interfaces_of(nics)


def _chosen(name: str) -> ExtcapInterface:
    interfaces = {one.name: one for one in _interfaces()}
    if not interfaces:
        raise CommandError("no NIC runs here: start some with softnic run, or set SOFTNIC_NIC before Wireshark starts")
    if name not in interfaces:
        raise CommandError(
            f"no NIC is listed as {name}: refresh Wireshark's interfaces, which are {', '.join(interfaces)}"
        )
    return interfaces[name]


def _capture(args: argparse.Namespace) -> int:
    if not args.fifo:
        raise CommandError("--capture needs --fifo PATH")
    # Opened before anything can fail: Wireshark opens its end, too, and would wait for ours. Signals end the wait.
    with suppress(BrokenPipeError), Path(args.fifo).open("wb", buffering=0) as fifo:
        if args.extcap_capture_filter:
            raise CommandError(_NO_FILTER)
        chosen, stop = _chosen(args.extcap_interface), threading.Event()
        side = Side(host=args.side != "wire", wire=args.side != "host")
        try:
            ending = handled(lambda _number, _frame: stop.set(), signal.SIGINT, signal.SIGTERM)
            with ending, recording(chosen.paths, fifo, snaplen=args.snaplen, side=side) as recorder:
                wait_for_end(recorder, fifo, stop)
        except CaptureError as error:
            raise CommandError(str(error)) from error
        for number in recorder.ended:
            print(f"softnic extcap: the NIC at {chosen.paths[number]} stopped during the capture", file=sys.stderr)
    return 0
