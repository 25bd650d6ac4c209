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
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, cast

from softnic.arguments import ShowVersion
from softnic.extras import PACKAGES, not_installed
from softnic.terminal import drop_unwritten, open_standard_files

COMMANDS = (
    "demo",
    "run",
    "exec",
    "stat",
    "top",
    "key",
    "doctor",
    "meet",
    "join",
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


_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class CommandError(Exception):
    """An error for the user; its text is one line that says what to do."""


class Command(Protocol):
    """The interface of a command's module."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def add_json(parser: argparse.ArgumentParser, what: str = "all figures") -> None:
    """Adds --json, for `check_writable` and `deliver_json`. `what` names the content in the help."""
    parser.add_argument("--json", metavar="FILE", help=f"write {what} as JSON (-: standard output, no tables)")


def check_writable(*targets: str | Path | None) -> None:
    """Raises OSError if a file cannot be written, before the work is done. None and "-" are ignored.

    No file is left behind, and a pipe or device is not opened: its reader would take that for the whole content.
    """
    for target in targets:
        if target is None or target == "-":
            continue
        path = Path(target)
        exists = path.exists()
        if exists and not path.is_file() and not path.is_dir():
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            continue
        path.open("a").close()
        if not exists:
            path.resolve().unlink()  # where a link leads


def picture(*suffixes: str) -> Callable[[str], Path]:
    """Makes an argparse type: the path of a picture whose name ends in one of these, as in `.png`."""
    *others, last = suffixes
    wanted = f"{', '.join(others)} or {last}" if others else last

    def convert(text: str) -> Path:
        if Path(text).suffix.lower() not in suffixes:
            raise argparse.ArgumentTypeError(f"{text!r} is no picture's name: it ends in {wanted}")
        return Path(text)

    return convert


@contextmanager
def named(target: str | Path) -> Iterator[None]:
    """Adds the file's name to an OSError that has none, as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(target)
        raise


def write_file(target: str | Path, content: bytes | str) -> None:
    """Writes a file. Raises OSError with its name."""
    with named(target):
        Path(target).write_bytes(content.encode() if isinstance(content, str) else content)


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
            stack.enter_context(named(target))
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
    open_standard_files()
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    finally:
        drop_unwritten(sys.stdout)


def _main(arguments: list[str]) -> int:
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
    except BrokenPipeError:  # the reader of the output has exited (`softnic stat | head`)
        return 1
    except OSError as error:
        if error.filename is None and error.errno in _WRITE_ERRORS and _stdout_fails():
            error.filename = "standard output"
        return _fail(name, os_error_text(error), error)
    except ImportError as error:
        return _fail(name, missing(error))
    except KeyboardInterrupt:
        return 130


def _stdout_fails() -> bool:
    """Returns whether standard output cannot be written. An error of writing does not say of which file it is."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return True
    return False


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
    parser.add_argument("--version", action=ShowVersion)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        try:
            text = load(name).HELP
        except CommandError as error:
            text = f"(not usable here: {error})"
        commands.add_parser(name, help=text.replace("%", "%%"))
    return parser


def os_error_text(error: OSError) -> str:
    """Return one line on an error of the system: the file, if one is known, and what is wrong."""
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
