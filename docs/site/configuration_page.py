"""The reference of node.toml: the keys of softnicd's configuration, from its class and its flags."""

from __future__ import annotations

import argparse
import ast
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from softnicd import config

INTRODUCTION = """# node.toml

The keys of the file that `softnicd --config node.toml` reads. Most have a [flag](commands.md#softnicd) of the same
name, which overrides the file. [Many machines](../many-machines.md) and [deployment](../deployment.md) have whole
files; `softnic doctor --config node.toml` checks what a file names.

| key | default | meaning |
|---|---|---|
"""
TABLES = """
## Tables

| table | keys and values |
|---|---|
"""
EMULATION = """
## Emulation

The table `[emulation]` makes this node's outgoing link slower or worse than it is. Each key has a flag. Rates are
written `100mbit`, times `50us`, shares `0.1%`, sizes `1mb`.

| key | meaning |
|---|---|
"""
KINDS = {
    "peers": "`IP = HOST:PORT`",
    "peer_keys": "`IP = KEY`, or `IP = [KEY, KEY]`",
    "hosts": "`NAME = IP`",
    "offloads": "`TOS = CODEC`",
    "emulation": "see [below](#emulation)",
}
EMULATED = {
    "rate": "bits a second; without it, as fast as the machine",
    "delay": "of every frame, one way",
    "jitter": "half the width of the uniform distribution of the delay, which is never below 0",
    "loss": "share of frames that are lost",
    "duplicate": "share of frames that arrive twice",
    "reorder": "share of frames that arrive out of their order",
    "corrupt": "share of frames of which a bit is changed",
    "limit": "bytes in the queue before the link; by default 1 MB within 2 to 8 ms of the rate, 16 MiB without a rate",
}


def page() -> str:
    """Return the page, in Markdown."""
    fields = {field.name: field for field in msgspec.structs.fields(config.Config)}
    described, helped = descriptions(), _help()
    lines = [INTRODUCTION.rstrip("\n")]
    for name, field in fields.items():
        if name not in config._TABLES:
            lines.append(f"| `{name}` | {_default(field)} | {described.get(name) or helped.get(name, '')} |")
    lines.append(TABLES.rstrip("\n"))
    for name in fields:
        if name in config._TABLES:
            default = ", ".join(f'`"{key}" = "{value}"`' for key, value in _value(fields[name]).items())
            text = f"{KINDS[name]}. {described.get(name, '')}".rstrip(" ").removesuffix(".")
            lines.append(f"| `[{name}]` | {text}{f'. Default: {default}' if default else ''} |")
    lines.append(EMULATION.rstrip("\n"))
    lines += [f"| `{key}` | {EMULATED[key]} |" for key in config.EMULATION]
    return "\n".join([*lines, ""])


def descriptions() -> dict[str, str]:
    """Return the strings below the fields of the class of the configuration, by the field's name."""
    tree = ast.parse(Path(config.__file__).read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Config")
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(text.value.value).split()).replace("|", "\\|")
    return found


def _help() -> dict[str, str]:
    """Return the help of the flags, by the keys that they set."""
    actions = config.parser()._actions
    return {
        each.dest: each.help.replace("|", "\\|") for each in actions if each.help and each.help != argparse.SUPPRESS
    }


def _value(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default


def _default(field: Any) -> str:
    value = _value(field)
    if value is msgspec.NODEFAULT:
        return "required"
    if value is None or value == "":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
