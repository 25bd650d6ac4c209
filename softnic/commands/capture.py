"""`softnic capture`: records the host and wire sides of running NICs into one pcapng file."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rich.console import Console

from softnic.arguments import argument, count
from softnic.capture.capture_file import CaptureError
from softnic.capture.pcapng import MAX_SNAPLEN
from softnic.capture.recorder import Recorder, VantagePoint
from softnic.commands import CommandError, check_writable, handled, write_file
from softnic.commands.nics import named_nics
from softnic.ipc import control
from softnic.ipc.client import Client
from softnic.units import text_bytes, time_s

NAME = "capture"
HELP = "record what passes the host and wire sides of NICs in a pcapng file"
_EXAMPLE = """\
examples:
  softnic capture --nic /run/softnic/node0.sock -o job.pcapng             until Ctrl-C
  softnic capture --nic node0.sock --nic node1.sock -o job.pcapng --duration 10s
  softnic capture -o - | tshark -r -                                      the NIC that SOFTNIC_NIC names, live

Each NIC adds two interfaces, NAME:host (what TCP sees) and NAME:wire (frames on the link, floats encoded).
`softnic inspect FILE` shows the contents; Wireshark and tshark read it too."""
_TICK_S = 0.2
_SOCKET_BYTES = 1 << 20


@dataclass(frozen=True)
class Side:
    """Which of a NIC's two sides to record."""

    host: bool = True
    wire: bool = True


BOTH = Side()


@contextmanager
def recording(
    paths: Sequence[str], output: str | os.PathLike[str] | BinaryIO, *, snaplen: int = 0, side: Side = BOTH
) -> Iterator[Recorder]:
    """Record the NICs at these control sockets while the context is active; the file is complete when it ends.

    Parameters
    ----------
    paths : sequence of str
        Control sockets.
    output : path or binary file
        The file, or `-` for standard output. An existing file is replaced once all NICs have answered. An open one is
        not buffered, and stays open.
    snaplen : int
        Bytes to keep of each packet; 0: all.
    side : Side
        Which sides to record.

    Raises
    ------
    OSError
        If a NIC cannot be reached or the file cannot be written.
    CaptureError
        If a NIC sends something other than blocks.
    """
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Client(path))) for path in paths]
        nics = [client.call(control.QueryNic()) for client in clients]
        points, numbers = _vantage_points(nics, side)
        file = stack.enter_context(_output(output))
        sources = [
            stack.enter_context(_start(client, control.Capture(host, wire, snaplen, queue)))
            for client, nic, (host, wire) in zip(clients, nics, numbers, strict=True)
            for queue in range(nic.queues)
        ]
        recorder = Recorder(file, points, sources, snaplen)
        try:
            yield recorder
        finally:
            recorder.stop()


def _start(client: Client, request: control.Capture) -> socket.socket:
    """Start the capture of a queue. Returns the socket that its blocks come from."""
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        client.call(request, theirs.fileno())
    return ours


@contextmanager
def _output(path: str | os.PathLike[str] | BinaryIO) -> Iterator[BinaryIO]:
    if not isinstance(path, (str, os.PathLike)):
        yield path
    elif path == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with Path(path).open("wb", buffering=0) as file:
            yield file


def _vantage_points(nics: Sequence[control.NicInfo], side: Side) -> tuple[list[VantagePoint], list[tuple[int, int]]]:
    """Return the file's interfaces, and for every NIC the numbers of its host and wire side (-1: left out)."""
    points: list[VantagePoint] = []
    numbers: list[tuple[int, int]] = []
    names = Counter(nic.name for nic in nics)
    for nic in nics:
        unique = nic.name if names[nic.name] == 1 else f"{nic.name}@{nic.ip}"
        offloads = ", ".join(f"{tos}={codec}" for tos, codec in sorted(nic.offloads.items())) or "none"
        pair = []
        for name, wanted in (("host", side.host), ("wire", side.wire)):
            pair.append(len(points) if wanted else -1)
            if wanted:
                text = f"softnic {nic.ip}, {name} side, mode {nic.mode}, offloads {offloads}"
                mac = bytes.fromhex(nic.mac.replace(":", ""))
                ip = int.from_bytes(socket.inet_aton(nic.ip), "big")
                points.append(VantagePoint(f"{unique}:{name}", text, ip, mac))
        numbers.append((pair[0], pair[1]))
    return points, numbers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLE
    parser.add_argument(
        "--nic", metavar="PATH", action="append", help="control socket of a NIC; may be repeated (default: SOFTNIC_NIC)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="output file (-: standard output)")
    parser.add_argument(
        "--snaplen", metavar="N", type=count(1, MAX_SNAPLEN), default=0, help="bytes to keep of each packet (all)"
    )
    parser.add_argument("--duration", metavar="TIME", type=argument(time_s), help="stop after this time, e.g. 10s")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--host-only", action="store_true", help="record host sides only")
    only.add_argument("--wire-only", action="store_true", help="record wire sides only")
    parser.add_argument("--json", metavar="FILE", help="write a summary as JSON")


def run(args: argparse.Namespace) -> int:
    paths = named_nics(args.nic)
    if not paths:
        raise CommandError("no NIC given: use --nic PATH with its control socket, or set SOFTNIC_NIC")
    if len(set(map(os.path.realpath, paths))) < len(paths):
        raise CommandError("a NIC is given twice: its packets would be recorded twice")
    check_writable(args.json)
    side = Side(host=not args.wire_only, wire=not args.host_only)
    if args.output == "-" and sys.stdout.isatty():
        raise CommandError("a capture is binary: redirect standard output, or give a file")
    stop = threading.Event()
    try:
        # They end the recording instead of the process, so that the file is completed.
        ending = handled(lambda _number, _frame: stop.set(), signal.SIGINT, signal.SIGTERM)
        with ending, recording(paths, args.output, snaplen=args.snaplen, side=side) as recorder:
            _wait(recorder, stop, args.duration)
    except CaptureError as error:
        raise CommandError(str(error)) from error
    _report(args, paths, recorder)
    return 0


def _wait(recorder: Recorder, stop: threading.Event, duration_s: float | None) -> None:
    """Wait for the end of the duration, a signal, or the recording's own end; show progress on a terminal."""
    started = time.monotonic()
    with Console(stderr=True, markup=False).status("") as status:
        passed = 0.0
        while not stop.wait(_TICK_S if duration_s is None else min(_TICK_S, max(0.0, duration_s - passed))):
            passed = time.monotonic() - started
            if (duration_s is not None and passed >= duration_s) or recorder.wait(0):
                return
            status.update(
                f"{recorder.packets:,} packets, {text_bytes(recorder.bytes_written)} written, {passed:.0f} s"
                + ("" if duration_s else ", Ctrl-C ends")
            )


def _report(args: argparse.Namespace, paths: Sequence[str], recorder: Recorder) -> None:
    gone = [paths[number] for number in recorder.ended]
    for path in gone:
        print(f"softnic capture: the NIC at {path} stopped before the end of the recording", file=sys.stderr)
    dropped = recorder.dropped
    text = f"{recorder.packets:,} packets, {text_bytes(recorder.bytes_written)} in {args.output}"
    if dropped:
        text += f"; {dropped:,} packets were dropped because this host was too slow"
    print(text, file=sys.stderr)
    if args.json:
        record = {
            "file": args.output,
            "packets": recorder.packets,
            "bytes": recorder.bytes_written,
            "dropped": dropped,
            "ended_early": gone,
        }
        write_file(args.json, json.dumps(record, indent=2) + "\n")
