"""`softnic inspect --packet N --vcd`: a captured packet's way through the engines of native/rtl, as a waveform."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from softnic.capture.packets import HEADER_BYTES
from softnic.capture.report import CaptureReport
from softnic.capture.streams import words_of
from softnic.codecs import get
from softnic.commands import CommandError
from softnic.rtl import gtkwave, verilator, waves
from softnic.rtl.verilator import RtlError
from softnic.rtl.waves import CYCLE_NS, MOST_BYTES, Replay
from softnic.terminal import printable

_SAME = "the captured one, byte for byte"
_OTHER = "not the captured one: these floats, decoded once, take other bits"
_NOT_ENCODED = {
    "plain": "it is not tagged",
    "raw": "it was sent raw, as it would not have shrunk",
    "floats": "it was seen at a host side, and the wire side has the frames",
}


def replayed(args: argparse.Namespace, report: CaptureReport, record: dict[str, Any]) -> list[RenderableType]:
    """Replay the packet of the record and write its waveform; return what to print, and add it to the record."""
    where = f"{printable(args.file)}: packet {args.packet}"
    name, parameter = _codec(where, record)
    frame = report.ethernet_frame(args.packet)
    headers = len(frame) - record["payload_bytes"]
    if headers + record["original_bytes"] > MOST_BYTES:
        raise CommandError(
            f"{where} stands for {record['original_bytes']:,} bytes: the engines' memory takes frames of {MOST_BYTES:,}"
        )
    if reason := verilator.missing():
        raise CommandError(f"--vcd needs the extra rtl: {reason}")
    try:
        with Console(stderr=True, markup=False).status(Text("simulating (the first time, a minute of compiling)")):
            replay = waves.replay(frame, name, parameter, record["tos"], Path(args.vcd))
            saved = gtkwave.save(Path(args.vcd), name, replay.cycles)
    except RtlError as error:
        raise CommandError(f"{where}: {error}") from error
    original = report.original(args.packet)
    if replay.plain.frame[headers:] != original or _body(replay, headers) != _encoded(record, original):
        raise CommandError(f"{where}: the engines give other bits than the codec, as {printable(args.vcd)} shows")
    is_same = replay.sent.frame == frame
    record["replay"] = _record(replay) | {"sent_as_captured": is_same}
    shown = f"; `gtkwave {printable(str(saved))}` shows the engines' ports" if saved else ""
    return [
        _table(replay),
        Text("Floats and bits are those of the codec in software."),
        Text(f"The frame that leaves is {_SAME if is_same else _OTHER}."),
        Text(f"{printable(args.vcd)}: {replay.cycles:,} cycles of {CYCLE_NS} ns{shown}"),
    ]


def _body(replay: Replay, headers: int) -> bytes:
    """Return what the sending path has made of words and tail."""
    return replay.sent.frame[headers + HEADER_BYTES :]


def _encoded(record: dict[str, Any], original: bytes) -> bytes:
    """Return the same as the software makes it."""
    words = words_of(original)
    return get(record["codec"]).encode(words) + original[words.nbytes :]


def _codec(where: str, record: dict[str, Any]) -> tuple[str, int]:
    """Return name and parameter of the codec, or raise CommandError for a packet that has nothing for the engines."""
    if record["problem"]:
        raise CommandError(f"{where}: {record['problem']}")
    if record["state"] in _NOT_ENCODED:
        raise CommandError(f"{where} has no compressed floats: {_NOT_ENCODED[record['state']]}")
    name, _, parameter = str(record["codec"]).partition(":")
    if name not in waves.CODECS:
        raise CommandError(f"{where} is of codec {record['codec']}: there are engines of {' and '.join(waves.CODECS)}")
    return name, int(parameter)


def _ports(replay: Replay) -> dict[str, waves.Passage]:
    return {"s_axis": replay.received, "plain_axis": replay.plain, "m_axis": replay.sent}


def _record(replay: Replay) -> dict[str, Any]:
    return {
        "cycles": replay.cycles,
        "cycle_ns": CYCLE_NS,
        "ports": {
            name: {"bytes": len(each.frame), "first_cycle": each.first, "last_cycle": each.last}
            for name, each in _ports(replay).items()
        },
    }


def _table(replay: Replay) -> Table:
    shown = {
        "s_axis": "the captured frame, into the receiving path",
        "plain_axis": "decoded, into the sending path",
        "m_axis": "encoded again",
    }
    table = Table("port", "frame", title=f"Engines at {1000 // CYCLE_NS} MHz", title_justify="left", box=None)
    for heading in ("bytes", "cycles", "ns"):
        table.add_column(heading, justify="right")
    for name, each in _ports(replay).items():
        cycles, times = (f"{each.first * unit:,} - {each.last * unit:,}" for unit in (1, CYCLE_NS))
        table.add_row(name, shown[name], f"{len(each.frame):,}", cycles, times)
    return table
