"""`softnic top`: NICs, collectives and connections live in the terminal."""

from __future__ import annotations

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.segment import Segment
from rich.style import Style

from softnic.arguments import number
from softnic.commands import CommandError
from softnic.commands.layout import Line, terminal_width, whole_words
from softnic.commands.nics import add_nic
from softnic.commands.snapshots import NicReader
from softnic.commands.top_page import SORT, page
from softnic.ipc.control import NicStats

NAME = "top"
HELP = "show NICs, collectives and connections live in the terminal"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without --nic: the NIC in SOFTNIC_NIC, otherwise the NICs of all clusters that you run. Shown are the CPU of\n"
        "each NIC's process, bytes of applications and bits on the wire per second, the compression ratio of tagged\n"
        "data, TCP's answers to loss and dropped frames per second; then each collective in progress with what it\n"
        "waits for from which rank; then as many connections as there is space for.\n\n"
        "Columns that do not fit in the terminal are left out: rates, losses and drops last.\n"
        "keys: q quits, s changes the sort order, p pauses.\n"
        "Without a terminal, one page is printed, as with --once. `softnic stat --watch` is for programs.\n\n"
        "examples:\n"
        "  softnic top\n"
        "  softnic top --interval 0.5 --sort rtt\n"
        "  softnic top --once"
    )
    add_nic(parser)
    seconds = number(0.1, 3600, "a time from 0.1 to 3600 seconds")
    parser.add_argument("--interval", type=seconds, metavar="N", default=1.0, help="refresh every N seconds (1)")
    parser.add_argument("--sort", choices=tuple(SORT), default="rate", help="sort connections by this (rate)")
    parser.add_argument("--once", action="store_true", help="measure for one interval, print all lines, and exit")


def run(args: argparse.Namespace) -> int:
    with closing(NicReader(args.nic)) as reader:
        if args.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
            before = reader.read()
            time.sleep(args.interval)
            for text, _ in page(before, reader.read(), args.sort, terminal_width(Console())):
                print(text)
        else:
            _live(reader, args.interval, args.sort)
    return 0


class _Screen:
    """Lines from the top of the screen, as many and as many of their words as fit; the rest of it is cleared."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Control.home()
        width, height = options.size
        styles = {style: Style.parse(style) for _, style in self._lines}
        shown = [(whole_words(text, width).ljust(width), styles[style]) for text, style in self._lines[:height]]
        shown += [(" " * width, Style.null())] * (height - len(shown))
        for index, (text, style) in enumerate(shown):
            yield Segment(text if index == 0 else f"\n{text}", style)


def _live(reader: NicReader, interval: float, sort: str) -> None:
    """Shows pages until `q` is pressed."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    before: list[NicStats] = []
    after: list[NicStats] = []
    problem, paused, due = "", False, time.monotonic()
    with _keys() as keyboard, console.screen(hide_cursor=True):
        while True:
            if not paused and time.monotonic() >= due:
                due = time.monotonic() + interval
                before, (after, problem) = after, _read(reader)
            lines = page(before, after, sort, console.width, console.height - 1)
            lines.append((problem or f"q quit  s sort: {sort}  p {'continue' if paused else 'pause'}", "dim"))
            console.print(_Screen(lines), end="")
            key = _key(keyboard, None if paused else due - time.monotonic())
            if key == "q":
                return
            if key == "s":
                orders = [*SORT]
                sort = orders[(orders.index(sort) + 1) % len(orders)]
            elif key == "p":
                paused = not paused


def _read(reader: NicReader) -> tuple[list[NicStats], str]:
    """Returns the statistics, or none and why there are none: NICs may start later."""
    try:
        return reader.read(), ""
    except (CommandError, OSError) as error:
        return [], error.strerror or str(error) if isinstance(error, OSError) else str(error)


@contextmanager
def _keys() -> Iterator[int]:
    """Has the terminal deliver keys at once, without showing them."""
    keyboard = sys.stdin.fileno()
    former = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, former)


def _key(keyboard: int, timeout_s: float | None) -> str:
    """Waits for a key; returns an empty text if none comes in time, and `q` if the terminal has gone."""
    ready = select.select([keyboard], [], [], None if timeout_s is None else max(0.0, timeout_s))[0]
    return (os.read(keyboard, 1).decode(errors="replace") or "q").lower() if ready else ""
