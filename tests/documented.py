"""Programs of documents, run under `softnic run`, and whole pages, run as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r'^(?:<!-- ([^\n]*) -->\n)?```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?)")
_BEGIN = "=== block"
_PROGRAMS = {
    "python": "",
    "softnic": "-m softnic",
    "softnicd": "-m softnicd",
    "torchrun": "-m torch.distributed.run",
}
"""What a reader has on PATH, and what this interpreter runs instead."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    mark: str
    """The comment in the line before it; "not run: REASON" if no test runs it as written."""
    language: str
    file: str
    """Name of the file that it is; empty: it has none."""
    text: str


def run_program(directory: Path, name: str, source: str, *options: str) -> str:
    """Write a program to `directory`, run it under `softnic run` with these options, and return its output."""
    (directory / name).write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "softnic", "run", *options, "--", sys.executable, name],
        cwd=directory,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


def is_run(block: Block) -> bool:
    return not block.mark.startswith("not run: ")


def run_page(page: Path, directory: Path, timeout_s: float) -> None:
    """Do what a page says, in a directory: write its files, run its commands, and compare what they print.

    A block with a title is a file; one of `sh` is run; one of `text` is what the block before it prints. There a line
    of dots stands for any lines, a number for any number, and spaces for any number of them. All commands of a page run
    in one shell, which ends with the first that fails.
    """
    found = [block for block in blocks(page) if is_run(block)]
    script = ["set -eo pipefail"]
    for number, block in enumerate(found):
        if block.file:
            script.append(f"cat > {shlex.quote(block.file)} <<'END OF {number}'\n{block.text}END OF {number}")
        elif block.language == "sh":
            script.append(f"echo '{_BEGIN} {number}'\n{block.text}")
    printed = _shell("\n".join(script), directory, timeout_s)
    outputs = dict(re.findall(rf"^{_BEGIN} (\d+)\n(.*?)(?=^{_BEGIN} |\Z)", printed, re.MULTILINE | re.DOTALL))
    for number, block in enumerate(found):
        if block.language == "text":
            output = outputs[str(number - 1)]
            assert re.fullmatch(_pattern(block.text), _plain(output)), f"{page.name}, block {number}:\n{output}"


def _shell(script: str, directory: Path, timeout_s: float) -> str:
    """Return the standard output of a script, which must succeed; its processes end with it."""
    programs = directory / ".programs"
    programs.mkdir()
    for name, arguments in _PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    given = {name: value for name, value in os.environ.items() if not name.startswith(("SOFTNIC_", "OMP_"))}
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=directory,
        env={**given, "PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, errors = process.communicate(timeout=timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, printed + errors
    return printed


def _plain(text: str) -> str:
    """Return a text without empty lines, with 0 for each number and one space for several."""
    return "".join(f"{' '.join(_NUMBER.sub('0', line).split())}\n" for line in text.splitlines() if line.strip())


def _pattern(text: str) -> str:
    """Return the expression that must match what is printed, from a block of text."""
    return re.escape(_plain(text)).replace(re.escape("...\n"), "(?:.*\n)*")
