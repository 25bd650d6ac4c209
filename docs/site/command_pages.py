"""The reference of commands, from their argparse parsers: `softnicd`, and `softnic` with each of its commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from softnic.commands import COMMANDS, CommandError, load
from softnicd.config import parser as daemon_parser

INTRODUCTION = """# Commands

What `--help` prints, on one page. Times are written `50us`, `4ms`, `10s`; rates `100mbit`, `1gbit`; probabilities
`0.1%`; codecs as in [Codecs](../codecs.md). Exit codes: 0 success, 1 an error, which is one line on standard error,
2 wrong usage, 130 interrupted.
"""


class Formatter(argparse.HelpFormatter):
    """Lines as long as a page is wide, whatever the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)


def page() -> str:
    """Return the page, in Markdown."""
    commands = [line for name in COMMANDS for line in command(name)]
    return "\n".join([INTRODUCTION, *section(daemon_parser(), 2), *commands])


def command(name: str) -> Iterator[str]:
    """Yield the lines about `softnic NAME`."""
    try:
        module = load(name)
    except CommandError as error:
        yield f"## softnic {name}\n\nNot usable where this site was built: {error}\n"
        return
    parser = argparse.ArgumentParser(prog=f"softnic {name}", description=module.HELP)
    module.add_arguments(parser)
    yield from section(parser, 2)


def section(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """Yield the lines about a parser and its subcommands."""
    yield f"{'#' * level} {parser.prog}\n"
    if description := (parser.description or "").strip():
        yield f"{escaped(description[0].upper() + description[1:]).rstrip('.')}.\n"
    parser.formatter_class = Formatter
    yield from fenced(parser.format_usage().removeprefix("usage: "))
    rows = [row(action, parser) for action in parser._actions if is_listed(action)]
    if rows:
        yield from ["| argument | meaning |", "|---|---|", *rows, ""]
    if parser.epilog:
        yield from fenced(parser.epilog)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from section(child, level + 1)


def is_listed(action: argparse.Action) -> bool:
    kinds = (argparse._HelpAction, argparse._SubParsersAction)
    return action.help != argparse.SUPPRESS and not isinstance(action, kinds)


def row(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """Return the table's row about an argument."""
    value = parser._get_formatter()._format_args(action, str(action.metavar or action.dest.upper()))
    names = [f"{name} {value}".strip() for name in action.option_strings or [""]]
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return f"| {', '.join(f'<code>{escaped(name)}</code>' for name in names)} | {escaped(text)} |"


def escaped(text: str) -> str:
    """Return plain text as Markdown on one line, which may stand in a table."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return re.sub(r"([\\`*_\[\]])", r"\\\1", plain)


def fenced(text: str) -> list[str]:
    return ["```text", text.rstrip(), "```", ""]
