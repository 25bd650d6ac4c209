"""`softnic COMMAND ...`: one module per command, imported only when the command is run.

A command's module has

- `NAME` and `HELP`: its name, and one line for `softnic --help`;
- `add_arguments(parser)`: adds its arguments, and sets `parser.epilog` to an example;
- `run(args) -> int`: returns the exit code, 0 only on success.

An error that the user can fix is printed as one line on stderr (exit code 1): a command raises CommandError for it, and
an OSError or a missing module is treated alike. Any other exception is a bug and keeps its traceback.
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
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar, cast

from softnic.extras import PACKAGES, not_installed

T = TypeVar("T")

COMMANDS = (
    "demo",
    "run",
    "exec",
    "stat",
    "top",
    "doctor",
    "capture",
    "inspect",
    "extcap",
    "bench",
    "model",
    "train",
    "compare",
    "reproduce",
)
"""In the order of `softnic --help`; each is the module `softnic.commands.NAME`."""


class CommandError(Exception):
    """An error for the user; its text is one line that says what to do."""


class Command(Protocol):
    """The interface of a command's module."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Makes an argparse type of `parse` that keeps the text of its ValueError."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def count(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Makes an argparse type: a whole number from `minimum` to `maximum`."""
    wanted = f"a whole number from {minimum} to {maximum}" if maximum else f"a whole number, at least {minimum}"

    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < minimum or (maximum and int(text) > maximum):
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return int(text)

    return convert


def number(minimum: float, maximum: float, wanted: str) -> Callable[[str], float]:
    """Makes an argparse type: a number from `minimum` to `maximum`, which errors call `wanted`."""

    def convert(text: str) -> float:
        with suppress(ValueError):
            if minimum <= float(text) <= maximum:
                return float(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")

    return convert


def add_json(parser: argparse.ArgumentParser, what: str = "all figures") -> None:
    """Adds --json, for `check_writable` and `deliver_json`. `what` names the content in the help."""
    parser.add_argument("--json", metavar="FILE", help=f"write {what} as JSON (-: standard output, no tables)")


def check_writable(*targets: str | Path | None) -> None:
    """Raises OSError if a file cannot be written, before the work is done. None and "-" are ignored."""
    for target in targets:
        if target not in (None, "-"):
            Path(target).open("a").close()


def deliver_json(target: str | None, content: Any, indent: int | None = 2) -> bool:
    """Writes the document of `--json FILE`, if given. Returns whether to print tables too: not if FILE is stdout."""
    with json_writer(target, indent) as deliver:
        return deliver(content)


@contextmanager
def json_writer(target: str | None, indent: int | None = None) -> Iterator[Callable[[Any], bool]]:
    """Opens the file of `--json FILE`, if given, for several documents. Yields what does as `deliver_json` with one."""
    with ExitStack() as stack:
        sink = sys.stdout if target == "-" else None
        if target and sink is None:
            sink = stack.enter_context(Path(target).open("w", encoding="utf-8"))

        def deliver(content: Any) -> bool:
            if sink is not None:
                print(json.dumps(content, indent=indent), file=sink, flush=True)
            return sink is not sys.stdout

        yield deliver


def load(name: str) -> Command:
    """Imports a command. Raises CommandError if a module is missing."""
    try:
        return cast(Command, importlib.import_module(f"{__name__}.{name}"))
    except ImportError as error:
        raise CommandError(missing(error)) from error


def missing(error: ImportError) -> str:
    """Returns one line for a failed import: what is missing and what to install."""
    module = (error.name or "").partition(".")[0]
    if module in PACKAGES and isinstance(error, ModuleNotFoundError):
        return not_installed(module)
    if isinstance(error, ModuleNotFoundError):
        return f"the module {error.name} is not installed: reinstall softnic"
    return f"{module or 'a module'} is installed but does not load: {error}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command `softnic`. Returns its exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments and arguments[0] in COMMANDS else None
    try:
        if name is None:
            parser = _overview()
            parser.parse_args(arguments)
            parser.error("the first argument must be a command")
        command = load(name)
        parser = _parser(command)
        given = parser.parse_args(arguments[1:])
        with exit_on_signals():
            code = command.run(given)
        sys.stdout.flush()
        return code
    except CommandError as error:
        return _fail(name, str(error), error)
    except BrokenPipeError:
        # The reader of the output has exited (`softnic stat | head`). Python must not flush stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(name, _os_error(error), error)
    except ImportError as error:
        return _fail(name, missing(error))
    except KeyboardInterrupt:
        return 130


def exit_on_signals() -> AbstractContextManager[None]:
    """SIGTERM and SIGHUP raise SystemExit, so that the command cleans up; ignored ones (nohup) stay ignored."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    return handled(
        leave, *(each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN)
    )


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Iterator[None]:
    """Handles signals while the context is active."""
    previous = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)


def _parser(command: Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"softnic {command.NAME}", description=command.HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_arguments(parser)
    return parser


def _overview() -> argparse.ArgumentParser:
    """The parser for arguments without a command: --help, --version, errors."""
    parser = argparse.ArgumentParser(
        prog="softnic",
        description="A compressing network card in software: gradients cross the network compressed.",
        epilog="`softnic COMMAND --help` describes a command. Try: softnic demo",
    )
    parser.add_argument("--version", action="version", version=f"softnic {version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        try:
            text = load(name).HELP
        except CommandError as error:
            text = f"(not usable here: {error})"
        commands.add_parser(name, help=text.replace("%", "%%"))
    return parser


def version() -> str:
    """Returns softnic's version, or where it runs from."""
    try:
        return importlib.metadata.version("softnic")
    except importlib.metadata.PackageNotFoundError:
        return "(run from its source tree, not installed)"


def _os_error(error: OSError) -> str:
    text = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        text += " (`ulimit -n` sets the limit)"
    return f"{error.filename}: {text}" if error.filename is not None else text


def _fail(name: str | None, message: str, error: BaseException | None = None) -> int:
    """Prints an error, with the notes that a cluster added about its NICs to it or to its causes."""
    while error is not None:
        noted = [note for note in getattr(error, "__notes__", ()) if note not in message]
        message = "; ".join([message, *noted])
        error = error.__cause__
    print(f"softnic {name}: {message}" if name else f"softnic: {message}", file=sys.stderr)
    return 1
