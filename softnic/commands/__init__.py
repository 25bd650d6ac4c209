"""`softnic COMMAND ...`: one module a command, imported only when it is named.

A command's module has

- `NAME` and `HELP`: the word to type, and one line for `softnic --help`;
- `add_arguments(parser)`: its arguments, and `parser.epilog` with an example;
- `run(args) -> int`: the exit code, 0 only on success.

What a user can put right ends as one line on stderr: a command raises CommandError for it (exit code 1), and an
OSError or a missing module is told the same way. Anything else is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.metadata
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar, cast

from softnic.extras import PACKAGES, not_installed

T = TypeVar("T")

COMMANDS = ("demo", "run", "stat", "capture", "inspect", "bench", "model", "train", "compare", "reproduce")
"""In the order of `softnic --help`; each is the module `softnic.commands.NAME`."""


class CommandError(Exception):
    """A failure to tell in one line that says what to do."""


class Command(Protocol):
    """What a command's module looks like."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """`parse` as an argparse type that keeps the text of its ValueError."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def count(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number from `minimum` to `maximum`."""
    wanted = f"a whole number from {minimum} to {maximum}" if maximum else f"a whole number, at least {minimum}"

    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < minimum or (maximum and int(text) > maximum):
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return int(text)

    return convert


def add_json(parser: argparse.ArgumentParser, what: str = "all figures") -> None:
    """The argument that `check_writable` and `deliver_json` serve."""
    parser.add_argument("--json", metavar="FILE", help=f"write {what} as JSON (-: standard output, no tables)")


def check_writable(*targets: str | Path | None) -> None:
    """Raises OSError now for files, of those that are named, that could not be written when all is done."""
    for target in targets:
        if target not in (None, "-"):
            Path(target).open("a").close()


def deliver_json(target: str | None, content: Any, indent: int | None = 2) -> bool:
    """Writes what `--json FILE` asked for, if it was given. Returns whether people are to be shown something as well:
    not where standard output is the file."""
    if not target:
        return True
    document = json.dumps(content, indent=indent) + "\n"
    if target == "-":
        sys.stdout.write(document)
        return False
    Path(target).write_text(document, encoding="utf-8")
    return True


def load(name: str) -> Command:
    """Imports a command. Raises CommandError where it, or something that it needs, is not there."""
    try:
        return cast(Command, importlib.import_module(f"{__name__}.{name}"))
    except ImportError as error:
        raise CommandError(missing(error)) from error


def missing(error: ImportError) -> str:
    """One line for a failed import: what is missing and what to install."""
    module = (error.name or "").partition(".")[0]
    if module in PACKAGES and isinstance(error, ModuleNotFoundError):
        return not_installed(module)
    if isinstance(error, ModuleNotFoundError):
        return f"the module {error.name} is not installed: reinstall softnic"
    return f"{module or 'a module'} is installed but does not load: {error}"


def main(argv: Sequence[str] | None = None) -> int:
    """The program `softnic`. Returns its exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments and arguments[0] in COMMANDS else None
    try:
        if name is None:
            parser = _overview()
            parser.parse_args(arguments)
            parser.error("the first argument has to be a command")
        command = load(name)
        parser = _parser(command)
        given = parser.parse_args(arguments[1:])
        with _ended_in_order():
            code = command.run(given)
        sys.stdout.flush()
        return code
    except CommandError as error:
        return _fail(name, str(error), error)
    except BrokenPipeError:
        # The reader of our output left (`softnic stat | head`). Nothing may be written at exit any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(name, _os_error(error), error)
    except ImportError as error:
        return _fail(name, missing(error))
    except KeyboardInterrupt:
        return 130


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as an exception does, so that nothing of it stays behind. One that is ignored
    (nohup) still is."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ending = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, leave) for number in ending}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _parser(command: Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"softnic {command.NAME}",
        description=command.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    return parser


def _overview() -> argparse.ArgumentParser:
    """The parser for everything that names no command: --help, --version, mistakes."""
    parser = argparse.ArgumentParser(
        prog="softnic",
        description="A compressing network card in software: gradients cross the network compressed.",
        epilog="`softnic COMMAND --help` tells more about one of them. Try: softnic demo",
    )
    parser.add_argument("--version", action="version", version=f"softnic {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        try:
            text = load(name).HELP
        except CommandError as error:
            text = f"(not usable here: {error})"
        commands.add_parser(name, help=text.replace("%", "%%"))
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version("softnic")
    except importlib.metadata.PackageNotFoundError:
        return "(run from its source tree, not installed)"


def _os_error(error: OSError) -> str:
    text = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        text += " (`ulimit -n` raises how many there may be)"
    return f"{error.filename}: {text}" if error.filename is not None else text


def _fail(name: str | None, message: str, error: BaseException | None = None) -> int:
    """Says it, and what a cluster noted of its NICs when the error, or what it stands for, left it."""
    while error is not None:
        noted = [note for note in getattr(error, "__notes__", ()) if note not in message]
        message = "; ".join([message, *noted])
        error = error.__cause__
    print(f"softnic {name}: {message}" if name else f"softnic: {message}", file=sys.stderr)
    return 1
