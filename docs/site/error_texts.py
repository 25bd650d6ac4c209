"""The texts of errors, read from the sources: for the page of messages, and for the test of troubleshooting.md.

A text is the literal argument with which an exception is made; "..." stands for its variable parts. Texts that consist
of variable parts alone, as "...: ...", repeat another error and are left out.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("softnic", "daemons")
ARGUMENTS = {
    *("ArgumentError", "ArgumentTypeError", "AttributeError", "BufferError", "CodecError", "IndexError", "KeyError"),
    *("MethodError", "NotImplementedError", "OverflowError", "Refused", "TypeError", "UnsupportedError", "ValueError"),
}
"""Errors about what a program passes to a function, or a user to a flag; errors derived from them count, too."""
INTERNAL = {
    "AssertionError": "never seen",
    "HostError": "tests and benchmarks",
    "ParseError": "frames, which are counted and dropped",
    "HelloError": "frames, which are counted and dropped",
    "Stalled": "virtual time",
}
"""Exceptions that no user sees, and what they are about."""
OPERATIONAL = {"CaptureError", "CommError", "ConfigError", "DecodeError", "LaunchError", "StreamError"}
"""Errors of operation, although they derive from those of arguments."""

INTRODUCTION = """# Messages

Every error text of softnic, by the kind of error, from the sources. `...` stands for what varies.
[Troubleshooting](../troubleshooting.md) has the causes and remedies of the first kind; those of the second state what
is expected.
"""


class Message(NamedTuple):
    """A text of an error."""

    text: str
    error: str
    module: str


def page() -> str:
    """Return the page of messages, in Markdown."""
    kinds = {"Errors of operation": operational(), "Errors of arguments": of_arguments()}
    lines = [INTRODUCTION]
    for heading, messages in kinds.items():
        lines += [f"## {heading}\n", "| message | error | raised in |", "|---|---|---|"]
        where = defaultdict(set)
        for message in messages:
            where[message.text, message.error].add(message.module)
        lines += [
            f"| <code>{_escaped(text)}</code> | {error} | {', '.join(f'`{module}`' for module in sorted(modules))} |"
            for (text, error), modules in sorted(where.items(), key=lambda item: item[0][0].lstrip(".: ").lower())
        ]
        lines.append("")
    return "\n".join(lines)


def operational() -> list[Message]:
    """Return the texts that tell a user that something is wrong outside of the program."""
    return [each for each in messages() if not {each.error} & {*_of_kind(ARGUMENTS), *INTERNAL}]


def of_arguments() -> list[Message]:
    """Return the texts about arguments."""
    return [each for each in messages() if each.error in _of_kind(ARGUMENTS)]


def normalised(text: str) -> str:
    """Return a text without backticks, on one line, for comparisons."""
    return re.sub(r"\.{4,}", "...", " ".join(text.replace("`", "").split()))


@functools.cache
def messages() -> list[Message]:
    """Return the texts of all exceptions that the sources make."""
    known = _exceptions()
    found = []
    for path, tree in _trees():
        module = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removeprefix("daemons.")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (error := ast.unparse(node.func).rpartition(".")[2]) in known:
                texts = [text for argument in node.args if (text := _template(argument)) and _says_something(text)]
                found += [Message(normalised(text), error, module.removesuffix(".__init__")) for text in texts[-1:]]
    return found


@functools.cache
def _trees() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for name in FOLDERS for path in sorted((ROOT / name).rglob("*.py"))]


@functools.cache
def _bases() -> dict[str, set[str]]:
    """Return the names of the bases of each class."""
    return {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for _, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def _derived(names: set[str], except_for: set[str]) -> set[str]:
    """Return names, and those of the classes derived from them."""
    found = set(names)
    while more := {name for name, bases in _bases().items() if bases & found} - found - except_for:
        found |= more
    return found


@functools.cache
def _exceptions() -> set[str]:
    built_in = {
        name
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, BaseException) and not issubclass(value, Warning)
    }
    return _derived({*built_in, "ArgumentTypeError", "DistBackendError"}, set())


def _of_kind(names: set[str]) -> set[str]:
    return _derived(names, {*OPERATIONAL, *INTERNAL})


def constants() -> str:
    """Return all literal strings of the sources, one after the other."""
    return " ".join(
        node.value
        for _, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _template(node: ast.expr) -> str | None:
    """Return the text of a literal, with dots for its variable parts; None: it is no literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_template(node.left), _template(node.right)]
        return "".join(part or "..." for part in parts) if any(parts) else None
    return None


def _says_something(text: str) -> bool:
    return len(re.findall(r"[A-Za-z]{2,}", text)) > 1


def _escaped(text: str) -> str:
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return re.sub(r"([\\`*_\[\]])", r"\\\1", plain)
