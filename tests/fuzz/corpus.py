"""Inputs that are checked in: a file a target, an input a line, as Python writes bytes.

An input that runs found has no name. One that tells of something that was mended has a name before it:

    b'ip = "10.0.0.1"'
    too-deep b'a=[[[['

So a change of the corpus can be read as a diff, texts and headers of captures more easily than in hexadecimal.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping

from tests.fuzz.targets import Target

_LINE = re.compile(r"""(?:([^'"\s]+) )?(b['"].*['"])""")


def name_of(data: bytes) -> str:
    """Return the name that libFuzzer gives to an input that it found."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def read(target: Target) -> dict[str, bytes]:
    """Return the checked-in inputs of a target by name, the smallest first; raise ValueError for any other line."""
    inputs = {}
    for line in target.corpus.read_text("ascii").splitlines() if target.corpus.exists() else ():
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise ValueError(f"{target.corpus}: {line[:60]} is not an input")
        data = ast.literal_eval(matched[2])
        inputs[matched[1] or name_of(data)] = data
    return inputs


def write(target: Target, inputs: Mapping[str, bytes]) -> None:
    """Replace the checked-in inputs of a target."""
    ordered = sorted(inputs.items(), key=lambda item: (len(item[1]), item[1]))
    lines = [f"{data!r}\n" if name == name_of(data) else f"{name} {data!r}\n" for name, data in ordered]
    target.corpus.parent.mkdir(exist_ok=True)
    target.corpus.write_text("".join(lines), "ascii")


def plant(target: Target, more: Iterable[bytes] = ()) -> None:
    """Write the checked-in inputs, and `more`, as files to the folder of inputs that runs on this machine found."""
    target.found.mkdir(parents=True, exist_ok=True)
    for data in (*read(target).values(), *more):
        (target.found / name_of(data)).write_bytes(data)
